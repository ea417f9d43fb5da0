//! The rules in force, with counters.

use std::collections::HashMap;
use std::time::Duration;

use vrnic_packet::Nanos;
use vrnic_roce::Psn;
use vrnic_roce::wire::Qpn;

use crate::decision::{Stream, decide};
use crate::opcode::Opcode;
use crate::rule::{Action, Crc, Filter, Rule, RuleId};

/// The most rules.
pub const RULES: usize = 64;
/// The maximum number of QPs whose packets a rule counts. It ignores the packets of further QPs.
pub const QPS: usize = 1 << 16;

/// A packet, as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The name of the function that sends it.
    pub function: &'a str,
    /// The QP. The caller decides whether it is the sending one or the receiving one; it must be
    /// the same for all packets of a connection.
    pub qp: Qpn,
    /// The opcode.
    pub opcode: Opcode,
    /// The sequence number of a packet of RoCE.
    pub psn: Option<Psn>,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives as it is.
    Pass,
    /// It is lost.
    Drop,
    /// It arrives later by this time.
    Delay(Duration),
    /// It arrives twice.
    Duplicate,
    /// It arrives behind this number of later packets.
    Reorder(u32),
    /// [`crate::corrupt`] changes it.
    Corrupt {
        /// The checks that the packet passes.
        crc: Crc,
        /// The random number that chooses the bit.
        random: u64,
    },
}

/// There are [`RULES`] rules already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {RULES} rules already; clear some first")]
pub struct TooMany;

/// A rule with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Its number.
    pub id: RuleId,
    /// The rule.
    pub rule: &'a Rule,
    /// Packets that its filter has selected.
    pub seen: u64,
    /// Packets that it has hit.
    pub hit: u64,
    /// True if it hits no more packets: its time is over, or its number of hits reached.
    pub is_over: bool,
}

#[derive(Debug)]
struct Entry {
    id: RuleId,
    rule: Rule,
    /// The time at which the rule ends.
    until: Option<Nanos>,
    /// Packets of each QP of each function.
    counts: HashMap<Box<str>, HashMap<Qpn, u64>>,
    /// The number of QPs in `counts`.
    qps: usize,
    seen: u64,
    hit: u64,
}

/// The rules in force.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Vec<Entry>,
    last: u32,
}

impl Faults {
    /// Adds a rule, which is in force from now on, behind those that exist.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn add(&mut self, rule: Rule, now: Nanos) -> Result<RuleId, TooMany> {
        if self.rules.len() >= RULES {
            return Err(TooMany);
        }
        self.last = self.last.wrapping_add(1);
        let (id, until) =
            (RuleId::new(self.last), rule.lifetime.map(|lifetime| now.plus(lifetime)));
        let counts = HashMap::new();
        self.rules.push(Entry { id, rule, until, counts, qps: 0, seen: 0, hit: 0 });
        Ok(id)
    }

    /// Removes a rule; returns whether it existed.
    pub fn remove(&mut self, id: RuleId) -> bool {
        let before = self.rules.len();
        self.rules.retain(|entry| entry.id != id);
        self.rules.len() < before
    }

    /// Removes all rules. The next one has number 1 again, so a run can be repeated.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns whether there is no rule, so that packets need not be looked at.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the rules in the order in which they were added.
    pub fn list(&self, now: Nanos) -> impl Iterator<Item = Listed<'_>> {
        self.rules.iter().map(move |entry| Listed {
            id: entry.id,
            rule: &entry.rule,
            seen: entry.seen,
            hit: entry.hit,
            is_over: entry.is_over(now),
        })
    }

    /// Decides on a packet. Each rule that selects it counts it, and the first that hits it
    /// decides.
    pub fn decide(&mut self, packet: &Subject<'_>, now: Nanos) -> Fate {
        let mut fate = Fate::Pass;
        for entry in &mut self.rules {
            let over = entry.is_over(now);
            let Some(random) = entry.try_packet(packet) else { continue };
            if fate == Fate::Pass && !over {
                entry.hit += 1;
                fate = entry.fate(random);
            }
        }
        fate
    }
}

impl Entry {
    fn is_over(&self, now: Nanos) -> bool {
        self.until.is_some_and(|until| until <= now)
            || self.rule.times.is_some_and(|times| self.hit >= times)
    }

    /// Counts a packet if the filter selects it. Returns a random number if the rule hits it.
    fn try_packet(&mut self, packet: &Subject<'_>) -> Option<u64> {
        if !selects(&self.rule.filter, packet) {
            return None;
        }
        let count = self.count(packet)?;
        self.seen += 1;
        let stream = Stream { rule: self.id, function: packet.function, qp: packet.qp };
        decide(&self.rule, &stream, count)
    }

    /// Counts a packet of a QP, unless there are too many QPs.
    fn count(&mut self, packet: &Subject<'_>) -> Option<u64> {
        if !self.counts.contains_key(packet.function) {
            self.counts.insert(packet.function.into(), HashMap::new());
        }
        let qps = self.counts.get_mut(packet.function)?;
        if !qps.contains_key(&packet.qp) {
            if self.qps >= QPS {
                return None;
            }
            self.qps += 1;
        }
        let count = qps.entry(packet.qp).or_default();
        *count += 1;
        Some(*count)
    }

    const fn fate(&self, random: u64) -> Fate {
        match self.rule.action {
            Action::Drop => Fate::Drop,
            Action::Delay(time) => Fate::Delay(time),
            Action::Duplicate => Fate::Duplicate,
            Action::Reorder(packets) => Fate::Reorder(packets),
            Action::Corrupt(crc) => Fate::Corrupt { crc, random },
        }
    }
}

/// Returns whether a filter selects a packet. The n-th packet is chosen later, among these.
fn selects(filter: &Filter, packet: &Subject<'_>) -> bool {
    filter.function.as_deref().is_none_or(|function| function == packet.function)
        && filter.qp.is_none_or(|qp| qp == packet.qp)
        && filter.opcode.is_none_or(|opcode| opcode == packet.opcode)
        && (filter.psn.is_none() || filter.psn == packet.psn)
}
