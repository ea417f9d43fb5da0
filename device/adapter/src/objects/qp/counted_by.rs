//! The set of counters that counts the work of a QP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::objects::counter_sets::CounterSet;
use crate::objects::{hold, release};

/// A set of counters, or none.
#[derive(Debug, Default)]
pub struct CountedBy {
    /// True if there is a set. Each turn of the QP reads this.
    any: AtomicBool,
    set: Mutex<Option<Arc<CounterSet>>>,
}

impl CountedBy {
    /// Returns the set.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<Arc<CounterSet>> {
        if self.any.load(Ordering::Relaxed) { self.set.lock().clone() } else { None }
    }

    /// Replaces the set. A turn of the QP that has begun still counts for the previous one.
    pub fn set(&self, new: Option<Arc<CounterSet>>) {
        let mut set = self.set.lock();
        new.iter().for_each(|set| hold(&set.users));
        self.any.store(new.is_some(), Ordering::Relaxed);
        if let Some(old) = std::mem::replace(&mut *set, new) {
            release(&old.users);
        }
    }
}
