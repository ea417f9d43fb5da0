// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The queue pairs that feed a completion queue.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::changes::{Change, Changes};
use super::credits::{Credits, Halves};
use crate::completion::Completion;
use crate::heap::Shared;

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
