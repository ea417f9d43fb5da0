//! Octets that arrive out of order.
//!
//! A TCP segment is placed out of order if it consists of whole FPDUs, and if an FPDU is known to
//! start where the segment starts. This is known if a segment that was placed before ends there,
//! from a marker, or, if the configuration allows it, from the CRCs. A right CRC is not enough: a
//! peer whose TCP cuts FPDUs may send a segment that consists of payload only, and a user of this
//! peer may have made the payload look like FPDUs (RFC 5044, appendix A.4). Therefore the segments
//! in order must have consisted of whole FPDUs for some time. Only octets of memory are placed. All
//! other effects of a segment come when all octets before it have arrived. It then passes the same
//! checks as a segment in order, without its octets. TCP stores a segment that fails any check, so
//! that its error is found in order.

use super::Stream;
use super::close::{Happening, State};
use super::inbound::Taken;
use crate::mpa::deframer::Ahead;
use crate::rdmap::early_segments::Placed;
use crate::rdmap::memory::Memory;
use crate::rdmap::receive::Ends;
use crate::tcp::{Offered, StreamPos, Then};
use crate::wire::rdmap::Segment;
use crate::wire::terminate::{self, Cause};

/// Configuration of out-of-order placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// Maximum number of FPDUs that are placed out of order at a time; zero for none.
    pub fpdus: usize,
    /// Number of segments that must have arrived in order and consisted of whole FPDUs, without
    /// others between them, before a segment out of order that consists of whole FPDUs with correct
    /// CRCs is taken to start with one. With `None`, only markers show where an FPDU starts.
    pub by_crc: Option<u32>,
}

impl Default for Early {
    fn default() -> Self {
        Self { fpdus: 256, by_crc: Some(64) }
    }
}

impl Stream {
    /// Places octets that have arrived out of order, if all of them can be placed.
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

    /// Returns whether octets are whole FPDUs of types that may be placed out of order, there is
    /// room for them, and the first one is known to start here.
    fn may_place(&mut self, at: StreamPos, octets: &[u8]) -> bool {
        let Early { by_crc, .. } = self.config.early;
        let aligned = by_crc.is_some_and(|least| self.arriving.aligned >= least);
        let crc = self.arriving.deframer.form().crc;
        let mut known = crc && aligned || self.arriving.ahead.before(at).is_some();
        let (mut from, mut left, mut count) = (at, octets, 0);
        while !left.is_empty() {
            let Some((ahead, _)) = self.look_ahead(from, left) else { return false };
            known |= count == 0 && ahead.marked;
            count += 1;
            let size = ahead.octets;
            from = from.plus(size as u64);
            left = left.get(size..).unwrap_or_default();
        }
        known && self.arriving.ahead.make_room(count)
    }

    /// Returns the FPDU at a position after the next one, and its segment, if such a segment may
    /// be placed.
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

    /// Places the octets of an FPDU. Returns its number of wire octets.
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
            let before = arriving.ahead.before(at);
            let ends = Ends { requester, responder, memory };
            if !receive.place_ahead(&segment, before.as_ref(), end, ends) {
                return None;
            }
            arriving.ahead.insert(at, end, placed);
            self.counters.placed_ahead += 1;
        }
        Some(found.octets)
    }

    /// Returns the plain position of an FPDU that starts at a position of the stream, if one can.
    fn plain(&self, at: StreamPos) -> Option<u64> {
        let wire = at.0.checked_sub(self.arriving.origin.0)?;
        let markers = self.arriving.deframer.form().markers;
        let plain = markers.plain(wire);
        (markers.wire(plain) == wire && plain.is_multiple_of(4)).then_some(plain)
    }

    /// Returns the position of the next FPDU.
    pub(super) fn next_fpdu(&self) -> StreamPos {
        let deframer = &self.arriving.deframer;
        self.arriving.origin.plus(deframer.form().markers.wire(deframer.start()))
    }

    /// Returns whether there are segments that were placed out of order, and whose octets are next.
    pub(super) fn is_behind(&self) -> bool {
        self.state == State::Rts && self.next_fpdu() < self.arriving.filled
    }

    /// Processes segments that were placed out of order, and whose octets are next. The caller
    /// calls it before it resumes TCP. If it returns `false`, another message ends later, and the
    /// caller must not resume TCP yet.
    #[must_use]
    pub fn resume(&mut self, memory: &mut impl Memory) -> bool {
        self.catch_up(memory) != Then::Hold
    }

    /// Handles octets that were placed out of order, after all octets before them have arrived.
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

    /// Processes segments that were placed out of order, and whose octets are next.
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

    /// Reports the peer's end after everything before it has been processed.
    pub(super) fn finish_late(&mut self) {
        if self.arriving.finished && !self.is_behind() {
            self.arriving.finished = false;
            self.happened(Happening::PeerFinished);
        }
    }

    /// Processes the next segment, which was placed out of order.
    fn take_ahead(&mut self, memory: &mut impl Memory) -> Result<Taken, Cause> {
        let at = self.next_fpdu();
        let Self { arriving, receive, requester, responder, .. } = self;
        // If no segment starts here, the FPDUs in order have other boundaries than those placed
        // before.
        let (placed, end) = arriving.ahead.take(at).ok_or(Cause::MarkerOrLength)?;
        let step = receive.take_placed(&placed, end, Ends { requester, responder, memory })?;
        let markers = arriving.deframer.form().markers;
        arriving.deframer.skip(markers.plain(end.since(arriving.origin)));
        Ok(self.taken(step))
    }
}
