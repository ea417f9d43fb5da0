//! Copies messages between the memories of two QPs: checked windows on both sides, and one copy.
//!
//! | module | contents |
//! | --- | --- |
//! | `copy` | copies from one side of a message to the other |
//! | `fault` | the reasons for which an access fails |
//! | `special` | segments that are not memory of the guest |

mod copy;
mod fault;
mod special;

use std::ops::Range;
use std::sync::Arc;

use arrayvec::ArrayVec;
use vrnic_abi::qp::Access;
use vrnic_abi::sq::MAX_SGE;
use vrnic_abi::{GuestAddr, Key};

pub use self::copy::{Side, copy};
use self::special::Special;
use crate::datapath::constants::PRESENT_AT_FIRST;
use crate::datapath::turn::TurnContext;
use crate::host::{CopyFault, HandedOver, HeldMemory, Host};
use crate::memory::pages::Run;
use crate::memory::tpt::{ByteRange, Denied, Named, Piece, RemoteUse, User};
use crate::requests::wqe::{Segment, SegmentList, SendWqe};

/// Maximum number of bytes that a QP moves in one turn while others wait for theirs.
pub const TURN: u64 = 256 << 10;
/// Maximum number of bytes that a QP moves in one turn while no other waits. A doorbell that is
/// rung in the meantime waits for the end of the turn.
pub const LONG_TURN: u64 = 1 << 20;

/// Maximum number of bytes of a message that are announced before they are read.
const AHEAD: u64 = 512 << 10;

/// Checked memory of one side of a message. It is built in place, because moving this struct costs
/// more than copying a short message.
#[derive(Debug, Default)]
pub struct SgList<'a> {
    /// The pieces, none of them empty.
    windows: ArrayVec<Piece<'a>, { MAX_SGE as usize }>,
    /// Bytes of a WQE instead of pieces.
    inline: Option<&'a [u8]>,
    /// True if one of the keys is valid for this message only.
    one_touch: bool,
    /// The pieces that are not memory of the guest.
    special: Special<'a>,
}

impl<'a> SgList<'a> {
    /// Adds the source memory of a send work request, whose WQE is `raw`.
    ///
    /// # Errors
    /// Returns the error of the first check that failed.
    #[inline(always)]
    pub fn add_source<H: Host>(
        &mut self,
        turn: &'a TurnContext<'_, H>,
        user: User,
        send: &SendWqe,
        raw: &'a [u8],
    ) -> Result<(), Denied> {
        if let Some(data) = send.inline(raw) {
            self.set_inline(data);
            return Ok(());
        }
        let mut segments = send.segments.iter(raw);
        segments.try_for_each(|segment| self.add(turn, user, &segment, Access::empty()))
    }

    /// Adds the memory to which a READ or atomic, whose WQE is `raw`, writes its result.
    ///
    /// # Errors
    /// Returns the error of the first check that failed.
    #[inline(always)]
    pub fn add_sink<H: Host>(
        &mut self,
        turn: &'a TurnContext<'_, H>,
        user: User,
        send: &SendWqe,
        raw: &[u8],
    ) -> Result<(), Denied> {
        let mut segments = send.segments.iter(raw);
        segments.try_for_each(|segment| self.add(turn, user, &segment, Access::LOCAL_WRITE))
    }

    /// Adds the requester's own memory of a work request, whose WQE is `raw`: its sink if it has
    /// one, or else its source.
    ///
    /// # Errors
    /// Returns the error of the first check that failed.
    pub fn add_own<H: Host>(
        &mut self,
        turn: &'a TurnContext<'_, H>,
        user: User,
        send: &SendWqe,
        raw: &'a [u8],
    ) -> Result<(), Denied> {
        if send.opcode.info().has_response() {
            self.add_sink(turn, user, send, raw)
        } else {
            self.add_source(turn, user, send, raw)
        }
    }

