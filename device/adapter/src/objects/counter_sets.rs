//! Sets of counters, each for the work of some QPs.
//!
//! The counters of the function contain all work, for the operator. What the guest reads as the
//! counters of the function does not contain the work that sets have counted, as its kernel adds
//! the counters of all sets, past ones included.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use vrnic_abi::{CountersId, Qpn};

use crate::objects::id_table::IdTable;
use crate::objects::{hold, release};
use crate::stats::{Counters, Values};

/// Maximum number of sets.
const MAX_SETS: u32 = 1024;

/// A set of counters.
#[derive(Debug)]
pub struct CounterSet {
    /// The number of the set.
    pub id: CountersId,
    /// The number of QPs whose work it counts.
    pub users: AtomicU32,
    /// What the set has counted.
    pub counters: Counters,
}

/// The QPs whose work sets count.
#[derive(Debug, Default)]
pub(crate) struct Counted(Mutex<BTreeMap<Qpn, Arc<CounterSet>>>);

impl Counted {
    /// Returns the set of a QP.
    #[must_use]
    pub(crate) fn get(&self, qpn: Qpn) -> Option<Arc<CounterSet>> {
        self.0.lock().get(&qpn).cloned()
    }

    /// Replaces the set of a QP, whose flag says whether there is one. A turn of the QP that has
    /// begun still counts for the previous one.
    pub(crate) fn set(&self, qpn: Qpn, flag: &AtomicBool, new: Option<Arc<CounterSet>>) {
        let mut sets = self.0.lock();
        flag.store(new.is_some(), Ordering::Relaxed);
        new.iter().for_each(|set| hold(&set.users));
        let old = match new {
            Some(set) => sets.insert(qpn, set),
            None => sets.remove(&qpn),
        };
        old.iter().for_each(|set| release(&set.users));
    }

    /// Forgets all QPs.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// The sets of a function.
#[derive(Debug)]
pub struct CounterSets {
    sets: IdTable<CountersId, CounterSet>,
    /// The sums of the sets that have been destroyed.
    past: Mutex<Values>,
}

impl Default for CounterSets {
    fn default() -> Self {
        Self { sets: IdTable::new(1, MAX_SETS), past: Mutex::new(Values::default()) }
    }
}

impl CounterSets {
    /// Adds a set, unless there are too many.
    #[must_use]
    pub fn add(&self) -> Option<Arc<CounterSet>> {
        let make = |id| CounterSet { id, users: AtomicU32::new(0), counters: Counters::new(1) };
        self.sets.insert(|id| Ok::<_, std::convert::Infallible>(make(id))).ok().flatten()
    }

    /// Returns the set with this number.
    #[must_use]
    pub fn get(&self, id: CountersId) -> Option<Arc<CounterSet>> {
        self.sets.get(id)
    }

    /// Removes a set, which counts the work of no QP.
    pub fn remove(&self, id: CountersId) {
        if let Some(set) = self.sets.remove(id) {
            self.past.lock().add(&set.counters.values());
        }
    }

    /// Returns what all sets have counted, past ones included.
    #[must_use]
    pub fn sum(&self) -> Values {
        let mut sum = *self.past.lock();
        self.sets.each(|set| sum.add(&set.counters.values()));
        sum
    }

    /// Removes all sets, and forgets what they have counted.
    pub fn clear(&self) {
        self.sets.drain();
        *self.past.lock() = Values::default();
    }
}
