// SPDX-License-Identifier: GPL-2.0
//! Limits of the parts of a resource that one user may hold.

use core::ops::Deref;

use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
};

use crate::rdma::mmap::Keeps;

/// The part of a resource that a user may still take.
pub(crate) struct Quota(Atomic<u64>);

impl Quota {
    /// Returns a quota of which nothing is taken.
    pub(crate) fn new(limit: u64) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Atomic::new(limit)), GFP_KERNEL)?)
    }

    /// Takes a part; returns `None` if less is left.
    pub(crate) fn take(self: &Arc<Self>, amount: u64) -> Option<Share> {
        let mut left = self.0.load(Relaxed);
        loop {
            let rest = left.checked_sub(amount)?;
            match self.0.cmpxchg(left, rest, Relaxed) {
                Ok(_) => return Some(Share { quota: self.clone(), amount }),
                Err(now) => left = now,
            }
        }
    }
}

/// A part of a quota; given back on drop.
pub(crate) struct Share {
    quota: Arc<Quota>,
    amount: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.0.fetch_add(self.amount, Relaxed);
    }
}

/// A value that counts against a quota until it is dropped.
pub(crate) struct Counted<T> {
    // The fields are dropped in this order.
    value: T,
    _share: Share,
}

impl<T> Counted<T> {
    /// Counts a value by this share.
    pub(crate) fn new(value: T, share: Share) -> Self {
        Self { value, _share: share }
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// After the value has been dropped, the drop of its share only adds to a number, and so waits for
/// nothing.
impl<T: Keeps> Keeps for Counted<T> {}
