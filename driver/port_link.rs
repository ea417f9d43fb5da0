// SPDX-License-Identifier: GPL-2.0
//! The link of the adapter's own port. A register has its state when the adapter is enabled, and
//! events report its changes. A register is not read later, because such a read stops the whole
//! machine while the adapter stalls.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc, SpinLockIrq,
        atomic::{Acquire, Atomic, Full, Release},
    },
};

/// The states.
const UNKNOWN: u32 = 0;
const DOWN: u32 = 1;
const UP: u32 = 2;

/// The object that changes of the link are reported to.
pub(crate) trait LinkEvents: Send + Sync {
    /// Called when the link has changed, in interrupts and under a lock.
    fn link_changed(self: Arc<Self>);
}

/// The link of the port.
#[pin_data]
pub(crate) struct PortLink {
    state: Atomic<u32>,
    #[pin]
    follower: SpinLockIrq<Option<Arc<dyn LinkEvents>>>,
}

impl PortLink {
    /// Returns the link of an adapter that is about to be enabled.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state: Atomic::new(UNKNOWN),
            follower <- new_spinlock_irq!(None, "vrnic::PortLink"),
        })
    }

    /// Records the state that the register had after the adapter was enabled, unless an event has
    /// reported the state already.
    pub(crate) fn begin(&self, up: bool) {
        let _ = self.state.cmpxchg(UNKNOWN, number(up), Full);
    }

    /// Records the state that an event reports; callable in interrupts.
    pub(crate) fn change(&self, up: bool) {
        self.state.store(number(up), Release);
        if let Some(follower) = &*self.follower.lock() {
            follower.clone().link_changed();
        }
    }

    /// Returns whether the port has a link.
    pub(crate) fn is_up(&self) -> bool {
        self.state.load(Acquire) == UP
    }

    /// Reports changes to `follower` from now on.
    pub(crate) fn follow(&self, follower: Arc<dyn LinkEvents>) {
        *self.follower.lock() = Some(follower);
    }

    /// Reports no changes from now on. The caller has another reference to the follower. After the
    /// return no report is under way.
    pub(crate) fn unfollow(&self) {
        *self.follower.lock() = None;
    }
}

/// Returns the number of a state.
fn number(up: bool) -> u32 {
    if up { UP } else { DOWN }
}
