//! Segments that are not memory of the guest: memory that does not exist ([`Key::NULL`]), and
//! ranges of direct transfers ([`Key::WINDOW`]), whose bytes come and go.

use std::ops::Range;

use vrnic_abi::direct::{Direction, Place};
use vrnic_abi::qp::Access;
use vrnic_abi::sq::MAX_SGE;
use vrnic_abi::{GuestAddr, Key};

use super::SgList;
use crate::datapath::turn::TurnContext;
use crate::host::{HeldMemory, Host};
use crate::memory::tpt::{Denied, Piece, User, Window};
use crate::objects::direct::ranges::Ranges;
use crate::requests::wqe::Segment;

/// These pieces of a list, as bits by their index.
#[derive(Debug, Default)]
pub(super) struct Special<'a> {
    /// Pieces without memory.
    null: u32,
    /// Pieces of ranges. Their windows begin at the offset from the first range.
    in_ranges: u32,
    /// The use of the ranges, if there is such a piece.
    used: Option<Use<'a>>,
}

const _: () = assert!(MAX_SGE <= u32::BITS);

/// The use of ranges by a work request.
#[derive(Clone, Copy, Debug)]
struct Use<'a> {
    ranges: &'a Ranges,
    user: User,
    direction: Direction,
}

impl Special<'_> {
    /// Returns whether there is any such piece.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.null | self.in_ranges != 0
    }

    /// Returns whether the piece with this index is one.
    pub(super) fn has(&self, nth: usize) -> bool {
        (self.null | self.in_ranges) & 1 << nth != 0
    }

    /// Returns whether the piece with this index has no memory.
    pub(super) fn is_null(&self, nth: usize) -> bool {
        self.null & 1 << nth != 0
    }

    /// Returns whether the piece with this index is of ranges.
    pub(super) fn is_in_ranges(&self, nth: usize) -> bool {
        self.in_ranges & 1 << nth != 0
    }

    /// Returns whether there is a piece of ranges.
    #[inline(always)]
    pub(super) fn has_ranges(&self) -> bool {
        self.in_ranges != 0
    }

    /// Returns the reason for which the bytes `span` of a piece could not be used.
    pub(super) fn why(&self, nth: usize, window: &Window<'_>, span: Range<u64>) -> Option<Denied> {
        let Use { ranges, user, direction } = self.used.filter(|_| self.is_in_ranges(nth))?;
        let failed = each_range(window, span, |place, part| {
            ranges.check(place, user, direction, part.len() as u32)
        });
        // Or they have come since.
        Some(failed.err().unwrap_or(Denied::Absent))
    }
}

