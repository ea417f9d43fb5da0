//! A rule in force, with its counters.

use std::collections::HashMap;

use vrnic_packet::Nanos;
use vrnic_roce::wire::Qpn;

use crate::decision::{Stream, decide};
use crate::rule::{Filter, Rule, RuleId};
use crate::subject::Subject;

/// The maximum number of QPs whose packets a rule counts. It ignores the packets of further QPs.
pub const MAX_QPS: usize = 1 << 16;
/// The same for a rule of a guest.
pub const MAX_GUEST_QPS: usize = 1 << 12;

/// A rule in force.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The function whose guest has set it, if a guest has.
    pub(crate) guest: Option<Box<str>>,
    pub(crate) id: RuleId,
    pub(crate) rule: Rule,
    /// The time at which it was added.
    pub(crate) armed: Nanos,
    /// The time from which on it is in force.
    pub(crate) from: Nanos,
    /// The time at which it ends.
    pub(crate) until: Option<Nanos>,
    /// Things of each QP of each function.
    counts: HashMap<Box<str>, HashMap<Qpn, u64>>,
    /// The number of QPs in `counts`.
    qps: usize,
    /// The number of the state that each function was in last: see [`crate::state`].
    pub(crate) states: HashMap<Box<str>, u64>,
    pub(crate) seen: u64,
    pub(crate) hit: u64,
    /// The time of the last hit.
    pub(crate) last: Option<Nanos>,
}

impl Entry {
    pub(crate) fn new(guest: Option<&str>, id: RuleId, rule: Rule, now: Nanos) -> Self {
        let from = rule.after.map_or(now, |after| now.plus(after));
        let until = rule.lifetime.map(|lifetime| from.plus(lifetime));
        let (counts, states) = (HashMap::new(), HashMap::new());
        let (armed, qps, seen, hit, last) = (now, 0, 0, 0, None);
        let guest = guest.map(Box::from);
        Self { guest, id, rule, armed, from, until, counts, qps, states, seen, hit, last }
    }

    /// Returns whether the time of the rule is over, or its number of hits is reached.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        self.until.is_some_and(|until| until <= now)
            || self.rule.times.is_some_and(|times| self.hit >= times)
    }

    pub(crate) fn count_hit(&mut self, now: Nanos) {
        self.hit += 1;
        self.last = Some(now);
    }

    /// Counts a thing if the filter selects it. Returns a random number if the rule hits it.
    pub(crate) fn look_at(&mut self, subject: &Subject<'_>, now: Nanos) -> Option<u64> {
        if now < self.from || !self.selects(subject) {
            return None;
        }
        let count = self.count(subject)?;
        self.seen += 1;
        let stream = Stream { rule: self.id, function: subject.function, qp: subject.qp };
        decide(&self.rule, &stream, count)
    }

    /// Returns whether the filter selects a thing. The n-th is chosen later, among these.
    fn selects(&self, subject: &Subject<'_>) -> bool {
        let Filter { function, qp, opcode, psn, relaxed, number, .. } = &self.rule.filter;
        self.rule.action.site() == subject.site
            && function.as_deref().is_none_or(|function| function == subject.function)
            && qp.is_none_or(|qp| qp == subject.qp)
            && (opcode.is_none() || *opcode == subject.opcode)
            && (psn.is_none() || *psn == subject.psn)
            && relaxed.is_none_or(|relaxed| relaxed == subject.relaxed)
            && (number.is_none() || *number == subject.number)
    }

    /// Counts a thing of a QP, unless there are too many QPs.
    fn count(&mut self, subject: &Subject<'_>) -> Option<u64> {
        if !self.counts.contains_key(subject.function) {
            self.counts.insert(subject.function.into(), HashMap::new());
        }
        let qps = self.counts.get_mut(subject.function)?;
        if !qps.contains_key(&subject.qp) {
            if self.qps >= if self.guest.is_some() { MAX_GUEST_QPS } else { MAX_QPS } {
                return None;
            }
            self.qps += 1;
        }
        let count = qps.entry(subject.qp).or_default();
        *count += 1;
        Some(*count)
    }
}
