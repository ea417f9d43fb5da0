// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Changes to the feeders of a completion queue that wait for the thread that polls.
//!
//! That thread has the queue's lock for a whole series of completions, between which its program
//! does what it likes, such as to create or to destroy a queue pair, or to wait for a thread that
//! does. So nobody waits for the lock to add or remove a feeder. The change is put down here, and
//! whoever has the lock makes it before the next entry is taken.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::credits::{Credits, Halves};
use crate::heap::Shared;
use crate::lock::{Sharing, SpinLock};

/// A change to the feeders.
#[derive(Debug)]
pub(super) enum Change {
    /// A feeder, or more queues of a known one, is there.
    Add { number: u32, credits: Shared<Credits>, halves: Halves },
    /// A feeder has gone, unless its number belongs to another one by now.
    Remove { number: u32, credits: Shared<Credits> },
}

/// The changes that wait.
#[derive(Debug)]
pub(super) struct Changes {
    any: AtomicBool,
    waiting: SpinLock<Waiting>,
}

/// The changes, in order.
#[derive(Debug, Default)]
struct Waiting {
    list: Vec<Change>,
    /// The additions so far that no removal has followed.
    members: usize,
}

impl Changes {
    /// Returns an empty list, for the threads in `sharing`.
    pub(super) fn new(sharing: Sharing) -> Self {
        let waiting = SpinLock::shared_by(sharing, Waiting::default());
        Self { any: AtomicBool::new(false), waiting }
    }

    /// Returns whether a change waits.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Puts down a feeder.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn add(
        &self,
        number: u32,
        credits: &Shared<Credits>,
        halves: Halves,
    ) -> Result<(), Errno> {
        let mut waiting = self.waiting.lock();
        // Room for this one, and for the removal of each, which cannot fail.
        let room = waiting.members + 2;
        waiting.list.try_reserve(room).map_err(|_| Errno::NOMEM)?;
        waiting.members += 1;
        waiting.list.push(Change::Add { number, credits: credits.clone(), halves });
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Puts down that a feeder has gone.
    pub(super) fn remove(&self, number: u32, credits: &Shared<Credits>) {
        let mut waiting = self.waiting.lock();
        waiting.members = waiting.members.saturating_sub(1);
        // There is room for the removal of all that was added.
        if waiting.list.try_reserve(1).is_ok() {
            waiting.list.push(Change::Remove { number, credits: credits.clone() });
            self.any.store(true, Ordering::Release);
        }
    }

    /// Gives the list to `make`, which makes all of the changes, or none if memory runs out.
    /// Returns whether it has.
    pub(super) fn make(&self, make: impl FnOnce(&mut Vec<Change>) -> bool) -> bool {
        let mut waiting = self.waiting.lock();
        let made = make(&mut waiting.list);
        if made {
            self.any.store(false, Ordering::Release);
        }
        made
    }
}