    /// Adds the part of a receive's list that a message of `length` bytes fills. The segments
    /// after that part are not checked.
    ///
    /// # Errors
    /// Returns the error of the first check that failed.
    #[inline(always)]
    pub fn add_filled<H: Host>(
        &mut self,
        turn: &'a TurnContext<'_, H>,
        user: User,
        list: &SegmentList,
        raw: &[u8],
        length: u64,
    ) -> Result<(), Denied> {
        let mut left = length;
        list.iter(raw).try_for_each(|segment| {
            // CAST: at most the length of the segment.
            let len = u64::from(segment.len).min(left) as u32;
            left -= u64::from(len);
            self.add(turn, user, &Segment { len, ..segment }, Access::LOCAL_WRITE)
        })
    }

    /// Checks a segment and adds it. A segment of length zero is not checked.
    ///
    /// # Errors
    /// Returns the error of the check that failed.
    #[inline(always)]
    pub fn add<H: Host>(
        &mut self,
        turn: &'a TurnContext<'_, H>,
        user: User,
        segment: &Segment,
        need: Access,
    ) -> Result<(), Denied> {
        let Segment { addr, len, key } = *segment;
        let len = u64::from(len);
        if len == 0 {
            return Ok(());
        }
        let tpt = turn.tpt;
        let window = match tpt.check(&turn.memory, key, user, ByteRange { addr, len }, need) {
            Err(Denied::Invalid) if matches!(key, Key::NULL | Key::WINDOW) => {
                self.add_special(turn, user, segment, need)?
            }
            checked => checked?,
        };
        turn.is_of(user)?;
        // A list has no more entries than fit.
        self.windows.try_push(Piece { window, len }).map_err(|_| Denied::Bounds)
    }

    /// Checks memory that a peer's message refers to, and adds it. Memory of length zero is not
    /// checked. `user` is the receiving QP.
    ///
    /// # Errors
    /// Returns the error of the check that failed.
    #[inline(always)]
    pub fn add_remote<H: Host>(
        &mut self,
        turn: &'a TurnContext<'_, H>,
        user: User,
        segment: &Segment,
        by: RemoteUse,
    ) -> Result<(), Denied> {
        let Segment { addr, len, key } = *segment;
        let len = u64::from(len);
        if len == 0 {
            return Ok(());
        }
        let tpt = turn.tpt;
        let range = ByteRange { addr, len };
        let window = tpt.check_remote(&turn.memory, key, user, range, by)?;
        turn.is_of(user)?;
        self.one_touch |= window.one_touch();
        self.add_piece(turn, user, Piece { window, len }, by.need)
    }

    /// Checks a range of the data of a command of `user`, for which the peer has the rights
    /// `need`, and adds it. Returns the name that the consumer has for the command.
    ///
    /// # Errors
    /// Returns the error of the check that failed.
    pub fn add_command<H: Host>(
        &mut self,
        turn: &'a TurnContext<'_, H>,
        user: User,
        key: Key,
        range: ByteRange,
        need: Access,
    ) -> Result<u32, Denied> {
        let Named { data, id } = turn.tpt.check_command(&turn.memory, key, user, range, need)?;
        turn.is_of(user)?;
        self.add_piece(turn, user, data, need)?;
        Ok(id)
    }

    /// Adds a range that a check has returned, or its parts if it has segments.
    #[inline(always)]
    fn add_piece<H: Host>(
        &mut self,
        turn: &'a TurnContext<'_, H>,
        user: User,
        whole: Piece<'a>,
        need: Access,
    ) -> Result<(), Denied> {
        let Some(pieces) = turn.tpt.pieces(&turn.memory, &whole, user, need) else {
            return self.windows.try_push(whole).map_err(|_| Denied::Bounds);
        };
        for piece in pieces {
            self.windows.try_push(piece?).map_err(|_| Denied::Bounds)?;
        }
        Ok(())
    }

    /// Returns whether one of the keys is valid for this message only. Its end must then be
    /// reported by [`crate::memory::tpt::Tpt::end_message`].
    #[inline]
    #[must_use]
    pub fn one_touch(&self) -> bool {
        self.one_touch
    }

