//! The scoreboard: one record for each segment that has been sent and not acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;

use vrnic_packet::Nanos;

use crate::budget::{Budget, Share};
use crate::seq::StreamPos;

/// Number of records that a connection may have without taking memory from the budget.
const UNCHARGED_RECORDS: usize = 64;

/// The state of a segment, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The segment is in flight.
    Flying,
    /// The peer has it, but may still drop it (RFC 2018, 8).
    Sacked,
    /// The segment is assumed to be lost, and must be sent again.
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
    /// Number of records from this one on that are known to be [`Fate::Sacked`], or zero. A search
    /// continues after them.
    pub(crate) run: u32,
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
    /// No record before this index is lost.
    lost_from: usize,
    /// True if a record may have a run.
    has_runs: bool,
    /// Number of changes of records. New records are no changes.
    version: u64,
    share: Share,
    /// Number of records that searches have visited.
    #[cfg(test)]
    pub(super) visits: usize,
}

impl Records {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            ring: VecDeque::new(),
            capacity: capacity.max(1),
            flying: 0,
            lost: 0,
            sacked: 0,
            lost_from: 0,
            has_runs: false,
            version: 0,
            share: Share::default(),
            #[cfg(test)]
            visits: 0,
        }
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

    /// Returns the number of bytes that are taken from the budget.
    pub(crate) const fn charged(&self) -> usize {
        self.share.used()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Makes room for another record. Returns `false` if there are too many.
    pub(crate) fn make_room(&mut self) -> bool {
        let (len, room) = (self.ring.len(), self.ring.capacity());
        if len >= self.capacity || len < room || len < UNCHARGED_RECORDS {
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

    /// Returns the number of changes of records. New records are no changes.
    pub(crate) const fn version(&self) -> u64 {
        self.version
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
        self.version += 1;
        self.remove(&first);
        if first.end <= ack {
            self.lost_from = self.lost_from.saturating_sub(1);
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
        self.version += 1;
        if before.fate == Fate::Sacked && after.fate != Fate::Sacked {
            self.forget_runs();
            after.run = 0;
        }
        if after.fate == Fate::Lost {
            self.lost_from = if self.lost == 0 { at } else { self.lost_from.min(at) };
        }
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

    fn forget_runs(&mut self) {
        if std::mem::take(&mut self.has_runs) {
            self.ring.iter_mut().for_each(|record| record.run = 0);
        }
    }

    /// Returns the index of the first record from `at` on that is not [`Fate::Sacked`], or an index
    /// after the last record.
    pub(crate) fn skip_sacked(&mut self, at: usize) -> usize {
        let mut to = at;
        while let Some(record) = self.get(to).filter(|record| record.fate == Fate::Sacked) {
            self.visit();
            to += (record.run as usize).max(1);
        }
        if to > at
            && let Some(record) = self.ring.get_mut(at)
        {
            record.run = u32::try_from(to - at).unwrap_or(u32::MAX);
            self.has_runs = true;
        }
        to
    }

    /// Counts a record that a search has visited, for tests.
    pub(crate) const fn visit(&mut self) {
        #[cfg(test)]
        {
            self.visits += 1;
        }
    }

    /// Returns the index of the first lost record.
    pub(crate) fn first_lost(&mut self) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        loop {
            let at = self.skip_sacked(self.lost_from);
            let record = self.get(at)?;
            self.lost_from = at;
            if record.fate == Fate::Lost {
                return Some(at);
            }
            self.visit();
            self.lost_from += 1;
        }
    }

    /// Checks what searches rely on, for tests.
    pub(crate) fn check(&self) {
        for (at, record) in self.ring.iter().enumerate() {
            let mut run = self.ring.iter().skip(at).take(record.run as usize);
            assert!(run.all(|record| record.fate == Fate::Sacked), "a run at {at}");
            assert!(at >= self.lost_from || record.fate != Fate::Lost, "lost at {at}");
        }
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
