//! The log of sent messages.
//!
//! The log has an entry for each message that is not completely acknowledged: its header, the
//! source of its payload, its position in the stream, and the payload of its FPDUs, which is fixed
//! when it is appended. So each range of the stream can be built again with the same content
//! whenever it is lost. The start frame is in front of the first message.

use std::collections::VecDeque;
use std::sync::Arc;

use super::memory::{Memory, ReadSource};
use super::pool::Pool;
use crate::mpa::framer::{Form, Fpdu, Framer};
use crate::tcp::{Budget, Gone, StreamPos, Undone};
use crate::wire::ddp::{Header, Model, Msn, Stag, TAGGED, Tagged, UNTAGGED};
use crate::wire::fields::Fields;
use crate::wire::fpdu;
use crate::wire::rdmap::{Opcode, REQUEST_MAX};

/// Number of octets at the end of an FPDU that stay in one segment: Linux siw computes a wrong CRC
/// if it receives the padding and the CRC in two pieces.
const UNCUT: u64 = 8;

/// A message of the stream, without its position.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// The opcode of the message.
    pub opcode: Opcode,
    /// The destination of its first octet, if it is tagged.
    pub at: Tagged,
    /// The STag that it invalidates, or zero.
    pub invalidate: Stag,
    /// The number of the message, if it is untagged.
    pub msn: Msn,
    /// Number of octets of its payload.
    pub len: u32,
    /// The source of its payload.
    pub payload: Payload,
}

/// The source of a message's payload.
#[derive(Clone, Copy, Debug)]
pub enum Payload {
    /// The memory of this work request.
    Work(u64),
    /// Memory that the peer reads.
    Source(ReadSource),
    /// Octets that are stored in the log.
    Kept(Fields<REQUEST_MAX>),
    /// A private copy of the octets of a work request.
    Copied(u64),
}

/// Octets that cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Never again. If they belong to a work request, its number.
    Gone(Option<u64>),
    /// The octets may be built later.
    Later,
}

impl Unreadable {
    const fn of(undone: Undone, work: Option<u64>) -> Self {
        match undone {
            Undone::Gone => Self::Gone(work),
            Undone::Later => Self::Later,
        }
    }
}

/// The error for a range that is not in the log.
const NOWHERE: Unreadable = Unreadable::Gone(None);

#[derive(Clone, Copy, Debug)]
struct Entry {
    message: Message,
    /// Plain positions of its first FPDU, and after the last one that is sent. At the end of the
    /// stream the message may lose FPDUs.
    start: u64,
    end: u64,
    /// Number of octets of payload in each FPDU except the last.
    step: u32,
}

/// An FPDU of an entry.
#[derive(Clone, Copy)]
struct Part {
    entry: usize,
    /// The number of the FPDU in its message, from 0.
    nth: u64,
    fpdu: Fpdu,
}

/// The log of sent messages.
#[derive(Debug)]
pub struct Log {
    entries: VecDeque<Entry>,
    capacity: usize,
    /// The start frame, which stands in front of the first FPDU.
    frame: Vec<u8>,
    framer: Framer,
    /// The plain position after the last entry.
    end: u64,
    pool: Pool,
    /// An FPDU of which a part has been built, and its plain position. The rest must match,
    /// although the memory of a READ may change.
    whole: Vec<u8>,
    cut: Option<u64>,
}

impl Log {
    /// Lets the log have more messages.
    pub fn add_room(&mut self, messages: usize) {
        self.capacity += messages;
    }

