//! Events that wait for room in their event queue.
//!
//! The end of an object makes its events obsolete. They stay in the list, however many they are,
//! and are dropped when they are next: of the events of an object number, only the youngest are
//! still wanted, since an end makes all earlier ones obsolete.

use std::collections::{HashMap, VecDeque};

use vrnic_abi::eq::Kind;
use vrnic_abi::{Cqn, Key, Qpn, Srqn};

/// Maximum number of held events, including obsolete ones. CQs hold at most one each, so only a
/// guest that provokes asynchronous events and never reads them reaches this limit.
pub(super) const HELD_MAX: usize = 1 << 17;

/// The object that an event concerns.
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
    /// A region.
    Region(Key),
}

impl Subject {
    /// Returns the object of an event, or `None` if the event concerns the adapter.
    pub(crate) fn of(kind: Kind, id: u32) -> Option<Self> {
        match kind {
            Kind::Completion => Some(Self::Completions(id.into())),
            Kind::CqError | Kind::CqFull | Kind::CqFew => Some(Self::Cq(id.into())),
            Kind::QpFatal
            | Kind::QpRequestError
            | Kind::QpAccessError
            | Kind::CommEstablished
            | Kind::SqDrained
            | Kind::QpLastWqe
            | Kind::ConnectionChanged => Some(Self::Qp(id.into())),
            Kind::SrqLimit | Kind::SrqError => Some(Self::Srq(id.into())),
            Kind::PageFault => Some(Self::Region(id.into())),
            Kind::PortUp | Kind::PortDown | Kind::DeviceFatal => None,
        }
    }
}

/// The events, the oldest first.
#[derive(Debug, Default)]
pub(super) struct HeldEvents {
    events: VecDeque<HeldEvent>,
    /// The numbers of events in the list for each object.
    subjects: HashMap<Subject, Count>,
}

/// An event, and the number of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldEvent {
    pub(super) kind: Kind,
    pub(super) id: u32,
}

/// The oldest event that is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Oldest {
    pub(super) event: HeldEvent,
    /// True if it is not obsolete.
    pub(super) wanted: bool,
}

#[derive(Debug, Default)]
struct Count {
    /// The number of events in the list.
    held: usize,
    /// The number of the youngest events that are not obsolete.
    wanted: usize,
}

impl HeldEvents {
    /// Returns whether no event is held.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Adds an event. Returns false if there are too many.
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

    /// Adds the completion event of a CQ, unless the list contains one, which covers all
    /// completions. An obsolete one becomes wanted again. Returns whether there was no wanted one.
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

    /// Returns the oldest event, and whether it is not obsolete.
    pub(super) fn first(&self) -> Option<Oldest> {
        let event @ HeldEvent { kind, id } = *self.events.front()?;
        let count = Subject::of(kind, id).and_then(|subject| self.subjects.get(&subject));
        let wanted = count.is_none_or(|count| count.held <= count.wanted);
        Some(Oldest { event, wanted })
    }

    /// Removes the oldest event.
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

    /// Makes the events of an object that ends obsolete, in constant time.
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
