//! Events that wait for room in their queue.
//!
//! An object that ends takes its events with it. They stay in the list, however many there are, and
//! are passed over when their turn comes: of the events about an object, only the youngest are
//! still wanted, since what ends is all that was reported before.

use std::collections::{HashMap, VecDeque};

use vrnic_abi::eq::Kind;
use vrnic_abi::{Cqn, Qpn, Srqn};

/// Most events that are held, those included that are not wanted any more. CQs hold at most one
/// each, so only a guest that provokes asynchronous events and never looks at them gets here.
pub(super) const HELD_MAX: usize = 1 << 17;

/// The object that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The completions of a CQ.
    Completions(Cqn),
    /// A CQ itself.
    Cq(Cqn),
    /// A QP.
    Qp(Qpn),
    /// An SRQ.
    Srq(Srqn),
}

impl Subject {
    /// Returns the object of an event; `None` if the event is about the adapter.
    fn of(kind: Kind, id: u32) -> Option<Self> {
        match kind {
            Kind::Completion => Some(Self::Completions(id.into())),
            Kind::CqError => Some(Self::Cq(id.into())),
            Kind::QpFatal
            | Kind::QpRequestError
            | Kind::QpAccessError
            | Kind::CommEstablished
            | Kind::SqDrained
            | Kind::QpLastWqe
            | Kind::ConnectionChanged => Some(Self::Qp(id.into())),
            Kind::SrqLimit | Kind::SrqError => Some(Self::Srq(id.into())),
            Kind::PortUp | Kind::PortDown | Kind::DeviceFatal => None,
        }
    }
}

/// The events, the oldest first.
#[derive(Debug, Default)]
pub(super) struct HeldEvents {
    events: VecDeque<HeldEvent>,
    /// Of each object with events in the list: how many there are.
    subjects: HashMap<Subject, Count>,
}

/// An event, and the number of the object that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldEvent {
    pub(super) kind: Kind,
    pub(super) id: u32,
}

/// The oldest event that is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Oldest {
    pub(super) event: HeldEvent,
    /// True if it is still wanted.
    pub(super) wanted: bool,
}

#[derive(Debug, Default)]
struct Count {
    /// Events in the list.
    held: usize,
    /// The youngest of them, which are still wanted.
    wanted: usize,
}

impl HeldEvents {
    /// Returns whether no event is held.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Adds an event; false when there are too many.
    #[must_use]
    pub(super) fn push(&mut self, kind: Kind, id: u32) -> bool {
        if self.events.len() >= HELD_MAX {
            return false;
        }
        self.events.push_back(HeldEvent { kind, id });
        if let Some(subject) = Subject::of(kind, id) {
            let count = self.subjects.entry(subject).or_default();
            count.held += 1;
            count.wanted += 1;
        }
        true
    }

    /// Adds the completion event of a CQ, unless it has one in the list, which tells of all
    /// completions. One that was not wanted any more is wanted again. Returns whether there was
    /// none that was wanted.
    pub(super) fn push_completion(&mut self, cqn: Cqn) -> bool {
        let count = self.subjects.entry(Subject::Completions(cqn)).or_default();
        let new = count.wanted == 0;
        count.wanted = 1;
        if count.held == 0 {
            count.held = 1;
            self.events.push_back(HeldEvent { kind: Kind::Completion, id: cqn.get() });
        }
        new
    }

    /// Returns the oldest event, and whether it is still wanted.
    pub(super) fn first(&self) -> Option<Oldest> {
        let event @ HeldEvent { kind, id } = *self.events.front()?;
        let count = Subject::of(kind, id).and_then(|subject| self.subjects.get(&subject));
        let wanted = count.is_none_or(|count| count.held <= count.wanted);
        Some(Oldest { event, wanted })
    }

    /// Takes the oldest event out.
    pub(super) fn pop(&mut self) {
        let Some(HeldEvent { kind, id }) = self.events.pop_front() else { return };
        let Some(subject) = Subject::of(kind, id) else { return };
        if let Some(count) = self.subjects.get_mut(&subject) {
            count.held = count.held.saturating_sub(1);
            count.wanted = count.wanted.min(count.held);
            if count.held == 0 {
                self.subjects.remove(&subject);
            }
        }
    }

    /// Drops the events about an object that ends, in a time that does not depend on how many
    /// events there are.
    pub(super) fn forget(&mut self, subject: Subject) {
        if let Some(count) = self.subjects.get_mut(&subject) {
            count.wanted = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn wanted(held: &mut HeldEvents) -> Vec<(Kind, u32)> {
        let mut all = Vec::new();
        while let Some(Oldest { event, wanted }) = held.first() {
            all.extend(wanted.then_some((event.kind, event.id)));
            held.pop();
        }
        assert!(held.subjects.is_empty());
        all
    }

    #[test]
    fn events_before_an_end_are_dropped() {
        let mut held = HeldEvents::default();
        for id in [5, 6, 5] {
            assert!(held.push(Kind::QpFatal, id));
        }
        assert!(held.push(Kind::CqError, 5) && held.push(Kind::PortUp, 5));
        held.forget(Subject::Qp(5.into()));
        // Of another QP, which has the number now.
        assert!(held.push(Kind::SqDrained, 5));
        let expected =
            [(Kind::QpFatal, 6), (Kind::CqError, 5), (Kind::PortUp, 5), (Kind::SqDrained, 5)];
        assert_eq!(wanted(&mut held), expected);
    }

    #[test]
    fn a_cq_has_one_event_however_often_its_number_is_used() {
        let mut held = HeldEvents::default();
        for _ in 0..1000 {
            assert!(held.push_completion(7.into()) && !held.push_completion(7.into()));
            held.forget(Subject::Completions(7.into()));
        }
        assert_eq!(held.events.len(), 1);
        assert!(held.push_completion(7.into()));
        assert_eq!(wanted(&mut held), [(Kind::Completion, 7)]);
    }

    /// A list walked for each end would take minutes here.
    #[test]
    fn an_end_does_not_walk_the_list() {
        let mut held = HeldEvents::default();
        for id in 0..HELD_MAX as u32 {
            assert!(held.push(Kind::QpFatal, id));
        }
        assert!(!held.push(Kind::QpFatal, 0), "the list is full");
        let start = Instant::now();
        (0..HELD_MAX as u32).for_each(|id| held.forget(Subject::Qp(id.into())));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert_eq!(wanted(&mut held), []);
    }
}