    /// Creates a log for `capacity` messages, which begins with a start frame.
    #[must_use]
    pub fn new(frame: &[u8], form: Form, capacity: usize, pool: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            capacity,
            frame: frame.to_vec(),
            framer: Framer::new(form),
            end: 0,
            pool: Pool::new(pool),
            whole: Vec::new(),
            cut: None,
        }
    }

    /// Sets the form of FPDUs, before the first one.
    pub fn agree(&mut self, form: Form) {
        if self.end == 0 {
            self.framer = Framer::new(form);
        }
    }

    /// Takes the memory of copies from a budget, from now on.
    pub fn use_budget(&mut self, budget: &Arc<Budget>) {
        self.pool.use_budget(budget);
    }

    /// Returns the number of octets that are taken from the budget.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.pool.charged()
    }

    /// Gives memory back if there are no messages.
    pub fn shrink(&mut self) {
        if self.entries.is_empty() {
            (self.entries, self.whole, self.cut) = (VecDeque::new(), Vec::new(), None);
            self.framer.shrink();
            self.pool.shrink();
        }
    }

    /// Returns the number of messages that may be appended.
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.entries.len())
    }

    /// Returns the position after the last octet.
    #[must_use]
    pub fn end(&self) -> StreamPos {
        let wire = self.framer.form().markers.wire(self.end);
        StreamPos(self.frame.len() as u64).plus(wire)
    }

    /// Copies the payload of a work request, so that it is not read again. Returns `None` if there
    /// is no room or no memory for the copy, or if it cannot be read yet.
    ///
    /// # Errors
    /// [`Gone`] if it cannot be read.
    pub fn copy(
        &mut self,
        memory: &mut impl Memory,
        work: u64,
        len: u32,
    ) -> Result<Option<Payload>, Gone> {
        let Some((name, room)) = self.pool.take(len as usize) else { return Ok(None) };
        match memory.read(work, 0, room) {
            Ok(()) => Ok(Some(Payload::Copied(name))),
            Err(Undone::Later) => {
                self.pool.release(name, len as usize);
                Ok(None)
            }
            Err(Undone::Gone) => Err(Gone),
        }
    }

    /// Appends a message, in FPDUs whose ULPDUs have at most `mulpdu` octets. Returns `false` if
    /// there is no room.
    pub fn push(&mut self, message: Message, mulpdu: u32) -> bool {
        if self.room() == 0 {
            return false;
        }
        let header = message.header_len();
        // A multiple of four needs no padding.
        let step = mulpdu.saturating_sub(header as u32).max(4) & !3;
        let mut entry = Entry { message, start: self.end, end: self.end, step };
        entry.end = entry.last().end();
        self.end = entry.end;
        self.entries.push_back(entry);
        true
    }

    /// Removes messages that are completely acknowledged, and reports acknowledged answers to the
    /// memory.
    pub fn release(&mut self, memory: &mut impl Memory, unacknowledged: StreamPos) {
        let markers = self.framer.form().markers;
        let wire = unacknowledged.since(StreamPos(self.frame.len() as u64));
        while let Some(entry) = self.entries.front()
            && markers.wire(entry.end) <= wire
        {
            match &entry.message.payload {
                Payload::Copied(name) => self.pool.release(*name, entry.message.len as usize),
                Payload::Source(source) if source.len > 0 && entry.is_whole() => {
                    memory.answered(source);
                }
                _ => {}
            }
            self.entries.pop_front();
        }
    }

    /// Removes FPDUs all of whose octets are after this position. A message may lose its last
    /// FPDUs.
    pub fn truncate(&mut self, sent: StreamPos) {
        let markers = self.framer.form().markers;
        let wire = sent.since(StreamPos(self.frame.len() as u64));
        if wire >= markers.wire(self.end) {
            return;
        }
        let begun = self.entries.partition_point(|entry| markers.wire(entry.start) < wire);
        self.entries.truncate(begun);
        let Some(last) = self.entries.back_mut() else {
            self.end = 0;
            return;
        };
        let whole = markers.plain(wire).saturating_sub(last.start) / last.size();
        let after = |fpdus: u64| last.fpdu(fpdus.clamp(1, last.count()) - 1).end();
        // The marker in front of an FPDU belongs to it.
        let begun = if markers.wire(after(whole)) < wire { whole + 1 } else { whole };
        last.end = after(begun).min(last.end);
        self.end = last.end;
    }

    /// Returns the length of a segment that starts at `at` and has at most `limit` octets: whole
    /// FPDUs, or a part of one that keeps its last octets together.
    #[must_use]
    pub fn cut(&self, at: StreamPos, limit: usize) -> usize {
        let frame = self.frame.len() as u64;
        if at.0 < frame {
            return usize::try_from(frame - at.0).unwrap_or(limit).min(limit);
        }
        let (from, markers) = (at.0 - frame, self.framer.form().markers);
        let (mut next, mut len) = (self.find(from), 0);
        while let Some(part) = next {
            let whole = part.fpdu.wire(markers).end.saturating_sub(from);
            if whole > limit as u64 {
                if len == 0 {
                    let kept = whole.saturating_sub(UNCUT);
                    len = if kept == 0 { limit as u64 } else { kept.min(limit as u64) };
                }
                break;
            }
            len = whole;
            next = self.after(&part);
        }
        usize::try_from(len).unwrap_or(limit)
    }

    /// Builds the octets from `at` on.
    ///
    /// # Errors
    /// [`Unreadable`] if memory cannot be read, or the range is not in the log.
    pub fn read(
        &mut self,
        memory: &mut impl Memory,
        at: StreamPos,
        into: &mut [u8],
    ) -> Result<(), Unreadable> {
        let mut left = into;
        let frame = self.frame.len() as u64;
        let mut from = at.0.saturating_sub(frame);
        if at.0 < frame {
            let start = usize::try_from(at.0).map_err(|_| NOWHERE)?;
            let octets = self.frame.get(start..).ok_or(NOWHERE)?;
            let len = octets.len().min(left.len());
            let (now, rest) = left.split_at_mut_checked(len).ok_or(NOWHERE)?;
            now.copy_from_slice(octets.get(..len).ok_or(NOWHERE)?);
            left = rest;
        }
        let mut next = self.find(from);
        while !left.is_empty() {
            let part = next.ok_or(NOWHERE)?;
            let wire = part.fpdu.wire(self.framer.form().markers);
            let len = usize::try_from(wire.end - from).map_err(|_| NOWHERE)?.min(left.len());
            let (now, rest) = left.split_at_mut_checked(len).ok_or(NOWHERE)?;
            self.build(memory, &part, from - wire.start, now)?;
            (left, from) = (rest, from + len as u64);
            next = self.after(&part);
        }
        Ok(())
    }

    /// Builds octets of an FPDU, from `skip` on.
    fn build(
        &mut self,
        memory: &mut impl Memory,
        part: &Part,
        skip: u64,
        into: &mut [u8],
    ) -> Result<(), Unreadable> {
        let entry = *self.entries.get(part.entry).ok_or(NOWHERE)?;
        let wire = part.fpdu.wire(self.framer.form().markers);
        let size = usize::try_from(wire.end - wire.start).map_err(|_| NOWHERE)?;
        let Self { framer, pool, whole, cut, .. } = self;
        let ulpdu = |ulpdu: &mut [u8]| entry.write(part.nth, memory, pool, ulpdu);
        if skip == 0 && into.len() == size {
            return framer.build(&part.fpdu, into, ulpdu);
        }
        if whole.len() < size {
            whole.resize(size, 0);
        }
        let whole = whole.get_mut(..size).ok_or(NOWHERE)?;
        if *cut != Some(part.fpdu.start) {
            *cut = None;
            framer.build(&part.fpdu, whole, ulpdu)?;
            *cut = Some(part.fpdu.start);
        }
        let skip = usize::try_from(skip).map_err(|_| NOWHERE)?;
        into.copy_from_slice(whole.get(skip..skip + into.len()).ok_or(NOWHERE)?);
        Ok(())
    }

    /// Finds the FPDU with the octet at a wire position.
    fn find(&self, wire: u64) -> Option<Part> {
        let plain = self.framer.form().markers.plain(wire);
        let entry = self.entries.partition_point(|entry| entry.end <= plain);
        let found = self.entries.get(entry).filter(|entry| entry.start <= plain)?;
        let nth = (plain - found.start) / found.size().max(1);
        let nth = nth.min(found.count() - 1);
        Some(Part { entry, nth, fpdu: found.fpdu(nth) })
    }

    /// Returns the FPDU after another one.
    fn after(&self, part: &Part) -> Option<Part> {
        let entry = self.entries.get(part.entry)?;
        let (place, nth) = if part.fpdu.end() < entry.end {
            (part.entry, part.nth + 1)
        } else {
            (part.entry + 1, 0)
        };
        let fpdu = self.entries.get(place)?.fpdu(nth);
        Some(Part { entry: place, nth, fpdu })
    }
}

