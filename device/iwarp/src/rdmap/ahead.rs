//! Segments that were placed ahead of their turn, until the stream has come to them.

use std::collections::VecDeque;

use crate::tcp::StreamPos;
use crate::wire::ddp::{Msn, Tagged};
use crate::wire::rdmap::{Body, Segment, SendKind};

/// The octets of a segment.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// They have to be placed. They are those of one FPDU.
    Here(&'a [u8]),
    /// As many have been placed ahead.
    Placed(u32),
}

/// The header of a segment that may be placed ahead. SENDs that invalidate are not among them,
/// since their end may be refused, and nothing may be acknowledged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Of a WRITE.
    Write(Tagged),
    /// Of the response of a READ.
    ReadResponse(Tagged),
    /// Of a SEND: the message, the offset of the segment in it.
    Send(SendKind, Msn, u32),
}

/// A segment without its octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its header.
    pub header: Header,
    /// No segment of its message follows.
    pub last: bool,
    /// Its octets.
    pub len: u32,
}

/// A place in the stream, and what stands there.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: StreamPos,
    end: StreamPos,
    placed: Placed,
}

/// Segments that were placed ahead, in the order of the stream.
#[derive(Debug)]
pub struct Table {
    list: VecDeque<Entry>,
    capacity: usize,
}

impl<'a> Payload<'a> {
    /// The number of octets.
    #[must_use]
    pub const fn len(&self) -> u32 {
        match self {
            // CAST: an FPDU has less than 2¹⁶ octets.
            Self::Here(octets) => octets.len() as u32,
            Self::Placed(len) => *len,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The octets that have to be placed.
    #[must_use]
    pub const fn here(self) -> Option<&'a [u8]> {
        match self {
            Self::Here(octets) => Some(octets),
            Self::Placed(_) => None,
        }
    }
}

impl Placed {
    /// The segment, if one of its kind may be placed ahead.
    #[must_use]
    pub const fn of(segment: &Segment<'_>) -> Option<Self> {
        let (header, octets) = match segment.body {
            Body::Write(at, octets) => (Header::Write(at), octets),
            Body::ReadResponse(at, octets) => (Header::ReadResponse(at), octets),
            Body::Send(kind, msn, mo, octets) if kind.invalidate.is_none() => {
                (Header::Send(kind, msn, mo), octets)
            }
            _ => return None,
        };
        let len = Payload::Here(octets).len();
        Some(Self { header, last: segment.last, len })
    }
}

impl Table {
    /// Makes a table for so many segments. It allocates here, and never later.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { list: VecDeque::with_capacity(capacity), capacity }
    }

    /// Segments that may be inserted.
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity - self.list.len()
    }

    /// Whether a segment that was placed ahead ends here.
    #[must_use]
    pub fn ends_at(&self, at: StreamPos) -> bool {
        let behind = self.list.partition_point(|entry| entry.end < at);
        self.list.get(behind).is_some_and(|entry| entry.end == at)
    }

    /// Returns whether exactly this segment stands here, or `None` if a part of another one does.
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

    /// Inserts a segment. There is room, and its place is free.
    pub fn insert(&mut self, start: StreamPos, end: StreamPos, placed: Placed) {
        let at = self.list.partition_point(|entry| entry.start < start);
        self.list.insert(at, Entry { start, end, placed });
    }

    /// Takes the segment that stands here, with the position behind it. All before it are
    /// forgotten.
    pub fn take(&mut self, start: StreamPos) -> Option<(Placed, StreamPos)> {
        while self.list.front()?.start < start {
            self.list.pop_front();
        }
        let entry = self.list.pop_front_if(|entry| entry.start == start)?;
        Some((entry.placed, entry.end))
    }
}
