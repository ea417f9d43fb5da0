//! The rules in force, shared by the threads of a daemon.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use vrnic_packet::Nanos;

use crate::action::Site;
use crate::concern::Concern;
use crate::rule::{Rule, RuleId};
use crate::set::{Fate, Faults, Listed, Refused};
use crate::state::State;
use crate::subject::{Hit, Subject};

/// An observer of changes.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Is called after each change, by the thread that makes it.
    fn changed(&self);
}

/// The rules of all functions of a daemon. Where no rule looks, a thread reads one word and does
/// nothing else.
#[derive(Debug, Default)]
pub struct Rules {
    /// The places where rules look, as bits.
    sites: AtomicU32,
    shared: Mutex<Shared>,
    observer: OnceLock<Box<dyn Observer>>,
}

#[derive(Debug, Default)]
struct Shared {
    set: Faults,
    /// The places where rules look, for each function.
    concerns: Vec<Weak<Concern>>,
}

impl Rules {
    /// Sets the observer. Further calls have no effect.
    pub fn attach(&self, observer: Box<dyn Observer>) {
        let _set_before = self.observer.set(observer);
    }

    /// Returns what a function knows of the rules, from now on.
    #[must_use]
    pub fn concern(&self, function: &str) -> Arc<Concern> {
        let mut shared = self.shared.lock();
        let concern = Arc::new(Concern::new(function));
        concern.set_rules(shared.set.sites_of(function));
        shared.concerns.retain(|known| known.strong_count() > 0);
        shared.concerns.push(Arc::downgrade(&concern));
        concern
    }

    /// Sets whether the trace of a function looks at its work.
    pub fn trace(&self, concern: &Concern, traced: bool) {
        let _no_other_change = self.shared.lock();
        concern.set_traced(traced);
    }

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

    /// Changes the rules.
    fn change<R>(&self, change: impl FnOnce(&mut Faults) -> R) -> R {
        let mut shared = self.shared.lock();
        let Shared { set, concerns } = &mut *shared;
        let result = change(set);
        self.sites.store(set.sites(), Ordering::Relaxed);
        for concern in concerns.iter().filter_map(Weak::upgrade) {
            concern.set_rules(set.sites_of(concern.function()));
        }
        drop(shared);
        if let Some(observer) = self.observer.get() {
            observer.changed();
        }
        result
    }

    /// Adds a rule of the operator.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn add(&self, rule: Rule, now: Nanos) -> Result<RuleId, Refused> {
        self.change(|set| set.add(rule, now))
    }

    /// Adds a rule that the guest of a function sets for it.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn add_of(&self, function: &str, rule: Rule, now: Nanos) -> Result<RuleId, Refused> {
        self.change(|set| set.add_of(function, rule, now))
    }

    /// Removes a rule of the operator; returns whether it existed.
    pub fn remove(&self, id: RuleId) -> bool {
        self.change(|set| set.remove(None, id))
    }

    /// Removes a rule of the guest of a function; returns whether it existed.
    pub fn remove_of(&self, function: &str, id: RuleId) -> bool {
        self.change(|set| set.remove(Some(function), id))
    }

    /// Removes all rules, also the rules of guests.
    pub fn clear(&self) {
        self.change(Faults::clear);
    }

    /// Removes all rules of the guest of a function.
    pub fn clear_of(&self, function: &str) {
        if self.any() {
            self.change(|set| set.clear_of(function));
        }
    }

    /// Passes each rule to a function, in order, and returns the results.
    pub fn list<R>(&self, now: Nanos, each: impl FnMut(Listed<'_>) -> R) -> Vec<R> {
        self.shared.lock().set.list(now).map(each).collect()
    }

    /// Decides on a thing.
    #[cold]
    pub fn hit(&self, subject: &Subject<'_>, now: Nanos) -> Option<Hit> {
        self.shared.lock().set.hit(subject, now)
    }

    /// Decides on a packet.
    pub fn decide(&self, packet: &Subject<'_>, now: Nanos) -> Fate {
        self.shared.lock().set.decide(packet, now)
    }

    /// Returns the state that rules give a function.
    #[cold]
    pub fn state(&self, function: &str, now: Nanos) -> State {
        self.shared.lock().set.state(function, now)
    }
}
