// SPDX-License-Identifier: GPL-2.0
//! DMA buffers whose exporter may take them back, such as VFIO.
//!
//! The exporter then calls [`Revoker`], with the buffer's lock held. So no code takes that lock, or
//! frees a buffer, while it has the lock of a revoker.

use abi::{Key, admin::command};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

use crate::{quiesce::Liveness, rdma::memory::umem::Revoke};

/// Ends the adapter's access to a region whose buffer is taken back.
#[pin_data]
pub(in crate::verbs) struct Revoker {
    liveness: Arc<Liveness>,
    /// The key of the region, from its creation until its removal. Locked while a command with the
    /// key runs, because another region may have this key soon.
    #[pin]
    key: Mutex<Option<Key>>,
}

impl Revoker {
    /// Returns the revoker of a region of this adapter that does not exist yet.
    pub(in crate::verbs) fn new(liveness: Arc<Liveness>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self { liveness, key <- new_mutex!(None, "vrnic::Revoker") }),
            GFP_KERNEL,
        )
    }

    /// Sets the key of the region, which exists now.
    pub(in crate::verbs) fn begin(&self, key: Key) {
        *self.key.lock() = Some(key);
    }

    /// Ends the use of the key. `remove` removes the region from the adapter.
    pub(in crate::verbs) fn end(&self, remove: impl FnOnce() -> Result) -> Result {
        let mut key = self.key.lock();
        remove()?;
        *key = None;
        Ok(())
    }
}

impl Revoke for Revoker {
    fn revoke(&self) {
        let guard = self.key.lock();
        let Some(key) = *guard else { return };
        if self.liveness.execute::<command::RevokeMr>(&key).is_err() {
            // The adapter does not know its own region, so it may access any memory.
            self.liveness.silence();
        }
    }
}
