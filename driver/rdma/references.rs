// SPDX-License-Identifier: GPL-2.0
//! Counted references that keep an object from being destroyed.

use kernel::{
    sync::atomic::{Acquire, Atomic, Full, Release},
    time::{Delta, delay::fsleep},
};

/// The time between two looks for the end of the last reference.
const POLL: Delta = Delta::from_micros(100);

/// The number of references to an object. Once no more are allowed, the owner of the object waits
/// until all have been given back.
pub(super) struct References {
    count: Atomic<u32>,
    ended: Atomic<bool>,
}

impl References {
    /// Creates a count without references.
    pub(super) fn new() -> Self {
        Self { count: Atomic::new(0), ended: Atomic::new(false) }
    }

    /// Takes a reference. Returns whether it could take one, which it cannot after [`Self::end`].
    /// Can be called in any context.
    pub(super) fn take(&self) -> bool {
        // Either this sees that references have ended, or `end` sees this one.
        self.count.fetch_add(1, Full);
        let taken = !self.ended.load(Acquire);
        if !taken {
            self.give_back();
        }
        taken
    }

    /// Gives a reference back. Can be called in any context.
    pub(super) fn give_back(&self) {
        self.count.fetch_sub(1, Release);
    }

    /// Allows no more references, and sleeps until all have been given back. It calls `close`
    /// repeatedly, because a task that has a reference may be about to use the object. Further
    /// calls return at once.
    pub(super) fn end(&self, close: impl Fn()) {
        self.ended.xchg(true, Full);
        loop {
            close();
            if self.count.load(Acquire) == 0 {
                return;
            }
            fsleep(POLL);
        }
    }

    /// Allows references again.
    pub(super) fn resume(&self) {
        self.ended.store(false, Release);
    }
}
