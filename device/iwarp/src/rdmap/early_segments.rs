//! Segments that were placed out of order, until all octets before them have arrived.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::tcp::{Budget, Rest, Share, StreamPos};
use crate::wire::ddp::{Msn, Tagged};
use crate::wire::rdmap::{Body, Segment, SendKind};

/// The payload of a segment.
#[derive(Clone, Copy, Debug)]
pub enum Octets<'a> {
    /// Octets of one FPDU that must still be placed.
    Here(&'a [u8]),
    /// The number of octets that have already been placed.
    Placed(u32),
}

/// The header of a segment that may be placed out of order. SENDs with invalidate are not included:
/// their end may be refused, and then nothing may have been acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacedHeader {
    /// The header of a WRITE.
    Write(Tagged),
    /// The header of the response of a READ.
    ReadResponse(Tagged),
    /// The header of a SEND: the message, and the offset of the segment in it.
    Send(SendKind, Msn, u32),
}

/// A segment without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The header of the segment.
    pub header: PlacedHeader,
    /// True if it is the last segment of its message.
    pub last: bool,
    /// Number of octets of its payload.
    pub len: u32,
}

/// A range of the stream, and the segment in it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: StreamPos,
    end: StreamPos,
    placed: Placed,
}

/// Segments that were placed out of order, in the order of the stream.
#[derive(Debug)]
pub struct Table {
    list: VecDeque<Entry>,
    capacity: usize,
    share: Share,
}

impl<'a> Octets<'a> {
    /// Returns the number of octets.
    #[must_use]
    pub const fn len(&self) -> u32 {
        match self {
            // CAST: an FPDU has less than 2¹⁶ octets.
            Self::Here(octets) => octets.len() as u32,
            Self::Placed(len) => *len,
        }
    }

    /// Returns whether there are no octets.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the octets that must still be placed.
    #[must_use]
    pub const fn here(self) -> Option<&'a [u8]> {
        match self {
            Self::Here(octets) => Some(octets),
            Self::Placed(_) => None,
        }
    }
}

impl Placed {
    /// Returns the header of a segment, if such a segment may be placed out of order.
    #[must_use]
    pub const fn of(segment: &Segment<'_>) -> Option<Self> {
        let (header, octets) = match segment.body {
            Body::Write(at, octets) => (PlacedHeader::Write(at), octets),
            Body::ReadResponse(at, octets) => (PlacedHeader::ReadResponse(at), octets),
            Body::Send(kind, msn, mo, octets) if kind.invalidate.is_none() => {
                (PlacedHeader::Send(kind, msn, mo), octets)
            }
            _ => return None,
        };
        let len = Octets::Here(octets).len();
        Some(Self { header, last: segment.last, len })
    }
}

impl Table {
    /// Creates a table for `capacity` segments.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { list: VecDeque::new(), capacity, share: Share::default() }
    }

    /// Takes memory from a budget from now on. The table must be empty.
    pub fn use_budget(&mut self, budget: &Arc<Budget>) {
        self.share = Share::leaving(Rest::Quarter, budget);
    }

    /// Makes room for further segments. Returns `false` if they are too many, or if there is no
    /// memory.
    pub fn make_room(&mut self, count: usize) -> bool {
        let len = self.list.len();
        if count > self.capacity.saturating_sub(len) {
            return false;
        }
        len + count <= self.list.capacity()
            || self.share.grow(self.capacity.saturating_mul(size_of::<Entry>()))
                && self.list.try_reserve_exact(self.capacity - len).is_ok()
    }

    /// Returns the number of bytes that are taken from the budget.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.share.used()
    }

    /// Gives memory back if the table is empty.
    pub fn shrink(&mut self) {
        if self.list.is_empty() {
            self.list = VecDeque::new();
            self.share.give_all_back();
        }
    }

    /// Returns the segment in the table that ends at this position.
    #[must_use]
    pub fn before(&self, at: StreamPos) -> Option<Placed> {
        let nth = self.list.partition_point(|entry| entry.end < at);
        self.list.get(nth).filter(|entry| entry.end == at).map(|entry| entry.placed)
    }

    /// Returns whether exactly this segment is in the table, or `None` if it overlaps another one.
    #[must_use]
    pub fn has(&self, start: StreamPos, end: StreamPos, placed: &Placed) -> Option<bool> {
        let at = self.list.partition_point(|entry| entry.end <= start);
        match self.list.get(at) {
            Some(entry) if entry.start < end => {
                let same = (entry.start, entry.end, entry.placed) == (start, end, *placed);
                same.then_some(true)
            }
            _ => Some(false),
        }
    }

    /// Inserts a segment. There must be room, and its range must be free.
    pub fn insert(&mut self, start: StreamPos, end: StreamPos, placed: Placed) {
        let at = self.list.partition_point(|entry| entry.start < start);
        self.list.insert(at, Entry { start, end, placed });
    }

    /// Removes the segment that starts at `start`, and returns it with the position after it.
    /// Removes all segments before it, too.
    pub fn take(&mut self, start: StreamPos) -> Option<(Placed, StreamPos)> {
        while self.list.front()?.start < start {
            self.list.pop_front();
        }
        let entry = self.list.pop_front_if(|entry| entry.start == start)?;
        Some((entry.placed, entry.end))
    }
}
