// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The credits that completions give back to the queues of a queue pair.

use std::sync::atomic::{AtomicU32, Ordering};

use abi::cq::Opcode;
use vrnic_abi as abi;

use crate::completion::Completion;
use crate::heap::Shared;
use crate::posted::Posted;

/// The indices below which the entries of a QP's queues have completed. Polling writes them,
/// posting reads them.
#[derive(Debug, Default)]
pub struct Credits {
    pub(crate) send: AtomicU32,
    pub(crate) recv: AtomicU32,
    /// The credits of the shared queue that receives are taken from.
    pub(crate) shared: Option<Shared<SharedCredits>>,
    /// The outstanding requests of the send queue.
    pub(crate) sends: Option<Posted>,
    /// The outstanding requests of its own receive queue.
    pub(crate) recvs: Option<Posted>,
}

/// The index below which the entries of a shared queue are free. Polling a CQ of one of its QPs
/// writes it.
#[derive(Debug, Default)]
pub struct SharedCredits(AtomicU32);

impl SharedCredits {
    /// Records that the entry at `index` has completed.
    #[inline]
    pub(crate) fn completed(&self, index: u32) {
        self.advance(index.wrapping_add(1));
    }

    /// Records that all entries below `freed` are free, unless more were already.
    #[inline]
    pub(crate) fn advance(&self, freed: u32) {
        let newer = |old: u32| {
            // CAST: the sign of the distance is what counts.
            let is_newer = (old.wrapping_sub(freed)).cast_signed() < 0;
            is_newer.then_some(freed)
        };
        // If this fails, the value is already at least as new.
        let _older = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, newer);
    }

    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

/// Queues of a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Halves {
    /// The send queue.
    pub sends: bool,
    /// The receive queue.
    pub recvs: bool,
}

impl Halves {
    /// The send queue.
    pub(crate) const SENDS: Self = Self { sends: true, recvs: false };
    /// The receive queue.
    pub(crate) const RECVS: Self = Self { sends: false, recvs: true };
}

impl Credits {
    #[inline]
    pub(super) fn completed(&self, completion: &Completion) {
        let queue = match &self.shared {
            _ if !completion.opcode.is_recv() => &self.send,
            None => &self.recv,
            Some(shared) => return shared.completed(completion.wqe_index),
        };
        queue.store(completion.wqe_index.wrapping_add(1), Ordering::Release);
    }

    /// Returns the credits of a QP, which may take receives from a shared queue.
    pub(crate) fn new(shared: Option<Shared<SharedCredits>>) -> Self {
        Self { shared, ..Self::default() }
    }

    pub(crate) fn reset(&self) {
        for (credits, posted) in [(&self.send, &self.sends), (&self.recv, &self.recvs)] {
            credits.store(0, Ordering::Release);
            if let Some(posted) = posted {
                posted.publish(0);
            }
        }
    }

    /// Completes the next outstanding request of these queues of `qpn`, because the dead adapter
    /// does not.
    pub(super) fn flush(&self, qpn: u32, halves: Halves) -> Option<Completion> {
        let sends = (halves.sends, &self.sends, &self.send, Opcode::Send);
        let recvs = (halves.recvs, &self.recvs, &self.recv, Opcode::Recv);
        let (wr_id, index, opcode) =
            [sends, recvs].into_iter().find_map(|(ours, posted, credits, opcode)| {
                let posted = posted.as_ref().filter(|_| ours)?;
                let index = credits.load(Ordering::Acquire);
                Some((posted.outstanding(index)?, index, opcode))
            })?;
        let completion = Completion::flushed(wr_id, opcode, qpn, index);
        self.completed(&completion);
        Some(completion)
    }
}

#[test]
fn shared_credits_survive_the_wrap_of_the_index() {
    let credits = SharedCredits::default();
    credits.advance(0x7fff_ffff);
    credits.advance(0xffff_fff0);
    credits.completed(u32::MAX);
    assert_eq!(credits.get(), 0);
    credits.completed(0xffff_fffe);
    assert_eq!(credits.get(), 0);
}
