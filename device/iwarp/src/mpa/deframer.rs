//! Finds FPDUs in a received stream, which may be cut anywhere.

use std::sync::Arc;

use super::framer::{Form, Fpdu};
use super::markers::Markers;
use crate::crc;
use crate::tcp::{Budget, Rest, Share};
use crate::wire::fpdu;
use crate::wire::terminate::Cause;

/// Memory for a marker and a length field. It is of a fixed size, and so not counted.
const SHORT: usize = 8;
/// Memory for an FPDU of a usual segment without its markers, which is not counted either.
const PLAIN: usize = 2048;

/// Maximum number of octets of an FPDU with its markers.
const WIRE_MAX: usize = fpdu::MAX + 4 * (fpdu::MAX / 508 + 2);

/// The result of a search in received octets.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// No whole FPDU. All octets have been consumed.
    Nothing,
    /// No whole FPDU, and no memory for the part that has arrived. Nothing has been consumed.
    NoMemory,
    /// A ULPDU, whose CRC is correct if it has one. Only [`Deframer::pass`] consumes its octets;
    /// otherwise they must be passed to [`Deframer::find`] again.
    Ulpdu {
        /// The DDP segment that the FPDU carries.
        ulpdu: &'a [u8],
        /// The number of the given octets that belong to its FPDU.
        octets: usize,
    },
}

/// A whole FPDU that has arrived out of order.
#[derive(Debug, PartialEq, Eq)]
pub struct Ahead<'a> {
    /// The ULPDU of the FPDU.
    pub ulpdu: &'a [u8],
    /// The number of octets of the FPDU on the wire.
    pub octets: usize,
    /// True if a marker in it has confirmed where it starts.
    pub marked: bool,
}

/// Finds FPDUs. It stores those that arrive in parts.
#[derive(Debug)]
pub struct Deframer {
    form: Form,
    /// The plain position of the next FPDU.
    start: u64,
    /// The octets of that FPDU that have arrived.
    carry: Vec<u8>,
    /// Number of octets at the end of `carry` that belong to a ULPDU that has not been passed.
    borrowed: usize,
    /// The plain position after the ULPDU that was found.
    next: u64,
    /// An FPDU after its markers have been removed.
    plain: Vec<u8>,
    /// The memory of `carry`.
    share: Share,
}

impl Deframer {
    /// Creates a deframer.
    #[must_use]
    pub fn new(form: Form) -> Self {
        let (carry, plain, share) = (Vec::new(), Vec::new(), Share::default());
        Self { form, start: 0, carry, borrowed: 0, next: 0, plain, share }
    }

    /// Sets the form of FPDUs, before the first one.
    pub const fn agree(&mut self, form: Form) {
        self.form = form;
    }

    /// Takes memory from a budget from now on. Nothing may be stored.
    pub fn use_budget(&mut self, budget: &Arc<Budget>) {
        self.share = Share::leaving(Rest::Eighth, budget);
    }

    /// Gives memory back if nothing is stored.
    pub fn shrink(&mut self) {
        if self.carry.is_empty() {
            (self.carry, self.plain) = (Vec::new(), Vec::new());
            self.share.give_all_back();
        }
    }