    /// Returns whether all of the memory is of regions that allow any order of writes.
    pub(crate) fn is_relaxed(&self) -> bool {
        !self.windows.is_empty() && self.windows.iter().all(|piece| piece.window.relaxed())
    }

    /// Sets the side to inline data.
    pub fn set_inline(&mut self, data: &'a [u8]) {
        self.inline = Some(data);
    }

    /// Returns the guest address of a peer's side that is one 8-byte word.
    #[must_use]
    pub fn word(&self) -> Option<GuestAddr> {
        self.resolve(0, 8).filter(|run| run.len == 8).map(|run| run.addr)
    }

    /// Checks that the first bytes of a message of `length` bytes, up to [`PRESENT_AT_FIRST`], have
    /// addresses, and that all of its bytes in ranges can be used. Pages that are absent are
    /// requested.
    ///
    /// # Errors
    /// The reason for which they have none: see [`Self::fault`].
    pub fn check_first<H: Host>(
        &self,
        turn: &TurnContext<'_, H>,
        length: u64,
    ) -> Result<(), Denied> {
        let has_ranges = self.special.has_ranges();
        let first = if has_ranges { length } else { length.min(PRESENT_AT_FIRST) };
        if (has_ranges || turn.tpt.has_paged()) && !self.has(0, first) {
            return Err(self.fault(turn, 0..first));
        }
        Ok(())
    }

    /// Returns whether some of the memory is in ranges of direct transfers.
    #[must_use]
    pub fn has_ranges(&self) -> bool {
        self.special.has_ranges()
    }

    /// Returns whether the bytes from `start` to `end` have addresses, or can be used in ranges.
    #[must_use]
    pub fn has(&self, start: u64, end: u64) -> bool {
        self.inline.is_some() || self.are_ready(start, end.saturating_sub(start))
    }

    /// Returns whether no access to the bytes `range` has to wait for the host
    /// ([`HeldMemory::is_immediate`]). What ranges wait for is not the host.
    #[inline]
    #[must_use]
    pub fn is_immediate<H: Host>(&self, memory: &H::Held<'_>, range: Range<u64>) -> bool {
        !memory.may_wait() || self.inline.is_some() || self.all_immediate::<H>(memory, range)
    }

    #[cold]
    fn all_immediate<H: Host>(&self, memory: &H::Held<'_>, range: Range<u64>) -> bool {
        if self.special.has_ranges() {
            return true;
        }
        let len = range.end.saturating_sub(range.start);
        let each =
            |addr, part: Range<usize>| memory.is_immediate(addr, part.len() as u64).then_some(());
        self.pieces(range.start, len, each).is_some()
    }

    /// Starts to move the bytes `range`, which are read soon ([`HeldMemory::announce`]), unless the
    /// first `now` of them can be read without waiting.
    #[inline]
    pub fn announce<H: Host>(&self, memory: &H::Held<'_>, range: Range<u64>, now: u64) {
        if !self.is_immediate::<H>(memory, range.start..range.start.saturating_add(now)) {
            self.announce_all::<H>(memory, range);
        }
    }

    #[cold]
    fn announce_all<H: Host>(&self, memory: &H::Held<'_>, range: Range<u64>) {
        let len = range.end.saturating_sub(range.start).min(AHEAD);
        // A part that is not accessible is refused when it is read.
        let _rest = self.pieces(range.start, len, |addr, part| {
            memory.announce(addr, part.len());
            Some(())
        });
    }

    /// Copies bytes from `at` on out of the memory.
    ///
    /// # Errors
    /// [`CopyFault::Source`] if the memory is not accessible.
    pub fn read<H: Host>(
        &self,
        memory: &H::Held<'_>,
        at: u64,
        into: &mut [u8],
    ) -> Result<(), CopyFault> {
        self.read_part::<H>(memory, at, into)?;
        memory.settle();
        Ok(())
    }

