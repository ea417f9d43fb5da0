// SPDX-License-Identifier: GPL-2.0
//! Receive work requests of kernel clients: linked lists of C structs.

use core::marker::PhantomData;

use crate::bindings;
use crate::rdma::requests::wr::{Sge, sges};

/// A receive work request.
///
/// C: `struct ib_recv_wr`.
///
/// # Invariants
///
/// A valid request, with `num_sge` segments.
#[repr(transparent)]
pub(crate) struct RecvWr(bindings::ib_recv_wr);

impl RecvWr {
    /// Returns the client's identifier, which the completion returns.
    pub(crate) fn wr_id(&self) -> u64 {
        // SAFETY: both views of the union are 64 bits.
        unsafe { *self.0.__bindgen_anon_1.wr_id }
    }

    /// Returns the segments.
    pub(crate) fn sges(&self) -> &[Sge] {
        // SAFETY: by the type's invariants there are `num_sge` entries.
        unsafe { sges(self.0.sg_list, self.0.num_sge) }
    }
}

/// Receive work requests. The one that was taken last is the one that an error is about.
///
/// # Invariants
///
/// `next` is null or an element of a list that is valid for `'a`.
pub(crate) struct RecvWrs<'a> {
    next: *const bindings::ib_recv_wr,
    last: *const bindings::ib_recv_wr,
    _call: PhantomData<&'a bindings::ib_recv_wr>,
}

impl RecvWrs<'_> {
    /// # Safety
    ///
    /// `first` must be null or the head of a list that stays valid for `'a`.
    pub(in crate::rdma) unsafe fn new(first: *const bindings::ib_recv_wr) -> Self {
        // INVARIANT: the caller passes null or the head of a list of valid requests.
        Self { next: first, last: first, _call: PhantomData }
    }

    /// Returns the request that was taken last.
    pub(in crate::rdma) fn taken(&self) -> *const bindings::ib_recv_wr {
        self.last
    }
}

impl<'a> Iterator for RecvWrs<'a> {
    type Item = &'a RecvWr;

    fn next(&mut self) -> Option<&'a RecvWr> {
        if self.next.is_null() {
            return None;
        }
        self.last = self.next;
        // SAFETY: by the type's invariants this is an element of the list; the wrapper is
        // transparent.
        let wr = unsafe { &*self.last.cast::<RecvWr>() };
        // INVARIANT: null, or the next element of the same list.
        self.next = wr.0.next;
        Some(wr)
    }
}
