//! The rules in force.

use std::collections::HashMap;
use std::time::Duration;

use vrnic_packet::Nanos;

use crate::action::{Action, Crc};
use crate::entry::Entry;
use crate::rule::{Rule, RuleId};
use crate::subject::{Hit, Subject};

/// The most rules of the operator.
pub const MAX_RULES: usize = 64;
/// The most rules of a guest.
pub const MAX_GUEST_RULES: usize = 16;

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet arrives as it is.
    Pass,
    /// The packet is lost.
    Drop,
    /// The packet arrives later by this time.
    Delay(Duration),
    /// The packet arrives twice.
    Duplicate,
    /// The packet arrives after this number of later packets.
    Reorder(u32),
    /// A bit of the packet is flipped ([`crate::corrupt`]).
    Corrupt {
        /// The checks that the packet passes.
        crc: Crc,
        /// The random number that chooses the bit.
        random: u64,
    },
}

/// The reason for which a rule is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There are [`MAX_RULES`] rules already.
    #[error("there are {MAX_RULES} rules already; clear some first")]
    TooMany,
    /// There are [`MAX_GUEST_RULES`] rules of the guest already.
    #[error("there are {MAX_GUEST_RULES} rules already; clear some first")]
    TooManyOfGuest,
    /// A rule of a guest names another function.
    #[error("a rule of a guest is for its own function: leave function= out")]
    Foreign,
    /// Another rule sets the same state to another value.
    #[error("rule {0} contradicts it: both lower the MTU of the same port, to different sizes")]
    Contradicts(RuleId),
}

/// A rule with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The function whose guest has set it, if a guest has.
    pub guest: Option<&'a str>,
    /// The number of the rule, among the rules of the operator or of this guest.
    pub id: RuleId,
    /// The rule's action, filter and chance.
    pub rule: &'a Rule,
    /// Packets, or other things, that its filter has selected.
    pub seen: u64,
    /// The number of things that the rule has hit.
    pub hit: u64,
    /// The time at which it was added.
    pub armed: Nanos,
    /// The time of the last hit.
    pub last: Option<Nanos>,
    /// True if it hits no more: its time is over, or its number of hits reached.
    pub is_over: bool,
}

/// The rules in force.
#[derive(Debug, Default)]
pub struct Faults {
    pub(crate) rules: Vec<Entry>,
    /// The number of the operator's last rule.
    last: u32,
    /// The number of the last rule of each guest that has rules.
    last_of: HashMap<Box<str>, u32>,
}

impl Faults {
    /// Adds a rule of the operator, which is in force from now on, after those that exist.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn add(&mut self, rule: Rule, now: Nanos) -> Result<RuleId, Refused> {
        self.check(None, &rule, now)?;
        self.last = self.last.wrapping_add(1);
        let id = RuleId::new(self.last);
        self.rules.push(Entry::new(None, id, rule, now));
        Ok(id)
    }

    /// Adds a rule that the guest of a function sets for it, as [`Self::add`] does.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn add_of(
        &mut self,
        function: &str,
        mut rule: Rule,
        now: Nanos,
    ) -> Result<RuleId, Refused> {
        if rule.filter.function.as_deref().is_some_and(|name| name != function) {
            return Err(Refused::Foreign);
        }
        rule.filter.function = Some(function.to_owned());
        self.check(Some(function), &rule, now)?;
        let last = self.last_of.entry(function.into()).or_default();
        *last = last.wrapping_add(1);
        let id = RuleId::new(*last);
        self.rules.push(Entry::new(Some(function), id, rule, now));
        Ok(id)
    }

    /// Checks that a rule can be added to those of the operator, or of a guest.
    fn check(&self, guest: Option<&str>, rule: &Rule, now: Nanos) -> Result<(), Refused> {
        let rules = || self.rules.iter().filter(|entry| entry.guest.as_deref() == guest);
        match guest {
            None if rules().count() >= MAX_RULES => return Err(Refused::TooMany),
            Some(_) if rules().count() >= MAX_GUEST_RULES => return Err(Refused::TooManyOfGuest),
            _ => {}
        }
        let mut live = rules().filter(|entry| !entry.is_over(now));
        match live.find(|entry| contradict(&entry.rule, rule)) {
            Some(other) => Err(Refused::Contradicts(other.id)),
            None => Ok(()),
        }
    }

    /// Removes a rule of the operator, or of the guest of a function; returns whether it existed.
    pub fn remove(&mut self, guest: Option<&str>, id: RuleId) -> bool {
        let before = self.rules.len();
        self.rules.retain(|entry| entry.id != id || entry.guest.as_deref() != guest);
        self.rules.len() < before
    }

    /// Removes all rules, also the rules of guests. The next one has number 1 again, so a run can
    /// be repeated.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes all rules of the guest of a function. Its next one has number 1 again.
    pub fn clear_of(&mut self, function: &str) {
        self.rules.retain(|entry| entry.guest.as_deref() != Some(function));
        self.last_of.remove(function);
    }

    /// Returns whether there is no rule.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the places where rules look, as bits ([`Site::bit`]).
    pub(crate) fn sites(&self) -> u32 {
        self.rules.iter().fold(0, |bits, entry| bits | entry.rule.action.site().bit())
    }

    /// Returns the places where rules look that may select a function.
    pub(crate) fn sites_of(&self, function: &str) -> u32 {
        let selects = |entry: &&Entry| {
            let name = entry.rule.filter.function.as_deref();
            name.is_none_or(|name| name == function)
        };
        let rules = self.rules.iter().filter(selects);
        rules.fold(0, |bits, entry| bits | entry.rule.action.site().bit())
    }

    /// Returns the rules in the order in which they were added.
    pub fn list(&self, now: Nanos) -> impl Iterator<Item = Listed<'_>> {
        self.rules.iter().map(move |entry| Listed {
            guest: entry.guest.as_deref(),
            id: entry.id,
            rule: &entry.rule,
            seen: entry.seen,
            hit: entry.hit,
            armed: entry.armed,
            last: entry.last,
            is_over: entry.is_over(now),
        })
    }

    /// Decides on a thing. Each rule that selects it counts it, and the first that hits it decides.
    pub fn hit(&mut self, subject: &Subject<'_>, now: Nanos) -> Option<Hit> {
        let mut hit = None;
        for entry in &mut self.rules {
            let over = entry.is_over(now);
            let Some(random) = entry.look_at(subject, now) else { continue };
            if hit.is_none() && !over {
                entry.count_hit(now);
                hit = Some(Hit { action: entry.rule.action, random });
            }
        }
        hit
    }

    /// Decides on a packet, as [`Self::hit`] does.
    pub fn decide(&mut self, packet: &Subject<'_>, now: Nanos) -> Fate {
        let Some(Hit { action, random }) = self.hit(packet, now) else { return Fate::Pass };
        match action {
            Action::Drop => Fate::Drop,
            Action::Delay(time) => Fate::Delay(time),
            Action::Duplicate => Fate::Duplicate,
            Action::Reorder(packets) => Fate::Reorder(packets),
            Action::Corrupt(crc) => Fate::Corrupt { crc, random },
            _ => Fate::Pass,
        }
    }
}

/// Returns whether two rules set the same state to different values.
fn contradict(one: &Rule, other: &Rule) -> bool {
    let meet = match (&one.filter.function, &other.filter.function) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    match (one.action, other.action) {
        (Action::LowerMtu(one), Action::LowerMtu(other)) => meet && one != other,
        _ => false,
    }
}
