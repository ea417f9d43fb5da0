// SPDX-License-Identifier: GPL-2.0
//! What all regions of an adapter share whose pages come and go.

use abi::admin::MAP_PAGES_MAX;
use kernel::{
    device, new_mutex,
    prelude::*,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::{rdma::memory::page_list::PageList, workqueue::OwnQueue};

/// What regions need to give pages to the adapter.
#[pin_data]
pub(crate) struct Paging {
    /// The queue of their work items. Regions keep it until they end, and not their work items.
    queue: Arc<OwnQueue>,
    /// The list of the command that runs.
    #[pin]
    list: Mutex<PageList>,
}

impl Paging {
    /// Returns what the regions of an adapter share. Their work runs in this queue.
    pub(crate) fn new(
        device: &device::Device<device::Bound>,
        queue: Arc<OwnQueue>,
    ) -> Result<Arc<Self>> {
        let list = PageList::new(device, MAP_PAGES_MAX)?;
        Arc::pin_init(
            pin_init!(Self { queue, list <- new_mutex!(list, "vrnic::Paging") }),
            GFP_KERNEL,
        )
    }

    /// Returns the work queue of paged regions.
    pub(crate) fn queue(&self) -> &OwnQueue {
        &self.queue
    }

    /// Locks the list. Who has it allocates nothing, because memory is freed by those who wait for
    /// locks under which it is taken.
    pub(crate) fn list(&self) -> MutexGuard<'_, PageList> {
        self.list.lock()
    }
}
