// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The completion queue: it takes entries, gives credits back to the queues that they belong to,
//! and asks for events.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `changes` | changes to the feeders that wait for the thread that polls |
//! | `consumer` | the consuming side of the ring |
//! | `credits` | the credits that completions give back |
//! | `feeders` | the queue pairs that feed a queue |
//! | `patience` | how long a program polls in vain |
//! | `resize` | changing the size of a queue |

mod changes;
mod consumer;
mod credits;
mod feeders;
mod patience;
mod resize;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::doorbell::ArmRequest;
use abi::uar::{ARM_NEXT, ARM_SOLICITED, CqState};
use abi::uverbs::CqResp;
use abi::{Qpn, Srqn};

use self::changes::Changes;
use self::consumer::{Consumer, is_behind, written};
pub use self::credits::{Credits, Halves, SharedCredits};
use self::feeders::SHARED;
use self::patience::{Patience, give_way};
use crate::completion::Completion;
use crate::doorbell::{CqDoorbell, Uar};
use crate::handover::{CqHandover, RingPlace};
use crate::heap::Shared;
use crate::layout::CqRing;
use crate::lock::{self, Guard, Sharing, SpinLock};
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
    /// What polling changes. A [`Series`] has this lock from its begin to its end, and nothing else
    /// than polling, resizing and handing over waits for that.
    consumer: SpinLock<Consumer>,
    /// The thread that has a series, by [`lock::thread`]; zero for none.
    serial: AtomicUsize,
    changes: Changes,
    arming: SpinLock<Arming>,
    door: CqDoorbell,
    /// Held while the queue changes its size.
    resizing: Mutex<()>,
    /// Set, under the lock of the consumer, when another poster consumes the queue.
    handed_over: AtomicBool,
}

