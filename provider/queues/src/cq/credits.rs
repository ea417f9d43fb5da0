// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Who feeds a completion queue, and the credits that its completions give back.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};

use abi::cq::Opcode;
use rustix::io::Errno;
use vrnic_abi as abi;

use crate::completion::Completion;
use crate::heap::Shared;
use crate::posted::Posted;
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
    pub(crate) shared: Option<Shared<SharedCredits>>,
    /// The send queue's requests.
    pub(crate) sends: Option<Posted>,
    /// Those of a receive queue of its own.
    pub(crate) recvs: Option<Posted>,
}

/// Whose completions a CQ gets from a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Halves {
    pub(crate) sends: bool,
    pub(crate) recvs: bool,
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

    /// The credits of a QP that takes receives from a shared queue, if there is one.
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

    /// Completes the next request of these queues of `qpn`, which the adapter does not any more.
    fn flush(&self, qpn: u32, halves: Halves) -> Option<Completion> {
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

/// A feeder, and which of its completions come here.
#[derive(Clone, Debug)]
struct Feeder {
    credits: Shared<Credits>,
    halves: Halves,
}

/// The queue pairs that feed a CQ, by number.
#[derive(Debug, Default)]
pub(super) struct Feeders {
    known: HashMap<u32, Feeder, BuildHasherDefault<QpnHasher>>,
    /// The one that fed last: most often it feeds again.
    last: Option<(u32, Feeder)>,
}

impl Feeders {
    #[inline]
    pub(super) fn find(&mut self, qpn: u32) -> Option<&Credits> {
        if !matches!(self.last, Some((last, _)) if last == qpn) {
            self.look_up(qpn);
        }
        self.last.as_ref().map(|(_, feeder)| &*feeder.credits)
    }

    #[cold]
    fn look_up(&mut self, qpn: u32) {
        self.last = self.known.get(&qpn).map(|feeder| (qpn, feeder.clone()));
    }

    /// The next request of any feeder that the adapter, which is dead, does not complete any more.
    pub(super) fn flush(&mut self) -> Option<Completion> {
        let next =
            |(qpn, Feeder { credits, halves }): (&u32, &Feeder)| credits.flush(*qpn, *halves);
        if let Some(completion) = self.last.as_ref().and_then(|(qpn, feeder)| next((qpn, feeder))) {
            return Some(completion);
        }
        let completion = self.known.iter().find_map(next)?;
        self.look_up(completion.qpn);
        Some(completion)
    }

    /// Adds a feeder, or more of what it brings.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn insert(
        &mut self,
        qpn: u32,
        credits: &Shared<Credits>,
        halves: Halves,
    ) -> Result<(), Errno> {
        self.known.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        let feeder = Feeder { credits: credits.clone(), halves };
        let known = self.known.entry(qpn).or_insert_with(|| feeder.clone());
        if known.credits.is_same(credits) {
            known.halves.sends |= halves.sends;
            known.halves.recvs |= halves.recvs;
        } else {
            *known = feeder;
        }
        self.last = None;
        Ok(())
    }

    pub(super) fn remove(&mut self, qpn: u32, credits: &Shared<Credits>) {
        if self.known.get(&qpn).is_some_and(|known| known.credits.is_same(credits)) {
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