    /// Copies bytes out as [`Self::read`] does, for an operation that is not complete with them.
    ///
    /// # Errors
    /// [`CopyFault::Source`] if the memory is not accessible.
    pub fn read_part<H: Host>(
        &self,
        memory: &H::Held<'_>,
        at: u64,
        into: &mut [u8],
    ) -> Result<(), CopyFault> {
        if let Some(data) = self.inline {
            let from = usize::try_from(at).ok().and_then(|at| data.get(at..)?.get(..into.len()));
            into.copy_from_slice(from.ok_or(CopyFault::Source)?);
            return Ok(());
        }
        if self.special.any() {
            return self.read_special::<H>(memory, at, into).ok_or(CopyFault::Source);
        }
        self.pieces(at, into.len() as u64, |addr, range| {
            let into = into.get_mut(range)?;
            memory.read(addr, into).ok()
        })
        .ok_or(CopyFault::Source)
    }

    /// Copies bytes to the memory from `at` on.
    ///
    /// # Errors
    /// [`CopyFault::Target`] if the memory is not accessible.
    pub fn write<H: Host>(
        &self,
        memory: &H::Held<'_>,
        at: u64,
        from: &[u8],
    ) -> Result<(), CopyFault> {
        self.write_part::<H>(memory, at, from)?;
        memory.settle();
        Ok(())
    }

    /// Copies bytes as [`Self::write`] does, for an operation that is not complete with them.
    fn write_part<H: Host>(
        &self,
        memory: &H::Held<'_>,
        at: u64,
        from: &[u8],
    ) -> Result<(), CopyFault> {
        if self.special.any() {
            return self.write_special::<H>(memory, at, from).ok_or(CopyFault::Target);
        }
        let len = from.len() as u64;
        self.pieces(at, len, |addr, range| memory.write(addr, from.get(range)?).ok())
            .ok_or(CopyFault::Target)
    }

    /// Passes bytes to the memory from `at` on, of which the host may take some over
    /// ([`HeldMemory::hand_over`]).
    ///
    /// # Errors
    /// [`CopyFault::Target`] if the memory is not accessible, or the host has no room yet.
    pub fn hand_over<H: Host>(
        &self,
        memory: &H::Held<'_>,
        at: u64,
        from: &[u8],
        progress: &Arc<HandedOver>,
    ) -> Result<(), CopyFault> {
        self.pieces(at, from.len() as u64, |addr, range| {
            memory.hand_over(addr, from.get(range)?, progress).ok()
        })
        .ok_or(CopyFault::Target)
    }

    /// Calls `each` for each contiguous piece of `len` bytes from `at` on that has memory, with its
    /// guest address and the range of these bytes in it. Returns `None` for pages that are absent,
    /// and for bytes of ranges.
    pub(crate) fn pieces(
        &self,
        at: u64,
        len: u64,
        mut each: impl FnMut(GuestAddr, Range<usize>) -> Option<()>,
    ) -> Option<()> {
        let mut done = 0;
        while done < len {
            if self.special.any() {
                let (nth, within) = self.piece_at(at + done)?;
                if self.special.is_null(nth) {
                    let skipped = self.windows.get(nth)?.len - within;
                    done += skipped.min(len - done);
                    continue;
                } else if self.special.has(nth) {
                    return None;
                }
            }
            let run = self.resolve(at + done, len - done)?;
            // CAST: at most the length of the caller's slice.
            each(run.addr, done as usize..(done + run.len) as usize)?;
            done += run.len;
        }
        Some(())
    }

    /// Returns the index of the piece with byte `at`, and the offset of this byte in the piece.
    fn piece_at(&self, at: u64) -> Option<(usize, u64)> {
        let mut start = 0;
        for (nth, Piece { len, .. }) in self.windows.iter().enumerate() {
            if at < start + len {
                return Some((nth, at - start));
            }
            start += len;
        }
        None
    }

    /// Returns the contiguous memory from byte `at` on, up to `len` bytes.
    #[inline(always)]
    fn resolve(&self, at: u64, len: u64) -> Option<Run> {
        let mut start = 0;
        for Piece { window, len: size } in &self.windows {
            if at < start + size {
                return window.resolve(at - start, len.min(start + size - at));
            }
            start += size;
        }
        None
    }
}
