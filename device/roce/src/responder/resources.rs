//! READs, atomics, ATOMIC WRITEs and FLUSHes that have been accepted: requests whose answers are
//! pending, and the latest answered requests, whose answers may have been lost.
//!
//! The responder answers them in order. It answers a duplicate again before the pending requests.
//! It does not send later answers again, because the requester asks for each missing answer.

use std::collections::VecDeque;

use super::message::Numbers;
use crate::psn::{Psn, Span};
use crate::queue::make_room;
use crate::wire::headers::Reth;
use crate::wire::{Mtu, Request};

/// A request with an answer of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    pub(super) span: Span,
    pub(super) answer: Answer,
    /// The number of its message.
    pub(super) number: u64,
    /// The progress of its answer if it is sent again.
    again: Option<Progress>,
}

/// The data from which an answer is generated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// The memory of a READ.
    Memory(Reth),
    /// The request of an atomic, and the old value of its word, which is stored because an atomic
    /// is executed only once.
    Value(Request, u64),
    /// The request of an ATOMIC WRITE or FLUSH, whose answer has no data.
    Empty(Request),
}

/// The latest READs and atomics.
#[derive(Debug)]
pub(super) struct Resources {
    entries: VecDeque<Resource>,
    capacity: usize,
    /// The number of entries at the front that have been answered.
    answered: usize,
    /// The progress of the READ that is being answered: the beginning of its answer, and its next
    /// packet.
    progress: Option<Progress>,
    /// The number of requests that must be answered again.
    repeats: usize,
}

/// The part of a READ that has been answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) from: Psn,
    pub(super) next: Psn,
}

impl Resources {
    pub(super) const fn new(capacity: usize) -> Self {
        Self { entries: VecDeque::new(), capacity, answered: 0, progress: None, repeats: 0 }
    }

    /// Returns whether the peer has too many requests outstanding.
    pub(super) fn is_overrun(&self) -> bool {
        self.entries.len() - self.answered >= self.capacity
    }

    /// Stores a request that was accepted, and removes the oldest answered one.
    pub(super) fn push(
        &mut self,
        first: Psn,
        count: u32,
        request: Request,
        old: Option<u64>,
        numbers: Numbers,
    ) {
        while self.entries.len() >= self.capacity && self.answered > 0 {
            self.forget_oldest();
        }
        make_room(&mut self.entries, self.capacity);
        let answer = match (request, old) {
            (Request::Read(reth), _) => Answer::Memory(reth),
            (Request::AtomicWrite(_) | Request::Flush(..), _) => Answer::Empty(request),
            (atomic, old) => Answer::Value(atomic, old.unwrap_or_default()),
        };
        let span = Span { first, count };
        self.entries.push_back(Resource { span, answer, number: numbers.current(), again: None });
    }

    /// Sets the number of requests that are stored. More of them are stored until they have been
    /// answered.
    pub(super) const fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    /// Removes the oldest request.
    fn forget_oldest(&mut self) {
        let Some(oldest) = self.entries.pop_front() else { return };
        self.answered = self.answered.saturating_sub(1);
        self.repeats -= usize::from(oldest.again.is_some());
    }

    /// Removes answered requests that are so old that their numbers no longer count as before
    /// `expected`, the number of the next request. The responder could not distinguish a duplicate
    /// of such a request from a new request.
    pub(super) fn age(&mut self, expected: Psn) {
        while self.answered > 0
            && self.entries.front().is_some_and(|oldest| !oldest.span.last().is_before(expected))
        {
            self.forget_oldest();
        }
    }

    /// Returns the next request to answer, and its progress. Requests that must be answered again
    /// come first.
    pub(super) fn due(&self) -> Option<(Resource, Progress)> {
        let resource = *self.entries.get(self.next())?;
        let first = resource.span.first;
        let begun = resource.again.or(self.progress);
        Some((resource, begun.unwrap_or(Progress { from: first, next: first })))
    }

    /// Returns the index of the next request to answer.
    fn next(&self) -> usize {
        let again = |resource: &Resource| resource.again.is_some();
        let repeat = (self.repeats > 0).then(|| self.entries.iter().position(again)).flatten();
        repeat.unwrap_or(self.answered)
    }

    /// Returns whether all requests have been answered.
    pub(super) fn is_idle(&self) -> bool {
        self.answered == self.entries.len() && self.repeats == 0
    }

    /// Records that the packet with this number of the pending answer has been generated.
    pub(super) fn made(&mut self, psn: Psn) {
        let Some((resource, progress)) = self.due() else { return };
        let (at, ends) = (self.next(), psn == resource.span.last());
        let progress = (!ends).then_some(Progress { next: psn.next(), ..progress });
        if resource.again.is_none() {
            self.progress = progress;
            self.answered += usize::from(ends);
        } else if let Some(entry) = self.entries.get_mut(at) {
            entry.again = progress;
            self.repeats -= usize::from(ends);
        }
    }

    /// Discards all pending answers.
    pub(super) fn stop(&mut self) {
        self.answered = self.entries.len();
        self.progress = None;
        self.repeats = 0;
        self.entries.iter_mut().for_each(|resource| resource.again = None);
    }

    /// Answers the request at an index again, from packet `psn` on, if that packet was sent.
    fn repeat(&mut self, at: usize, psn: Psn) {
        let again = Progress { from: psn, next: psn };
        if at < self.answered
            && let Some(entry) = self.entries.get_mut(at)
        {
            self.repeats += usize::from(entry.again.is_none());
            entry.again = Some(again);
        } else if at == self.answered
            && let Some(entry) = self.entries.get(at)
        {
            let first = entry.span.first;
            let sent = |progress: Progress| progress.next.since(first) > psn.since(first);
            if self.progress.is_some_and(sent) {
                self.progress = Some(again);
            }
        }
    }

    /// Returns whether a request after `psn` has an answer of its own.
    pub(super) fn has_behind(&self, psn: Psn) -> bool {
        self.entries.back().is_some_and(|resource| psn.is_before(resource.span.last()))
    }

    /// Answers a READ again from packet `psn` on, if `reth` is its remainder from there. Returns
    /// whether it is.
    pub(super) fn repeat_read(&mut self, psn: Psn, reth: Reth, mtu: Mtu) -> bool {
        let found = self.entries.iter().rposition(|resource| resource.span.contains(psn));
        let Some((at, resource)) = found.and_then(|at| Some((at, *self.entries.get(at)?))) else {
            return false;
        };
        let Answer::Memory(original) = resource.answer else { return false };
        let offset = psn.since(resource.span.first).wrapping_mul(mtu.bytes());
        let rest = Reth {
            addr: original.addr.wrapping_add(u64::from(offset)),
            key: original.key,
            length: original.length.saturating_sub(offset),
        };
        if rest != reth {
            return false;
        }
        self.repeat(at, psn);
        true
    }

    /// Answers a request again that is not a READ. Returns whether it is still stored.
    pub(super) fn repeat_whole(&mut self, psn: Psn, request: Request) -> bool {
        let same = |resource: &Resource| match resource.answer {
            Answer::Value(original, _) | Answer::Empty(original) => {
                resource.span.first == psn && original == request
            }
            Answer::Memory(_) => false,
        };
        let Some(at) = self.entries.iter().rposition(same) else { return false };
        self.repeat(at, psn);
        true
    }
}
