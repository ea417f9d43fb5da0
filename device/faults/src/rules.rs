//! The rules in force, shared by the threads of a daemon.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use vrnic_packet::Nanos;

use crate::action::Site;
use crate::rule::{Rule, RuleId};
use crate::set::{Fate, Faults, Listed, Refused};
use crate::state::State;
use crate::subject::{Hit, Subject};

/// The rules of all functions of a daemon. Where no rule looks, a thread reads one word and does
/// nothing else.
#[derive(Debug, Default)]
pub struct Rules {
    /// The places where rules look, as bits.
    sites: AtomicU32,
    set: Mutex<Faults>,
}

impl Rules {
    /// Returns whether a rule looks at this place.
    #[inline]
    #[must_use]
    pub fn look_at(&self, site: Site) -> bool {
        self.sites.load(Ordering::Relaxed) & site.bit() != 0
    }

    /// Returns whether there is any rule.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.sites.load(Ordering::Relaxed) != 0
    }

    /// Changes the rules, or reads them.
    fn change<R>(&self, change: impl FnOnce(&mut Faults) -> R) -> R {
        let mut set = self.set.lock();
        let result = change(&mut set);
        self.sites.store(set.sites(), Ordering::Relaxed);
        result
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn add(&self, rule: Rule, now: Nanos) -> Result<RuleId, Refused> {
        self.change(|set| set.add(rule, now))
    }

    /// Removes a rule; returns whether it existed.
    pub fn remove(&self, id: RuleId) -> bool {
        self.change(|set| set.remove(id))
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.change(Faults::clear);
    }

    /// Passes each rule to a function, in order, and returns the results.
    pub fn list<R>(&self, now: Nanos, each: impl FnMut(Listed<'_>) -> R) -> Vec<R> {
        self.set.lock().list(now).map(each).collect()
    }

    /// Decides on a thing.
    #[cold]
    pub fn hit(&self, subject: &Subject<'_>, now: Nanos) -> Option<Hit> {
        self.set.lock().hit(subject, now)
    }

    /// Decides on a packet.
    pub fn decide(&self, packet: &Subject<'_>, now: Nanos) -> Fate {
        self.set.lock().decide(packet, now)
    }

    /// Returns the state that rules give a function.
    #[cold]
    pub fn state(&self, function: &str, now: Nanos) -> State {
        self.set.lock().state(function, now)
    }
}
