//! Octets that arrive ahead of their turn.
//!
//! A segment of TCP is placed ahead if all of it is whole FPDUs, and if it is known that one starts
//! where it starts: a segment that was placed ahead ends there, a marker says so, or (if the
//! configuration trusts them) CRCs do. Only octets of memory are placed. All other effects of a
//! segment come when the stream has no gap before it: then it passes the same checks as one in
//! order, without its octets. A segment that fails any check is stored by TCP, so its fault is
//! found in its turn.

use super::Stream;
use super::close::{Happening, State};
use super::inbound::Taken;
use crate::mpa::deframer::Ahead;
use crate::rdmap::ahead::Placed;
use crate::rdmap::memory::Memory;
use crate::rdmap::receive::Ends;
use crate::tcp::{Offered, StreamPos, Then};
use crate::wire::rdmap::Segment;
use crate::wire::terminate::{self, Cause};

/// Attributes of the placement of octets ahead of their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// FPDUs that may be placed ahead at a time; zero for none.
    pub fpdus: usize,
    /// A segment of TCP starts with an FPDU if it is whole FPDUs with right CRCs. Without this the
    /// start has to be known from markers.
    pub by_crc: bool,
}

impl Default for Early {
    fn default() -> Self {
        Self { fpdus: 256, by_crc: true }
    }
}

impl Stream {
    /// Places octets ahead of their turn, if all of them can be.
    pub(super) fn offer(
        &mut self,
        at: StreamPos,
        octets: &[u8],
        memory: &mut impl Memory,
    ) -> Offered {
        if self.state != State::Rts || !self.may_place(at, octets) {
            return Offered::Buffer;
        }
        let (mut from, mut left) = (at, octets);
        while !left.is_empty() {
            let Some(size) = self.place_fpdu(from, left, memory) else { return Offered::Buffer };
            from = from.plus(size as u64);
            left = left.get(size..).unwrap_or_default();
        }
        Offered::Placed
    }

    /// Returns whether octets are whole FPDUs of kinds that may be placed ahead, there is room for
    /// them, and it is known that the first one starts here.
    fn may_place(&mut self, at: StreamPos, octets: &[u8]) -> bool {
        let crc = self.arriving.deframer.form().crc && self.config.early.by_crc;
        let mut known = crc || self.arriving.ahead.ends_at(at);
        let (mut from, mut left, mut count) = (at, octets, 0);
        while !left.is_empty() {
            let Some((ahead, _)) = self.look_ahead(from, left) else { return false };
            known |= count == 0 && ahead.marked;
            count += 1;
            let size = ahead.octets;
            from = from.plus(size as u64);
            left = left.get(size..).unwrap_or_default();
        }
        known && count <= self.arriving.ahead.room()
    }

    /// Finds the FPDU at a position ahead, and its segment, if one of its kind may be placed.
    fn look_ahead<'a>(
        &'a mut self,
        at: StreamPos,
        octets: &'a [u8],
    ) -> Option<(Ahead<'a>, Segment<'a>)> {
        let start = self.plain(at)?;
        let ahead = self.arriving.deframer.look_ahead(start, octets)?;
        let segment = Segment::parse(ahead.ulpdu, self.config.extensions).ok()?;
        Placed::of(&segment).map(|_| (ahead, segment))
    }

    /// Places the octets of an FPDU; returns its wire octets.
    fn place_fpdu(
        &mut self,
        at: StreamPos,
        octets: &[u8],
        memory: &mut impl Memory,
    ) -> Option<usize> {
        let start = self.plain(at)?;
        let Self { arriving, receive, requester, responder, .. } = self;
        let found = arriving.deframer.look_ahead(start, octets)?;
        let segment = Segment::parse(found.ulpdu, self.config.extensions).ok()?;
        let (placed, end) = (Placed::of(&segment)?, at.plus(found.octets as u64));
        // TCP may have had no room for octets whose beginning was placed.
        if !arriving.ahead.has(at, end, &placed)? {
            if !receive.place_ahead(&segment, end, Ends { requester, responder, memory }) {
                return None;
            }
            arriving.ahead.insert(at, end, placed);
            self.counters.placed_ahead += 1;
        }
        Some(found.octets)
    }

    /// The plain position of an FPDU that starts at a position of the stream, if one may.
    fn plain(&self, at: StreamPos) -> Option<u64> {
        let wire = at.0.checked_sub(self.arriving.origin.0)?;
        let markers = self.arriving.deframer.form().markers;
        let plain = markers.plain(wire);
        (markers.wire(plain) == wire && plain.is_multiple_of(4)).then_some(plain)
    }

    /// The position of the FPDU that comes next.
    pub(super) fn next_fpdu(&self) -> StreamPos {
        let deframer = &self.arriving.deframer;
        self.arriving.origin.plus(deframer.form().markers.wire(deframer.start()))
    }

    /// Whether there are segments that were placed ahead, and whose turn has come.
    pub(super) fn is_behind(&self) -> bool {
        self.state == State::Rts && self.next_fpdu() < self.arriving.filled
    }

    /// Takes segments that were placed ahead and whose turn has come. The caller calls it before it
    /// resumes TCP, and resumes it unless this returns `false`: another message ends later.
    #[must_use]
    pub fn resume(&mut self, memory: &mut impl Memory) -> bool {
        self.catch_up(memory) != Then::Hold
    }

    /// The turn of octets that were placed ahead has come.
    pub(super) fn filled(
        &mut self,
        from: StreamPos,
        to: StreamPos,
        memory: &mut impl Memory,
    ) -> Then {
        self.arriving.filled = to;
        self.arriving.acknowledged = true;
        let then = self.catch_up(memory);
        if self.state != State::Rts {
            let from = from.max(self.next_fpdu());
            let _ = self.discards(from, to.since(from));
        }
        then
    }

    /// Takes segments that were placed ahead and whose turn has come.
    pub(super) fn catch_up(&mut self, memory: &mut impl Memory) -> Then {
        let mut then = Then::Continue;
        while self.is_behind() {
            match self.take_ahead(memory) {
                Ok(Taken::Part) => {}
                Ok(Taken::End) => then = Then::Acknowledge,
                Ok(Taken::Hold) => return Then::Hold,
                Err(cause) => {
                    self.arriving.refused = Some(self.next_fpdu());
                    self.terminate(cause, &terminate::payload(cause, None));
                    then = Then::Acknowledge;
                }
            }
        }
        self.finish_late();
        then
    }

    /// Tells of the peer's end when nothing before it has to be taken any more.
    pub(super) fn finish_late(&mut self) {
        if self.arriving.finished && !self.is_behind() {
            self.arriving.finished = false;
            self.happened(Happening::PeerFinished);
        }
    }

    /// Takes the next segment, which was placed ahead.
    fn take_ahead(&mut self, memory: &mut impl Memory) -> Result<Taken, Cause> {
        let at = self.next_fpdu();
        let Self { arriving, receive, requester, responder, .. } = self;
        // If none starts here, FPDUs in order have led to another boundary than the one ahead.
        let (placed, end) = arriving.ahead.take(at).ok_or(Cause::MarkerOrLength)?;
        let step = receive.take_placed(&placed, end, Ends { requester, responder, memory })?;
        let markers = arriving.deframer.form().markers;
        arriving.deframer.skip(markers.plain(end.since(arriving.origin)));
        Ok(self.taken(step))
    }
}
