// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The completion queue: entries out, credits back to the queues they belong to, and arming.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `consumer` | the consuming side of the ring |
//! | `credits` | the queue pairs that feed a queue, and the credits that completions give back |
//! | `resize` | a queue goes over to another ring |

mod consumer;
mod credits;
mod resize;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Mutex;

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::uar::{ARM_COUNT_SHIFT, ARM_NEXT, ARM_SOLICITED};
use abi::uverbs::CqResp;

use self::consumer::Consumer;
pub use self::credits::Credits;
pub(crate) use self::credits::Halves;
use self::credits::SHARED;
use crate::completion::Completion;
use crate::doorbell::{CqDoorbell, Uar};
use crate::heap::Shared;
use crate::layout::CqRing;
use crate::lock::{Guard, Sharing, SpinLock};
use crate::ring::Ring;

/// Which event a consumer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next completion.
    Any,
    /// The next solicited completion or error.
    Solicited,
}

/// A completion queue, for any number of threads.
#[derive(Debug)]
pub struct CompletionQueue {
    consumer: SpinLock<Consumer>,
    /// Held while the queue changes its size.
    resizing: Mutex<()>,
}

impl CompletionQueue {
    /// The queue on `ring`, as the kernel created it, for those that `sharing` tells.
    ///
    /// # Errors
    /// `EIO` when its answer makes no sense; `ENOMEM`.
    pub fn new(
        ring: CqRing,
        response: &CqResp,
        uar: Shared<Uar>,
        sharing: Sharing,
    ) -> Result<Self, Errno> {
        let ring = Ring::new(ring.memory, ring.shape)?;
        let door = CqDoorbell::new(uar, response.slot.get())?;
        let consumer = SpinLock::shared_by(sharing, Consumer::new(ring, door));
        Ok(Self { consumer, resizing: Mutex::new(()) })
    }

    /// Takes up to `limit` completions and hands them to `sink` with their number; returns how
    /// many there were.
    #[inline]
    pub fn poll(&self, limit: usize, mut sink: impl FnMut(usize, &Completion)) -> usize {
        let mut consumer = self.consumer.lock();
        let before = consumer.next;
        let mut taken = 0;
        while taken < limit {
            let Some(completion) = consumer.poll() else { break };
            sink(taken, &completion);
            taken += 1;
        }
        if consumer.next != before {
            consumer.door.free(consumer.next, consumer.arm);
        }
        taken
    }

    /// Begins to take completions one by one, if there are any; until the series ends, the queue is locked.
    #[inline]
    pub fn series(&self) -> Option<(Series<'_>, Completion)> {
        let mut consumer = self.consumer.lock();
        let first = consumer.next;
        let Some(completion) = consumer.poll() else {
            if consumer.next != first {
                consumer.door.free(consumer.next, consumer.arm);
            }
            return None;
        };
        // CAST: the sign of the distance tells which comes first.
        let armed_behind = consumer.seen.wrapping_sub(first) as i32 > 0;
        let limit = match armed_behind {
            // It took no entry: the adapter is dead, and no event comes any more.
            _ if consumer.next == first => first.wrapping_sub(1),
            true => consumer.seen,
            false => first,
        };
        Some((Series { consumer, limit }, completion))
    }

    /// Asks for an event of a completion that cannot be polled yet.
    #[inline]
    pub fn arm(&self, notify: Notify) {
        let mut consumer = self.consumer.lock();
        let count = (consumer.arm >> ARM_COUNT_SHIFT).wrapping_add(1);
        let kind = match notify {
            Notify::Any => ARM_NEXT,
            Notify::Solicited => ARM_SOLICITED,
        };
        consumer.arm = count << ARM_COUNT_SHIFT | kind;
        let seen = consumer.end();
        consumer.seen = seen;
        consumer.door.arm(consumer.next, seen, consumer.arm);
    }

    /// Lets a QP feed this queue.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn attach(
        &self,
        qpn: u32,
        credits: &Shared<Credits>,
        halves: Halves,
    ) -> Result<(), Errno> {
        let mut consumer = self.consumer.lock();
        consumer.purge(qpn);
        consumer.feeders.insert(qpn, credits, halves)
    }

    /// Forgets a QP, unless its number belongs to another one by now.
    pub(crate) fn detach(&self, qpn: u32, credits: &Shared<Credits>) {
        self.consumer.lock().feeders.remove(qpn, credits);
    }

    /// Lets a shared receive queue of XRC feed this queue, until [`Self::detach_shared`].
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn attach_shared(&self, srqn: u32, credits: &Shared<Credits>) -> Result<(), Errno> {
        self.attach(srqn | SHARED, credits, Halves::default())
    }

    /// Forgets a shared receive queue.
    pub(crate) fn detach_shared(&self, srqn: u32, credits: &Shared<Credits>) {
        self.detach(srqn | SHARED, credits);
    }

    /// Drops all completions of a QP that are in the ring.
    pub(crate) fn purge(&self, qpn: u32) {
        self.consumer.lock().purge(qpn);
    }
}

/// Completions being taken one by one; their entries are freed on drop.
///
/// A series that begins before the index at which the queue was armed ends there: what comes behind has an event of its
/// own. So a program that for each event arms and takes one series, as `ibv_rc_pingpong -e -t` does, always finds a completion.
#[derive(Debug)]
pub struct Series<'a> {
    consumer: Guard<'a, Consumer>,
    /// Where it ends. That of its first entry, which has been taken, does not come again.
    limit: u32,
}

impl Series<'_> {
    /// The next one.
    #[inline]
    pub fn take(&mut self) -> Option<Completion> {
        while self.consumer.next != self.limit {
            match self.consumer.step() {
                Some(None) => {}
                Some(completion) => return completion,
                None if self.consumer.door.life.has_ended() => return self.consumer.flush(),
                None => return None,
            }
        }
        None
    }
}

impl Drop for Series<'_> {
    #[inline]
    fn drop(&mut self) {
        self.consumer.door.free(self.consumer.next, self.consumer.arm);
    }
}
