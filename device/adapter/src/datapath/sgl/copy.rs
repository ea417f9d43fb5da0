//! Copies from one side of a message to the other.

use std::slice;

use vrnic_abi::direct::RANGE_LEN;

use super::SgList;
use crate::host::{CopyFault, HeldMemory, Host, Place};
use crate::memory::mtt::Walk;
use crate::memory::pages::Run;
use crate::memory::tpt::Piece;

/// One side of a message.
pub struct Side<'a, M> {
    /// The checked memory.
    pub list: &'a SgList<'a>,
    /// The guest's memory that it is in.
    pub memory: &'a M,
}

impl<M> Clone for Side<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Side<'_, M> {}

/// Moves the bytes from `from` to `to` of a message. The bytes of the last run become visible last.
///
/// # Errors
/// Returns the side whose memory is not accessible.
#[inline]
pub fn copy<H: Host>(
    source: Side<'_, H::Held<'_>>,
    target: Side<'_, H::Held<'_>>,
    from: u64,
    to: u64,
) -> Result<(), CopyFault> {
    copy_all::<H>(source, target, from, to)?;
    source.memory.settle();
    target.memory.settle();
    Ok(())
}

#[inline(always)]
fn copy_all<H: Host>(
    source: Side<'_, H::Held<'_>>,
    target: Side<'_, H::Held<'_>>,
    from: u64,
    to: u64,
) -> Result<(), CopyFault> {
    if from == to {
        return Ok(());
    }
    if let Some(data) = source.list.inline {
        let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
        let bytes = range.and_then(|(from, to)| data.get(from..to)).ok_or(CopyFault::Source)?;
        return target.list.write_part::<H>(target.memory, from, bytes);
    }
    let len = to - from;
    if source.list.special.any() || target.list.special.any() {
        return copy_special::<H>(source, target, from, len);
    }
    if let Some(read) = source.list.resolve(from, len)
        && let Some(written) = target.list.resolve(from, len)
        && read.len.min(written.len) == len
        && let Ok(len) = usize::try_from(len)
    {
        let read = Place { memory: source.memory, addr: read.addr };
        let written = Place { memory: target.memory, addr: written.addr };
        return H::copy(read, written, len);
    }
    copy_runs::<H>(source, target, from, len)
}

/// Moves `len` bytes from `at` on, of which some are not memory of a guest. The bytes of one call
/// are in one range of the window at most ([`SgList::end_of_part`]), and are at most as long as it.
#[cold]
fn copy_special<H: Host>(
    source: Side<'_, H::Held<'_>>,
    target: Side<'_, H::Held<'_>>,
    at: u64,
    len: u64,
) -> Result<(), CopyFault> {
    let mut buffer = [0; RANGE_LEN as usize];
    let (mut at, end) = (at, at + len);
    while at < end {
        // CAST: at most the length of the buffer.
        let part = (end - at).min(buffer.len() as u64) as usize;
        let part = buffer.get_mut(..part).ok_or(CopyFault::Source)?;
        source.list.read_part::<H>(source.memory, at, part)?;
        target.list.write_part::<H>(target.memory, at, part)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Moves `len` bytes from `at` on that are not contiguous on both sides.
fn copy_runs<H: Host>(
    source: Side<'_, H::Held<'_>>,
    target: Side<'_, H::Held<'_>>,
    at: u64,
    len: u64,
) -> Result<(), CopyFault> {
    let mut from = Cursor::new(source.list, at, len).ok_or(CopyFault::Source)?;
    let mut to = Cursor::new(target.list, at, len).ok_or(CopyFault::Target)?;
    let mut left = len;
    while left > 0 {
        let room = to.run().ok_or(CopyFault::Target)?;
        let rest = from.run().ok_or(CopyFault::Source)?;
        let run = rest.len.min(room.len).min(left);
        let len = usize::try_from(run).map_err(|_| CopyFault::Source)?;
        let read = Place { memory: source.memory, addr: rest.addr };
        let written = Place { memory: target.memory, addr: room.addr };
        left -= run;
        if left == 0 { H::copy(read, written, len) } else { H::copy_part(read, written, len) }?;
        from.advance(run);
        to.advance(run);
    }
    Ok(())
}

/// An iteration over the runs of a side.
struct Cursor<'s, 'a> {
    /// The windows after the window that `walk` is in.
    windows: slice::Iter<'s, Piece<'a>>,
    walk: Walk<'a>,
    /// The current run.
    run: Run,
    /// The number of bytes after the bytes of `walk`.
    left: u64,
}

impl<'s, 'a> Cursor<'s, 'a> {
    /// Creates an iteration over `len` bytes from `at` on, or returns `None` if the side has fewer.
    fn new(side: &'s SgList<'a>, at: u64, len: u64) -> Option<Self> {
        let mut windows = side.windows.iter();
        let mut at = at;
        loop {
            let Piece { window, len: size } = windows.next()?;
            if at < *size {
                let here = len.min(size - at);
                let walk = window.walk(at, here)?;
                return Some(Self { windows, walk, run: Run::default(), left: len - here });
            }
            at -= size;
        }
    }

    /// Returns the next run, or `None` if it is not accessible.
    #[inline]
    fn run(&mut self) -> Option<Run> {
        if self.run.len == 0 {
            self.run = match self.walk.run() {
                Some(run) => run,
                None => self.next_window()?,
            };
        }
        Some(self.run)
    }

    #[cold]
    fn next_window(&mut self) -> Option<Run> {
        let Piece { window, len: size } = self.windows.next()?;
        let here = self.left.min(*size);
        self.left -= here;
        self.walk = window.walk(0, here)?;
        self.walk.run()
    }

    /// Skips `len` bytes of the run.
    #[inline]
    fn advance(&mut self, len: u64) {
        let Run { addr, len: left } = self.run;
        // A run does not wrap around, because its memory has been checked.
        self.run = Run { addr: addr.wrapping_add(len), len: left - len };
    }
}
