//! The ledger of a requester: work requests that are not completed, in the order of the queue.
//!
//! ```text
//!   front                                                               back
//!   ├── settled ──┼── outstanding ──┼── sent in part ──┼── not started ──┤
//!                 ^ oldest          ^ cursor                       started
//! ```
//!
//! An entry gets its sequence numbers when its first packet is sent. A packet for a retransmission
//! is generated from its entry again, so packets are never stored.

use std::collections::VecDeque;

use super::work::{Outcome, WorkRequest};
use crate::psn::{Psn, Span};
use crate::queue::make_room;
use crate::wire::Mtu;

/// A work request with its sequence numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) request: WorkRequest,
    /// The sequence numbers of the request; undefined before it is started.
    pub(super) span: Span,
    /// The reason for which it has failed, if it has.
    pub(super) failed: Option<Outcome>,
}

impl Entry {
    /// Returns whether the entry ends only with its own answer: a READ, an atomic, an ATOMIC WRITE
    /// or a FLUSH. SENDs and WRITEs also end when a later packet is acknowledged.
    pub(super) const fn has_answer(&self) -> bool {
        self.request.work.has_answer()
    }

    /// Returns the offset in the message of the packet with this number.
    pub(super) const fn offset(&self, psn: Psn, mtu: Mtu) -> u32 {
        psn.since(self.span.first).wrapping_mul(mtu.bytes())
    }

    /// Returns the number of bytes in the packet with this number, of the request or of the answer.
    pub(super) const fn bytes_at(&self, psn: Psn, mtu: Mtu) -> u32 {
        let left = self.request.length.saturating_sub(self.offset(psn, mtu));
        if left < mtu.bytes() { left } else { mtu.bytes() }
    }
}

/// The work requests that are not completed.
#[derive(Debug)]
pub(super) struct Ledger {
    entries: VecDeque<Entry>,
    capacity: usize,
    /// The number of entries at the front that have been executed and whose completions have not
    /// been taken.
    settled: usize,
    /// The number of entries that have sequence numbers.
    started: usize,
    /// The number of READs and atomics that are started and not settled.
    answers_due: usize,
}

impl Ledger {
    /// Creates a ledger for at most `capacity` work requests.
    pub(super) const fn new(capacity: usize) -> Self {
        Self { entries: VecDeque::new(), capacity, settled: 0, started: 0, answers_due: 0 }
    }

    /// Appends a work request. Returns whether there was room.
    pub(super) fn push(&mut self, request: WorkRequest) -> bool {
        let room = self.entries.len() < self.capacity;
        if room {
            make_room(&mut self.entries, self.capacity);
            let span = Span { first: Psn::default(), count: 1 };
            self.entries.push_back(Entry { request, span, failed: None });
        }
        room
    }

    /// Gives memory back if there are no work requests.
    pub(super) fn shrink(&mut self) {
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
    }

    /// Returns the entry at an index.
    pub(super) fn get(&self, at: usize) -> Option<&Entry> {
        self.entries.get(at)
    }

    /// Returns the index of the oldest entry that is not settled.
    pub(super) const fn oldest(&self) -> usize {
        self.settled
    }

    /// Returns the index of the first entry that is not started.
    pub(super) const fn started(&self) -> usize {
        self.started
    }

    /// Returns whether no started entry is outstanding.
    pub(super) const fn is_quiet(&self) -> bool {
        self.settled == self.started
    }

    /// Returns the number of READs and atomics that are started and whose answers are not complete.
    pub(super) const fn answers_due(&self) -> usize {
        self.answers_due
    }

    /// Assigns sequence numbers to the first entry that is not started.
    pub(super) fn start(&mut self, span: Span) {
        if let Some(entry) = self.entries.get_mut(self.started) {
            entry.span = span;
            self.started += 1;
            self.answers_due += usize::from(entry.has_answer());
        }
    }

    /// Records that the oldest entry has been executed.
    pub(super) fn settle(&mut self) {
        if let Some(entry) = self.entries.get(self.settled) {
            self.answers_due -= usize::from(entry.has_answer());
            self.settled += 1;
        }
    }

    /// Records that the entry with this identifier has failed. Returns whether there is one.
    pub(super) fn fail(&mut self, id: u64, outcome: Outcome) -> bool {
        let entry = self.entries.iter_mut().find(|entry| entry.request.id == id);
        entry.is_some_and(|entry| {
            entry.failed.get_or_insert(outcome);
            true
        })
    }

    /// Records that the oldest entry that is not settled has failed.
    pub(super) fn fail_oldest(&mut self, outcome: Outcome) {
        if let Some(entry) = self.entries.get_mut(self.settled) {
            entry.failed.get_or_insert(outcome);
        }
    }

    /// Removes the oldest entry if it has ended, with or without an error, and returns it.
    pub(super) fn pop_ended(&mut self) -> Option<Entry> {
        let front = self.entries.front()?;
        if self.settled == 0 && front.failed.is_none() { None } else { self.pop() }
    }

    /// Removes the oldest entry, and returns it.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        if self.settled == 0 && self.started > 0 {
            self.answers_due -= usize::from(entry.has_answer());
        }
        self.settled = self.settled.saturating_sub(1);
        self.started = self.started.saturating_sub(1);
        Some(entry)
    }
}
