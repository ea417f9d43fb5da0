// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Who feeds a completion queue, and the credits that its completions give back.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::completion::Completion;
use crate::srq::SharedCredits;

/// Not a QP number: those have 24 bits.
pub(super) const NO_QPN: u64 = 0xffff_ffff;

/// Set in the number of a feeder that is a shared receive queue: QP numbers have 24 bits.
pub(super) const SHARED: u32 = 1 << 31;

/// Who feeds a CQ with an entry: the QP, or of an XRC target, which nobody here may know, the shared receive queue.
#[inline]
pub(super) fn feeder(qpn: u32, srqn: u32) -> u32 {
    if srqn == 0 { qpn } else { srqn | SHARED }
}

/// Up to which index the entries of a QP's queues have completed. Written by whoever polls,
/// read by whoever posts.
#[derive(Debug, Default)]
pub struct Credits {
    pub(crate) send: AtomicU32,
    pub(crate) recv: AtomicU32,
    /// Where receives are given back that were taken from a shared queue.
    shared: Option<Arc<SharedCredits>>,
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

    /// The credits of a QP that takes receives from a shared queue, if there is one.
    pub(crate) fn new(shared: Option<Arc<SharedCredits>>) -> Self {
        Self { shared, ..Self::default() }
    }

    pub(crate) fn reset(&self) {
        self.send.store(0, Ordering::Release);
        self.recv.store(0, Ordering::Release);
    }
}

/// The queue pairs that feed a CQ, by number.
#[derive(Debug, Default)]
pub(super) struct Feeders {
    known: HashMap<u32, Arc<Credits>, BuildHasherDefault<QpnHasher>>,
    /// The one that fed last: most often it feeds again.
    last: Option<(u32, Arc<Credits>)>,
}

impl Feeders {
    #[inline]
    pub(super) fn find(&mut self, qpn: u32) -> Option<&Credits> {
        if !matches!(self.last, Some((last, _)) if last == qpn) {
            self.look_up(qpn);
        }
        self.last.as_ref().map(|(_, credits)| &**credits)
    }

    #[cold]
    fn look_up(&mut self, qpn: u32) {
        self.last = self.known.get(&qpn).map(|credits| (qpn, credits.clone()));
    }

    pub(super) fn insert(&mut self, qpn: u32, credits: &Arc<Credits>) {
        self.known.insert(qpn, credits.clone());
        self.last = None;
    }

    pub(super) fn remove(&mut self, qpn: u32, credits: &Arc<Credits>) {
        if self.known.get(&qpn).is_some_and(|known| Arc::ptr_eq(known, credits)) {
            self.known.remove(&qpn);
            self.last = None;
        }
    }
}

/// Spreads QP numbers, which the adapter hands out and nobody can choose, by one multiplication.
#[derive(Debug, Default)]
struct QpnHasher(u64);

impl Hasher for QpnHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        // 2^64 divided by the golden ratio.
        self.0 = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
