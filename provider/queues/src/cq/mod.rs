// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The completion queue: it takes entries, gives credits back to the queues that they belong to,
//! and asks for events.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `consumer` | the consuming side of the ring |
//! | `credits` | the queue pairs that feed a queue, and the credits that completions give back |
//! | `resize` | changing the size of a queue |

mod consumer;
mod credits;
mod resize;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::uar::{ARM_NEXT, ARM_SOLICITED, CqState};
use abi::uverbs::CqResp;
use abi::{Qpn, Srqn};

use self::consumer::Consumer;
use self::credits::SHARED;
pub use self::credits::{Credits, Halves, SharedCredits};
use crate::completion::Completion;
use crate::doorbell::{CqDoorbell, Uar};
use crate::handover::{CqHandover, RingPlace};
use crate::heap::Shared;
use crate::layout::CqRing;
use crate::lock::{Guard, Sharing, SpinLock};
use crate::ring::Ring;
use crate::send::Place;

/// The event that a consumer asks for.
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
    /// Set, under the lock, when another poster consumes the queue.
    handed_over: AtomicBool,
}

impl CompletionQueue {
    /// Returns the queue on `ring`, as the kernel created it, for the threads in `sharing`.
    ///
    /// # Errors
    /// `EIO` if the kernel's answer is invalid; `ENOMEM`.
    pub fn new(
        ring: CqRing,
        response: &CqResp,
        uar: Shared<Uar>,
        sharing: Sharing,
    ) -> Result<Self, Errno> {
        let door = CqDoorbell::new(uar, response.slot)?.holding(ring.holding.is_some());
        let ring = Ring::new(ring.memory, ring.shape)?;
        let consumer = SpinLock::shared_by(sharing, Consumer::new(ring, door));
        Ok(Self { consumer, resizing: Mutex::new(()), handed_over: AtomicBool::new(false) })
    }

    /// Takes up to `limit` completions and passes each to `sink` with its position; returns their
    /// number.
    #[inline]
    pub fn poll(&self, limit: usize, mut sink: impl FnMut(usize, &Completion)) -> usize {
        let mut consumer = self.consumer.lock();
        let limit = if self.is_handed_over() { 0 } else { limit };
        let before = consumer.next;
        let mut taken = 0;
        while taken < limit {
            let Some(completion) = consumer.poll() else { break };
            sink(taken, &completion);
            taken += 1;
        }
        if consumer.next != before {
            consumer.door.free(consumer.next, consumer.armed.word);
        }
        taken
    }

    /// Gives the queue to another poster. From now on this library takes nothing from it, and
    /// stores nothing in its ring and its doorbell. When this is called again, it returns the same.
    /// Waits while the queue changes its size.
    pub fn hand_over(&self) -> CqHandover {
        let _not_resizing = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let consumer = self.consumer.lock();
        self.handed_over.store(true, Ordering::Release);
        let (door, next) = (&consumer.door, consumer.next);
        CqHandover {
            bell: door.bell(),
            ring: RingPlace::of(&consumer.ring, Place::Guest, door.offset(), next),
            arm: consumer.armed.word,
            holding: door.is_holding(),
        }
    }

    /// Returns whether another poster consumes the queue.
    #[inline]
    pub fn is_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Returns the state of the queue as the adapter has stored it, or `None` if the adapter is
    /// dead.
    pub fn state(&self) -> Option<CqState> {
        let consumer = self.consumer.lock();
        consumer.door.state().filter(|_| !consumer.door.life.has_ended())
    }

    /// Returns whether there is nothing to take: the adapter has written no entry, and is alive.
    pub fn is_idle(&self) -> bool {
        let consumer = self.consumer.lock();
        consumer.valid(consumer.next).is_none() && !consumer.door.life.has_ended()
    }

    /// Begins to take completions one by one, if there are any. The queue is locked until the
    /// series ends.
    #[inline]
    pub fn series(&self) -> Option<(Series<'_>, Completion)> {
        let mut consumer = self.consumer.lock();
        if self.is_handed_over() {
            return None;
        }
        let first = consumer.next;
        let Some(completion) = consumer.poll() else {
            if consumer.next != first {
                consumer.door.free(consumer.next, consumer.armed.word);
            }
            return None;
        };
        // CAST: the sign of the distance tells which comes first.
        let armed_behind = consumer.armed.seen.wrapping_sub(first) as i32 > 0;
        let limit = match armed_behind {
            // It took no entry: the adapter is dead, and no event comes any more.
            _ if consumer.next == first => first.wrapping_sub(1),
            true => consumer.armed.seen,
            false => first,
        };
        Some((Series { consumer, limit }, completion))
    }

    /// Asks for an event of the next completion that cannot be polled yet. Earlier requests since
    /// the last event stay. Has no effect if another poster consumes the queue.
    #[inline]
    pub fn arm(&self, notify: Notify) {
        let mut consumer = self.consumer.lock();
        if self.is_handed_over() {
            return;
        }
        let kind = match notify {
            Notify::Any => ARM_NEXT,
            Notify::Solicited => ARM_SOLICITED,
        };
        consumer.armed = consumer.armed.then(kind, consumer.end(), consumer.door.taken());
        consumer.door.arm(consumer.next, consumer.armed);
    }

    /// Adds a QP whose completions this queue gets.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn attach(
        &self,
        qpn: Qpn,
        credits: &Shared<Credits>,
        halves: Halves,
    ) -> Result<(), Errno> {
        self.add(qpn.get(), credits, halves)
    }

    fn add(&self, number: u32, credits: &Shared<Credits>, halves: Halves) -> Result<(), Errno> {
        let mut consumer = self.consumer.lock();
        if !self.is_handed_over() {
            consumer.purge(number);
        }
        consumer.feeders.insert(number, credits, halves)
    }

    /// Removes a QP, unless its number belongs to another QP by now.
    pub(crate) fn detach(&self, qpn: Qpn, credits: &Shared<Credits>) {
        self.consumer.lock().feeders.remove(qpn.get(), credits);
    }

    /// Adds a shared receive queue of XRC whose completions this queue gets.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn attach_shared(&self, srqn: Srqn, credits: &Shared<Credits>) -> Result<(), Errno> {
        self.add(srqn.get() | SHARED, credits, Halves::default())
    }

    /// Removes a shared receive queue.
    pub(crate) fn detach_shared(&self, srqn: Srqn, credits: &Shared<Credits>) {
        self.consumer.lock().feeders.remove(srqn.get() | SHARED, credits);
    }

    /// Drops all completions of a QP that are in the ring.
    pub(crate) fn purge(&self, qpn: Qpn) {
        let mut consumer = self.consumer.lock();
        if !self.is_handed_over() {
            consumer.purge(qpn.get());
        }
    }
}

/// Completions that are taken one by one; their entries are freed on drop.
///
/// A series that begins before the index at which the queue was armed ends there, because the
/// completions behind it have an event of their own. So a program that arms and takes one series
/// for each event, as `ibv_rc_pingpong -e -t` does, always finds a completion.
#[derive(Debug)]
pub struct Series<'a> {
    consumer: Guard<'a, Consumer>,
    /// The index at which the series ends. The index of its first entry means no end, because that
    /// entry has been taken.
    limit: u32,
}

impl Series<'_> {
    /// Takes the next completion.
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
        self.consumer.door.free(self.consumer.next, self.consumer.armed.word);
    }
}
