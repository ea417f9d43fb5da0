// SPDX-License-Identifier: GPL-2.0
//! Changes of the neighbours that are reached through a network card: the MAC of a peer or of a
//! gateway changes, or another gateway is the next hop. Connections of iWARP follow them.

use kernel::{
    error::to_result,
    ffi::{c_int, c_ulong, c_void},
    prelude::*,
    sync::{Arc, ArcBorrow},
    types::Opaque,
};

use crate::{bindings, listeners::Listeners, rdma::port::netdev::NetdevRef};

/// Tells connections of changes of neighbours, until it is dropped.
pub(crate) struct Neighbours(Arc<Notifier>);

/// The notifier, and what it needs.
///
/// # Invariants
///
/// `block` is the first field, and registered as long as there are the [`Neighbours`].
#[pin_data]
#[repr(C)]
struct Notifier {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    card: NetdevRef,
    listeners: Arc<Listeners>,
}

const _: () = assert!(core::mem::offset_of!(Notifier, block) == 0);

// SAFETY: the block belongs to the network stack while it is registered; all else is `Send`.
unsafe impl Send for Notifier {}
// SAFETY: the block belongs to the network stack while it is registered; all else is `Sync`.
unsafe impl Sync for Notifier {}

impl Neighbours {
    /// Tells the connections of `listeners` of changes of the neighbours of a network card, and of
    /// the network devices on top of it.
    pub(crate) fn new(card: NetdevRef, listeners: Arc<Listeners>) -> Result<Self> {
        let notifier = Arc::pin_init(
            try_pin_init!(Notifier {
                block <- super::notifier_block(Notifier::call, 0),
                card,
                listeners,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: the block is pinned and lives until `drop` unregisters it.
        to_result(unsafe { bindings::register_netevent_notifier(notifier.block.get()) })?;
        Ok(Self(notifier))
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        // SAFETY: registered by `new`. On return no notification is under way.
        unsafe { bindings::unregister_netevent_notifier(self.0.block.get()) };
    }
}

impl Notifier {
    /// The notifier's callback, which must not sleep.
    ///
    /// # Safety
    ///
    /// `block` must point to the block of a `Notifier` in an `Arc`, and `info` to the information
    /// of the notification `event`.
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller passes the block of a `Notifier`, whose first field it is; the
        // `Neighbours` have a reference as long as the block is registered.
        let this = unsafe { ArcBorrow::from_raw(block.cast::<Self>().cast_const()) };
        // SAFETY: the network stack passes the information of this notification; the card is alive,
        // as it is referred to.
        if unsafe { bindings::pairing_is_next_hop(event, info, this.card.as_raw()) } {
            this.listeners.tell_connections(|connections| connections.clone().rerouted());
        }
        bindings::NOTIFY_DONE as c_int
    }
}