impl Message {
    const fn header_len(&self) -> usize {
        if self.opcode.queue().is_some() { UNTAGGED } else { TAGGED }
    }

    /// Returns the header of the segment whose payload starts at `offset`.
    fn header(&self, offset: u32, last: bool) -> Header {
        let model = match self.opcode.queue() {
            Some(queue) => {
                Model::Untagged { invalidate: self.invalidate, queue, msn: self.msn, mo: offset }
            }
            None => {
                let to = self.at.to.wrapping_add(u64::from(offset));
                Model::Tagged(Tagged { stag: self.at.stag, to })
            }
        };
        Header { last, control: self.opcode.control(), model }
    }
}

impl Entry {
    /// Returns the number of FPDUs.
    fn count(&self) -> u64 {
        u64::from(self.message.len.div_ceil(self.step.max(1)).max(1))
    }

    fn last(&self) -> Fpdu {
        self.fpdu(self.count() - 1)
    }

    /// Returns whether all FPDUs of the message are sent.
    fn is_whole(&self) -> bool {
        self.last().end() == self.end
    }

    /// Returns the number of octets of each FPDU except the last.
    const fn size(&self) -> u64 {
        fpdu::size(self.message.header_len() + self.step as usize) as u64
    }

    /// Returns the offset and the length of the payload of an FPDU.
    fn part(&self, nth: u64) -> (u32, u32) {
        let offset = u32::try_from(nth * u64::from(self.step)).unwrap_or(self.message.len);
        (offset, self.message.len.saturating_sub(offset).min(self.step))
    }

