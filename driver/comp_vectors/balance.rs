// SPDX-License-Identifier: GPL-2.0
//! The choice of a handler for a completion queue whose creator leaves it to the driver.

use kernel::{
    prelude::*,
    time::{Instant, Monotonic},
};

/// The load of a handler halves in this many milliseconds without events.
const HALF_LIFE_MS: i64 = 1000;

/// The rules by which handlers are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The one with the fewest recent events.
    LeastLoaded,
    /// Each handler in turn.
    RoundRobin,
}

impl Rule {
    /// Returns the rule with this number of the module parameter.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another number.
    pub(crate) fn from_raw(raw: u32) -> Result<Self> {
        match raw {
            0 => Ok(Self::LeastLoaded),
            1 => Ok(Self::RoundRobin),
            _ => Err(EINVAL),
        }
    }
}

/// A handler as the rule sees it.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    /// The number of events that the handler has taken.
    pub(crate) events: u64,
    /// Completion queues bound to it.
    pub(crate) queues: u32,
    /// True if one of its own processors is online. Other handlers are chosen only if no handler
    /// has such a processor.
    pub(crate) at_home: bool,
}

/// The state that the rule keeps for a handler.
#[derive(Clone, Copy, Default)]
struct Load {
    /// The number of the handler's events when they were last looked at.
    seen: u64,
    /// Recent events of the handler, and those expected of queues that it was chosen for.
    recent: u64,
}

/// The rule and its memory.
pub(crate) struct Balance {
    rule: Rule,
    loads: KVec<Load>,
    /// The time at which the loads were last halved.
    halved: Instant<Monotonic>,
    /// The id after the last that was chosen.
    next: u32,
}

impl Balance {
    /// Creates a rule over this many handlers.
    pub(crate) fn new(rule: Rule, handlers: usize) -> Result<Self> {
        let loads = KVec::from_elem(Load::default(), handlers, GFP_KERNEL)?;
        Ok(Self { rule, loads, halved: Instant::now(), next: 0 })
    }

    /// Chooses among all handlers, in the order of their ids.
    pub(crate) fn choose(&mut self, candidates: impl Iterator<Item = Candidate> + Clone) -> u32 {
        self.refresh(candidates.clone());
        let count = self.loads.len().max(1) as u32;
        let next = self.next;
        let turn = |id: u32| (id + count - next) % count;
        let away = |candidate: &Candidate| !candidate.at_home;
        let chosen = candidates
            .clone()
            .zip(&self.loads)
            .zip(0u32..)
            .min_by_key(|((candidate, load), id)| match self.rule {
                Rule::LeastLoaded => (away(candidate), load.recent, candidate.queues, turn(*id)),
                Rule::RoundRobin => (away(candidate), 0, 0, turn(*id)),
            })
            .map_or(0, |(_, id)| id);
        self.next = (chosen + 1) % count;
        // The next choice must take into account that the new queue will cause events. It is
        // expected to cause as many as the present queues do on average.
        let queues: u64 = candidates.map(|candidate| u64::from(candidate.queues)).sum();
        let recent: u64 = self.loads.iter().map(|load| load.recent).sum();
        if let Some(load) = self.loads.get_mut(chosen as usize) {
            load.recent += (recent / queues.max(1)).max(1);
        }
        chosen
    }

    /// Reduces the loads by age, and adds the new events.
    fn refresh(&mut self, candidates: impl Iterator<Item = Candidate>) {
        let halvings = self.halved.elapsed().as_millis() / HALF_LIFE_MS;
        if halvings > 0 {
            self.halved = Instant::now();
        }
        let halvings = u32::try_from(halvings).unwrap_or(u32::MAX);
        for (load, candidate) in self.loads.iter_mut().zip(candidates) {
            load.recent = load.recent.checked_shr(halvings).unwrap_or(0);
            load.recent += candidate.events - load.seen;
            load.seen = candidate.events;
        }
    }
}