/// What arming and purging use of a queue.
#[derive(Debug)]
struct Arming {
    /// The ring. It is that of the consumer, but for a moment while the queue changes its size.
    ring: Ring,
    /// The last arm request.
    request: ArmRequest,
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
        let patience = Patience::of(&door);
        let consumer = Consumer::new(ring.clone(), door.life.clone(), patience);
        let arming = Arming { ring, request: ArmRequest::default() };
        Ok(Self {
            consumer: SpinLock::shared_by(sharing, consumer),
            serial: AtomicUsize::new(0),
            changes: Changes::new(sharing),
            arming: SpinLock::shared_by(sharing, arming),
            door,
            resizing: Mutex::new(()),
            handed_over: AtomicBool::new(false),
        })
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
            let Some(completion) = consumer.poll(&self.changes) else { break };
            sink(taken, &completion);
            taken += 1;
        }
        if consumer.next != before {
            self.door.free(consumer.next);
        }
        let yields = taken == 0 && consumer.patience.is_over();
        drop(consumer);
        if yields {
            give_way();
        }
        taken
    }

    /// Gives the queue to another poster. From now on this library takes nothing from it, and
    /// stores nothing in its ring and its doorbell. When this is called again, it returns the same.
    /// Waits while the queue changes its size.
    pub fn hand_over(&self) -> CqHandover {
        let _not_resizing = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let consumer = self.consumer.lock();
        let arming = self.arming.lock();
        self.handed_over.store(true, Ordering::Release);
        let (door, next) = (&self.door, consumer.next);
        CqHandover {
            bell: door.bell(),
            ring: RingPlace::of(&consumer.ring, Place::Guest, door.offset(), next),
            arm: arming.request.word,
            holding: door.is_holding(),
        }
    }

    /// Returns whether another poster consumes the queue.
    #[inline]
    pub fn is_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Returns whether this thread has a series.
    fn is_in_series(&self) -> bool {
        // Only this thread stores its own number.
        self.serial.load(Ordering::Relaxed) == lock::thread()
    }

    /// Returns the state of the queue as the adapter has stored it, or `None` if the adapter is
    /// dead.
    pub fn state(&self) -> Option<CqState> {
        self.door.state().filter(|_| !self.door.life.has_ended())
    }

    /// Returns whether there is nothing to take: the adapter has written no entry, and is alive.
    pub fn is_idle(&self) -> bool {
        let arming = self.arming.lock();
        written(&arming.ring, self.door.freed()).is_none() && !self.door.life.has_ended()
    }

    /// Begins to take completions one by one, if there are any. Other threads wait until the series
    /// ends before they poll.
    #[inline]
    pub fn series(&self) -> Option<(Series<'_>, Completion)> {
        let mut consumer = self.consumer.lock();
        if self.is_handed_over() {
            return None;
        }
        let first = consumer.next;
        let Some(completion) = consumer.poll(&self.changes) else {
            if consumer.next != first {
                self.door.free(consumer.next);
            }
            let yields = consumer.patience.is_over();
            drop(consumer);
            if yields {
                give_way();
            }
            return None;
        };
        let seen = self.door.seen();
        let limit = match is_behind(seen, first) {
            // The poll took no entry: the adapter is dead, and no event comes any more.
            _ if consumer.next == first => first.wrapping_sub(1),
            true => seen,
            false => first,
        };
        self.serial.store(lock::thread(), Ordering::Relaxed);
        Some((Series { queue: self, consumer, limit }, completion))
    }

    /// Asks for an event of the next completion that cannot be polled yet. Earlier requests since
    /// the last event stay. Has no effect if another poster consumes the queue.
    #[inline]
    pub fn arm(&self, notify: Notify) {
        let mut arming = self.arming.lock();
        if self.is_handed_over() {
            return;
        }
        let kind = match notify {
            Notify::Any => ARM_NEXT,
            Notify::Solicited => ARM_SOLICITED,
        };
        let end = consumer::end(&arming.ring, self.door.freed());
        // A thread that polls may have freed entries meanwhile, in whose places there are others.
        let freed = self.door.freed();
        let end = if is_behind(freed, end) { freed } else { end };
        arming.request = arming.request.then(kind, end, self.door.taken());
        self.door.arm(arming.request);
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
        self.remove_entries(number);
        self.changes.add(number, credits, halves)?;
        self.make_changes();
        Ok(())
    }

    /// Removes a QP, unless its number belongs to another QP by now.
    pub(crate) fn detach(&self, qpn: Qpn, credits: &Shared<Credits>) {
        self.remove(qpn.get(), credits);
    }

    fn remove(&self, number: u32, credits: &Shared<Credits>) {
        self.changes.remove(number, credits);
        self.make_changes();
    }

    /// Makes the changes that wait, if no thread is polling.
    fn make_changes(&self) {
        if let Some(mut consumer) = self.consumer.try_lock() {
            consumer.feeders.follow(&self.changes);
        }
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
        self.remove(srqn.get() | SHARED, credits);
    }

    /// Drops all completions of a QP that are in the ring. On return no other thread is about to
    /// count one of them.
    pub(crate) fn purge(&self, qpn: Qpn) {
        // This thread may have a series, and is not taking an entry then.
        let _steps = (!self.is_in_series()).then(|| self.consumer.lock());
        self.remove_entries(qpn.get());
    }

    /// Removes the entries of a feeder, which the adapter writes no more, from the ring.
    fn remove_entries(&self, number: u32) {
        let arming = self.arming.lock();
        if !self.is_handed_over() {
            consumer::purge(&arming.ring, number, || self.door.freed());
        }
    }
}

/// Completions that are taken one by one; their entries are freed on drop. Between them the program
/// may use the queue in any way but to poll it.
///
/// A series that begins before the index at which the queue was armed ends there, because the
/// completions after it have an event of their own. So a program that arms and takes one series
/// for each event, as `ibv_rc_pingpong -e -t` does, always finds a completion.
#[derive(Debug)]
pub struct Series<'a> {
    queue: &'a CompletionQueue,
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
            match self.consumer.step(&self.queue.changes) {
                Some(None) => {}
                Some(completion) => return completion,
                None if self.consumer.life.has_ended() => {
                    return self.consumer.flush(&self.queue.changes);
                }
                None => return None,
            }
        }
        None
    }
}

impl Drop for Series<'_> {
    #[inline]
    fn drop(&mut self) {
        self.queue.door.free(self.consumer.next);
        self.queue.serial.store(0, Ordering::Relaxed);
    }
}
