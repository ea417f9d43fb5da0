//! The scoreboard: one record for each segment that has been sent and not acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::budget::{Budget, Share};
use crate::seq::StreamPos;
use crate::time::Nanos;

/// Number of records that are never too many for the budget.
const FEW: usize = 64;

/// The state of a segment, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is in flight.
    Flying,
    /// The peer has it, but may still drop it (RFC 2018, 8).
    Sacked,
    /// It is assumed to be lost, and must be sent again.
    Lost,
}

/// A segment that has been sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) start: StreamPos,
    pub(crate) end: StreamPos,
    /// The time of its last transmission.
    pub(crate) sent: Nanos,
    pub(crate) fate: Fate,
    pub(crate) resent: bool,
    /// True if it is the end of the stream, which takes one position.
    pub(crate) fin: bool,
}

impl Record {
    pub(crate) fn len(&self) -> u64 {
        self.end.since(self.start)
    }
}

/// Records in the order of the stream, in a ring that grows with their number.
#[derive(Debug)]
pub(crate) struct Records {
    ring: VecDeque<Record>,
    /// Maximum number of segments. There is room for twice as many, because segments that become
    /// too long for the path are split.
    capacity: usize,
    flying: u64,
    lost: usize,
    sacked: usize,
    share: Share,
}

impl Records {
    pub(crate) fn new(capacity: usize) -> Self {
        let (ring, share) = (VecDeque::new(), Share::default());
        Self { ring, capacity: capacity.max(1), flying: 0, lost: 0, sacked: 0, share }
    }

    /// Takes memory from a budget from now on.
    pub(crate) fn use_budget(&mut self, budget: &Arc<Budget>) {
        self.share = Share::of(budget);
    }

    /// Gives memory back if there are no records.
    pub(crate) fn shrink(&mut self) {
        if self.ring.is_empty() {
            self.ring = VecDeque::new();
            self.share.give_all_back();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Makes room for another record. Returns `false` if there are too many.
    pub(crate) fn make_room(&mut self) -> bool {
        let (len, room) = (self.ring.len(), self.ring.capacity());
        if len >= self.capacity || len < room || len < FEW {
            return len < self.capacity;
        }
        let wanted = (2 * room).min(2 * self.capacity);
        self.share.grow(wanted.saturating_mul(size_of::<Record>()))
            && self.ring.try_reserve_exact(wanted - len).is_ok()
    }

    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Returns the number of bytes in flight.
    pub(crate) const fn flying(&self) -> u64 {
        self.flying
    }

    /// Returns the number of segments that must be sent again.
    pub(crate) const fn lost(&self) -> usize {
        self.lost
    }

    /// Returns the number of segments that the peer has out of order.
    pub(crate) const fn sacked(&self) -> usize {
        self.sacked
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.ring.iter()
    }

    pub(crate) fn first(&self) -> Option<&Record> {
        self.ring.front()
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.add(&record);
        self.ring.push_back(record);
    }

    /// Removes the first record if all of it is before `ack`. Cuts it if a part is.
    pub(crate) fn take_acknowledged(&mut self, ack: StreamPos) -> Option<Record> {
        let first = *self.ring.front()?;
        if first.start >= ack {
            return None;
        }
        self.remove(&first);
        if first.end <= ack {
            return self.ring.pop_front();
        }
        let rest = Record { start: ack, ..first };
        self.add(&rest);
        if let Some(front) = self.ring.front_mut() {
            *front = rest;
        }
        Some(Record { end: ack, ..first })
    }

    /// Returns the indices of the records all of whose bytes are in a range.
    pub(crate) fn within(&self, start: StreamPos, end: StreamPos) -> std::ops::Range<usize> {
        let first = self.ring.partition_point(|record| record.start < start);
        first..self.ring.partition_point(|record| record.end <= end).max(first)
    }

    pub(crate) fn get(&self, at: usize) -> Option<Record> {
        self.ring.get(at).copied()
    }

    /// Changes the state of a record.
    pub(crate) fn set(&mut self, at: usize, fate: Fate) {
        self.change(at, |record| record.fate = fate);
    }

    /// Records that a segment has been sent again.
    pub(crate) fn resend(&mut self, at: usize, now: Nanos) {
        self.change(at, |record| {
            (record.fate, record.sent, record.resent) = (Fate::Flying, now, true);
        });
    }

    fn change(&mut self, at: usize, change: impl FnOnce(&mut Record)) {
        let Some(before) = self.get(at) else { return };
        let mut after = before;
        change(&mut after);
        self.remove(&before);
        self.add(&after);
        if let Some(record) = self.ring.get_mut(at) {
            *record = after;
        }
    }

    /// Changes the state of all records.
    pub(crate) fn set_all(&mut self, from: Fate, to: Fate) {
        for at in 0..self.ring.len() {
            if self.get(at).is_some_and(|record| record.fate == from) {
                self.set(at, to);
            }
        }
    }

    /// Returns the index of the first lost record.
    pub(crate) fn first_lost(&self) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        self.ring.iter().position(|record| record.fate == Fate::Lost)
    }

    /// Splits a record after `len` bytes, if there is room for one more. Returns whether the record
    /// then has at most this length.
    pub(crate) fn split(&mut self, at: usize, len: u64) -> bool {
        let Some(whole) = self.get(at) else { return false };
        if self.ring.len() / 2 >= self.capacity || len == 0 || len >= whole.len() {
            return false;
        }
        let middle = whole.start.plus(len);
        self.change(at, |record| record.end = middle);
        let rest = Record { start: middle, ..whole };
        self.add(&rest);
        self.ring.insert(at + 1, rest);
        true
    }

    fn add(&mut self, record: &Record) {
        match record.fate {
            Fate::Flying => self.flying += record.len(),
            Fate::Sacked => self.sacked += 1,
            Fate::Lost => self.lost += 1,
        }
    }

    fn remove(&mut self, record: &Record) {
        match record.fate {
            Fate::Flying => self.flying -= record.len(),
            Fate::Sacked => self.sacked -= 1,
            Fate::Lost => self.lost -= 1,
        }
    }
}
