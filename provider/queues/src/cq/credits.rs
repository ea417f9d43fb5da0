// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The queue pairs that feed a completion queue, and the credits that completions give back.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};

use abi::cq::Opcode;
use vrnic_abi as abi;

use super::changes::{Change, Changes};
use crate::completion::Completion;
use crate::heap::Shared;
use crate::posted::Posted;

/// A number that no QP has, since QP numbers have 24 bits.
pub(super) const NO_QPN: u64 = 0xffff_ffff;

/// Marks the number of a feeder as the number of a shared receive queue; QP numbers have 24 bits.
pub(super) const SHARED: u32 = 1 << 31;

/// Returns the number of the feeder of an entry: the QP or, for an XRC target, which may be unknown
/// in this process, the shared receive queue.
#[inline]
pub(super) fn feeder(qpn: u32, srqn: u32) -> u32 {
    if srqn == 0 { qpn } else { srqn | SHARED }
}

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

/// A feeder, and the queues of it that complete here.
#[derive(Clone, Debug)]
struct Feeder {
    credits: Shared<Credits>,
    halves: Halves,
}

/// The queue pairs that feed a CQ, by number.
#[derive(Debug, Default)]
pub(super) struct Feeders {
    known: HashMap<u32, Feeder, BuildHasherDefault<QpnHasher>>,
    /// The feeder of the last entry. The next entry often has the same.
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

    /// Completes the next outstanding request of any feeder, because the dead adapter does not.
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

    /// Makes the changes that wait. Returns whether it has: if memory runs out, they still wait.
    #[cold]
    pub(super) fn follow(&mut self, changes: &Changes) -> bool {
        changes.make(|list| {
            let room = self.known.try_reserve(list.len()).is_ok();
            if room {
                self.last = None;
                list.drain(..).for_each(|change| self.make(change));
            }
            room
        })
    }

    /// Makes a change, for which there is room.
    fn make(&mut self, change: Change) {
        match change {
            Change::Add { number, credits, halves } => {
                let known = self.known.entry(number);
                let known = known.or_insert_with(|| Feeder { credits: credits.clone(), halves });
                if known.credits.is_same(&credits) {
                    known.halves.sends |= halves.sends;
                    known.halves.recvs |= halves.recvs;
                } else {
                    *known = Feeder { credits, halves };
                }
            }
            Change::Remove { number, credits } => {
                if self.known.get(&number).is_some_and(|known| known.credits.is_same(&credits)) {
                    self.known.remove(&number);
                }
            }
        }
    }
}

/// Hashes QP numbers by one multiplication. The adapter assigns them, so no attacker chooses them.
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