    fn fpdu(&self, nth: u64) -> Fpdu {
        let (_, len) = self.part(nth);
        let ulpdu = self.message.header_len() + len as usize;
        Fpdu { start: self.start + nth * self.size(), ulpdu }
    }

    /// Writes the ULPDU of an FPDU.
    fn write(
        &self,
        nth: u64,
        memory: &mut impl Memory,
        pool: &Pool,
        ulpdu: &mut [u8],
    ) -> Result<(), Unreadable> {
        let (offset, len) = self.part(nth);
        let header = self.message.header(offset, nth + 1 == self.count()).octets();
        let (head, body) = ulpdu.split_at_mut_checked(header.octets().len()).ok_or(NOWHERE)?;
        head.copy_from_slice(header.octets());
        if body.is_empty() {
            return Ok(());
        }
        let (at, len) = (offset as usize, len as usize);
        let kept = match &self.message.payload {
            Payload::Work(id) => {
                let read = memory.read(*id, offset, body);
                return read.map_err(|undone| Unreadable::of(undone, Some(*id)));
            }
            Payload::Source(source) => {
                let read = memory.read_source(source, offset, body);
                return read.map_err(|undone| Unreadable::of(undone, None));
            }
            Payload::Kept(fields) => fields.octets().get(at..at + len),
            Payload::Copied(name) => pool.get(*name, at, len),
        };
        body.copy_from_slice(kept.filter(|kept| kept.len() == body.len()).ok_or(NOWHERE)?);
        Ok(())
    }
}