    /// Returns the number of bytes that are taken from the budget.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.share.used()
    }

    /// Returns the number of octets of memory that it keeps, apart from those of a fixed size.
    #[must_use]
    pub const fn kept(&self) -> usize {
        let (carry, plain) = (self.carry.capacity(), self.plain.capacity());
        (if carry > SHORT { carry } else { 0 }) + (if plain > PLAIN { plain } else { 0 })
    }

    /// Gives the memory back in which the markers of a long FPDU were removed. Without this, many
    /// streams could keep it.
    pub fn trim(&mut self) {
        if self.plain.capacity() > PLAIN {
            self.plain = Vec::new();
        }
    }

    /// Searches the next FPDU in `octets`, which start where the consumed octets end.
    ///
    /// # Errors
    /// The cause for a Terminate. Nothing has been consumed.
    pub fn find<'a>(&'a mut self, octets: &'a [u8]) -> Result<Found<'a>, Cause> {
        self.give_back();
        let Some(size) = self.size(octets)? else {
            // The octets are less than a marker and a length field.
            self.carry.extend_from_slice(octets);
            return Ok(Found::Nothing);
        };
        let missing = size.saturating_sub(self.carry.len());
        let Some(rest) = octets.get(..missing) else {
            if !self.make_room(octets.len(), size) {
                return Ok(Found::NoMemory);
            }
            self.carry.extend_from_slice(octets);
            return Ok(Found::Nothing);
        };
        if !self.carry.is_empty() && !self.make_room(missing, size) {
            return Ok(Found::NoMemory);
        }
        let Self { form, carry, start, plain, next, borrowed, .. } = self;
        let fpdu = if carry.is_empty() {
            rest
        } else {
            carry.extend_from_slice(rest);
            *borrowed = rest.len();
            carry
        };
        let (ulpdu, end) = open(*form, *start, fpdu, plain)?;
        *next = end;
        Ok(Found::Ulpdu { ulpdu, octets: rest.len() })
    }

    /// Consumes the octets of the ULPDU that was found last.
    pub fn pass(&mut self) {
        self.start = self.next;
        self.borrowed = 0;
        self.carry.clear();
    }

    /// Checks whether `octets` are a whole FPDU at a plain position after the next one, with a
    /// correct CRC if it has one. Consumes nothing.
    pub fn look_ahead<'a>(&'a mut self, start: u64, octets: &'a [u8]) -> Option<Ahead<'a>> {
        let Self { form, plain, .. } = self;
        let size = size(form.markers, start, |at| octets.get(at).copied()).ok()??;
        let (ulpdu, end) = open(*form, start, octets.get(..size)?, plain).ok()?;
        Some(Ahead { ulpdu, octets: size, marked: size as u64 > end - start })
    }

    /// Skips FPDUs that were processed out of order, up to a plain position. The stream must be
    /// between two FPDUs.
    pub const fn skip(&mut self, end: u64) {
        self.start = end;
    }

    /// Returns the form of FPDUs.
    #[must_use]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// Returns the plain position of the next FPDU.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Returns whether the stream is between two FPDUs.
    #[must_use]
    pub const fn is_at_border(&self) -> bool {
        self.carry.len() == self.borrowed
    }

    /// Makes room in `carry` for `more` octets of an FPDU of `size` octets. It grows with what has
    /// arrived, and not with the length that the FPDU states; by no more than it needs if little
    /// memory is left.
    fn make_room(&mut self, more: usize, size: usize) -> bool {
        let (len, room) = (self.carry.len(), self.carry.capacity());
        if len + more <= room {
            return true;
        }
        let needed = len + more;
        let doubled = needed.max(size.min(2 * room));
        let found = [doubled, needed].into_iter().find(|wanted| self.share.grow(*wanted));
        found.is_some_and(|wanted| self.carry.try_reserve_exact(wanted - len).is_ok())
    }

    fn give_back(&mut self) {
        let kept = self.carry.len().saturating_sub(self.borrowed);
        self.carry.truncate(kept);
        self.borrowed = 0;
    }

    /// Returns the number of octets of the next FPDU on the wire, if its length field has arrived.
    fn size(&self, octets: &[u8]) -> Result<Option<usize>, Cause> {
        size(self.form.markers, self.start, |at| {
            let behind = || octets.get(at.checked_sub(self.carry.len())?);
            self.carry.get(at).or_else(behind).copied()
        })
    }
}

/// Returns the number of octets of an FPDU on the wire, if its length field has arrived. `octet`
/// returns one of its octets.
fn size(
    markers: Markers,
    start: u64,
    octet: impl Fn(usize) -> Option<u8>,
) -> Result<Option<usize>, Cause> {
    let at = markers.in_front(start);
    let (Some(high), Some(low)) = (octet(at), octet(at + 1)) else { return Ok(None) };
    let ulpdu = usize::from(u16::from_be_bytes([high, low]));
    if ulpdu < crate::wire::ddp::TAGGED {
        return Err(Cause::MarkerOrLength);
    }
    let wire = Fpdu { start, ulpdu }.wire(markers);
    Ok(Some(usize::try_from(wire.end - wire.start).unwrap_or(WIRE_MAX)))
}

/// Checks a whole FPDU. Returns its ULPDU and the plain position after it.
fn open<'a>(
    form: Form,
    start: u64,
    octets: &'a [u8],
    plain: &'a mut Vec<u8>,
) -> Result<(&'a [u8], u64), Cause> {
    if form.crc && !crc::is_right(octets) {
        return Err(Cause::Crc);
    }
    let fpdu = if form.markers.0 { strip(form.markers, start, octets, plain)? } else { octets };
    let (length, rest) = fpdu.split_first_chunk().ok_or(Cause::MarkerOrLength)?;
    let len = usize::from(u16::from_be_bytes(*length));
    let ulpdu = rest.get(..len).ok_or(Cause::MarkerOrLength)?;
    Ok((ulpdu, Fpdu { start, ulpdu: len }.end()))
}

/// Checks the markers of an FPDU and removes them.
fn strip<'a>(
    markers: Markers,
    start: u64,
    octets: &[u8],
    plain: &'a mut Vec<u8>,
) -> Result<&'a [u8], Cause> {
    let wire = markers.wire(start) + octets.len() as u64;
    let len = usize::try_from(markers.plain(wire).saturating_sub(start)).unwrap_or_default();
    if plain.len() < len {
        // The buffer does not become longer than the FPDU, all of which has arrived.
        plain.resize(len, 0);
    }
    let plain = plain.get_mut(..len).ok_or(Cause::MarkerOrLength)?;
    let mut left = octets;
    markers.pieces(start, len, |marker, range| {
        if let Some(expected) = marker {
            let (found, rest) = left.split_first_chunk::<4>().ok_or(Cause::MarkerOrLength)?;
            // The first two octets of a marker are reserved.
            if found[2..] != expected[2..] {
                return Err(Cause::MarkerOrLength);
            }
            left = rest;
        }
        let (piece, rest) = left.split_at_checked(range.len()).ok_or(Cause::MarkerOrLength)?;
        plain.get_mut(range).ok_or(Cause::MarkerOrLength)?.copy_from_slice(piece);
        left = rest;
        Ok(())
    })?;
    Ok(plain)
}