/// Calls `each` for the part of each range that the bytes `span` of a window consist of, with the
/// place of the part, and the bytes in the span.
fn each_range<E>(
    window: &Window<'_>,
    span: Range<u64>,
    mut each: impl FnMut(Place, Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = span.start;
    while at < span.end
        && let Some(run) = window.resolve(at, span.end - at)
        && let Some(place) = Place::at(run.addr.get())
    {
        let len = place.left().min(run.len);
        // CAST: the part is in a message.
        let start = (at - span.start) as usize;
        each(place, start..start + len as usize)?;
        at += len;
    }
    Ok(())
}

impl<'a> SgList<'a> {
    /// Adds a segment that is not memory of the guest.
    ///
    /// # Errors
    /// Returns the error of the check that failed.
    #[cold]
    pub(super) fn add_special<H: Host>(
        &mut self,
        turn: &'a TurnContext<'_, H>,
        user: User,
        segment: &Segment,
        need: Access,
    ) -> Result<Window<'a>, Denied> {
        let bit = 1 << self.windows.len();
        if segment.key == Key::NULL {
            self.special.null |= bit;
            return Ok(turn.tpt.at(GuestAddr::default()));
        }
        let direction = if need.is_empty() { Direction::Write } else { Direction::Read };
        let len = u64::from(segment.len);
        if Place::at(segment.addr.saturating_add(len - 1)).is_none() {
            return Err(Denied::Bounds);
        }
        let ranges = &turn.core.ranges;
        let window = turn.tpt.at(GuestAddr::new(segment.addr));
        each_range(&window, 0..len, |place, part| {
            ranges.check(place, user, direction, part.len() as u32)
        })?;
        self.special.in_ranges |= bit;
        self.special.used = Some(Use { ranges, user, direction });
        Ok(window)
    }

    /// Copies bytes from `at` on out of a list with such segments. Memory that does not exist is
    /// zero. Returns `None`, and may have copied some, if bytes cannot be used now. What a READ has
    /// brought into a range is only for the controller.
    #[cold]
    pub(super) fn read_special<H: Host>(
        &self,
        memory: &H::Held<'_>,
        at: u64,
        into: &mut [u8],
    ) -> Option<()> {
        into.fill(0);
        self.parts(at, into.len() as u64, |part, range| {
            let into = into.get_mut(range)?;
            match part {
                Part::Nothing => Some(()),
                Part::Memory(addr) => memory.read(addr, into).ok(),
                Part::InRange(_, Use { direction: Direction::Read, .. }) => None,
                Part::InRange(place, Use { ranges, user, direction }) => {
                    // CAST: the part of a range.
                    let len = into.len() as u32;
                    let copy = |addr| memory.read(addr, into);
                    ranges.by_work_request(place, user, direction, len, copy).ok()
                }
            }
        })
    }

    /// Copies bytes to a list with such segments from `at` on. What is written to memory that does
    /// not exist is lost. Returns `None` if bytes cannot be used now; no range has changed then.
    #[cold]
    pub(super) fn write_special<H: Host>(
        &self,
        memory: &H::Held<'_>,
        at: u64,
        from: &[u8],
    ) -> Option<()> {
        if !self.are_ready(at, from.len() as u64) {
            return None;
        }
        self.parts(at, from.len() as u64, |part, range| {
            let from = from.get(range)?;
            match part {
                Part::Nothing => Some(()),
                Part::Memory(addr) => memory.write(addr, from).ok(),
                Part::InRange(place, Use { ranges, user, direction }) => {
                    // CAST: the part of a range.
                    let len = from.len() as u32;
                    let copy = |addr| memory.write(addr, from);
                    ranges.by_work_request(place, user, direction, len, copy).ok()
                }
            }
        })
    }

    /// Returns whether `len` bytes from `at` on can be used now, as far as ranges and absent pages
    /// are concerned.
    #[cold]
    pub(super) fn are_ready(&self, at: u64, len: u64) -> bool {
        let ready = self.parts(at, len, |part, range| match part {
            Part::Nothing | Part::Memory(_) => Some(()),
            Part::InRange(place, used) => {
                used.ranges.is_ready(place, range.len() as u32).then_some(())
            }
        });
        ready.is_some()
    }

    /// Returns the number of bytes from byte `at` on, at most `len`, that a copy may move at once:
    /// those of one range.
    #[must_use]
    pub fn part_len(&self, at: u64, len: u64) -> u64 {
        if !self.special.has_ranges() {
            return len;
        }
        let Some((nth, within)) = self.piece_at(at) else { return len };
        let left = self.windows.get(nth).map_or(len, |piece| piece.len - within);
        let place = self.windows.get(nth).and_then(|piece| {
            let run = piece.window.resolve(within, left)?;
            Place::at(run.addr.get()).filter(|_| self.special.is_in_ranges(nth))
        });
        place.map_or(left, |place| left.min(place.left())).min(len)
    }

    /// Returns whether two pieces are the same bytes of a range. Packets of a READ fill them one
    /// after the other, each when the controller has read the one before.
    #[must_use]
    pub fn repeats_ranges(&self) -> bool {
        let all =
            || self.windows.iter().enumerate().filter(|(nth, _)| self.special.is_in_ranges(*nth));
        let span = |piece: &Piece<'_>| piece.window.resolve(0, piece.len).map(|run| run.addr.get());
        all().any(|(nth, piece)| {
            let Some(start) = span(piece) else { return false };
            all().filter(|(other, _)| *other > nth).any(|(_, other)| {
                let begins = span(other);
                begins.is_some_and(|at| at < start + piece.len && start < at + other.len)
            })
        })
    }

    /// Calls `each` for each part of `len` bytes from `at` on, with the range of these bytes in it.
    fn parts(
        &self,
        at: u64,
        len: u64,
        mut each: impl FnMut(Part<'a>, Range<usize>) -> Option<()>,
    ) -> Option<()> {
        let mut done = 0;
        while done < len {
            let (nth, within) = self.piece_at(at + done)?;
            let piece = self.windows.get(nth)?;
            let left = (len - done).min(piece.len - within);
            // CAST: the parts are in a slice of the caller.
            let start = done as usize;
            if self.special.is_null(nth) {
                each(Part::Nothing, start..start + left as usize)?;
                done += left;
            } else if self.special.is_in_ranges(nth) {
                let used = self.special.used?;
                each_range(&piece.window, within..within + left, |place, part| {
                    each(Part::InRange(place, used), start + part.start..start + part.end).ok_or(())
                })
                .ok()?;
                done += left;
            } else {
                let run = piece.window.resolve(within, left)?;
                each(Part::Memory(run.addr), start..start + run.len as usize)?;
                done += run.len;
            }
        }
        Some(())
    }
}

/// The memory of a part.
enum Part<'a> {
    /// No memory: the null key reads as zeros.
    Nothing,
    /// Memory of the guest from this address on.
    Memory(GuestAddr),
    /// A part of a range.
    InRange(Place, Use<'a>),
}
