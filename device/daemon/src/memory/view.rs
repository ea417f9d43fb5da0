//! Guest memory during a turn.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use parking_lot::RwLockReadGuard;

use super::fault::{CopyFault, Fault, FaultKind};
use super::mapping::{Mapping, Order};
use super::ranges::Ranges;

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Read only.
    Read,
    /// Write, or read and write.
    Write,
}

/// The memory that the device may use.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    pub(super) ranges: Ranges,
    /// The bus-master bit.
    pub(super) bus_master: bool,
}

/// An adapter's memory, which does not change while this exists. Hold it only for a bounded time,
/// because a VMM that unmaps memory waits for it.
#[derive(Debug)]
pub struct DmaView<'a> {
    reach: RwLockReadGuard<'a, Reach>,
    /// The place in its leaf of the range of the last access. The next access is likely to be in
    /// the same one.
    place: Cell<usize>,
}

impl<'a> DmaView<'a> {
    pub(super) fn new(reach: RwLockReadGuard<'a, Reach>) -> Self {
        Self { reach, place: Cell::new(0) }
    }

    /// Copies guest memory out.
    ///
    /// # Errors
    /// Returns the first address that cannot be read. Bytes before it may have been copied.
    #[inline]
    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < into.len() {
            let at = advance(addr, done)?;
            let piece = self.piece(at, into.len() - done, Intent::Read)?;
            let part = into.get_mut(done..done + piece.len).ok_or(Fault::unmapped(at))?;
            piece.memory.read(piece.offset, part).ok_or(Fault::unmapped(at))?;
            done += piece.len;
        }
        Ok(())
    }

    /// Copies into guest memory, in ascending order and the last bytes last.
    ///
    /// # Errors
    /// Returns the first address that cannot be written. Bytes before it may have been copied.
    #[inline]
    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < from.len() {
            let at = advance(addr, done)?;
            let piece = self.piece(at, from.len() - done, Intent::Write)?;
            let part = from.get(done..done + piece.len).ok_or(Fault::unmapped(at))?;
            piece.memory.write(piece.offset, part).ok_or(Fault::unmapped(at))?;
            done += piece.len;
        }
        Ok(())
    }

    /// Copies `len` bytes from this guest's memory to that of `to`, in the given order.
    ///
    /// # Errors
    /// Returns the side and the address that cannot be accessed. Bytes before it may have been
    /// copied.
    #[inline]
    pub fn copy_to(
        &self,
        addr: u64,
        to: &DmaView<'_>,
        to_addr: u64,
        len: usize,
        order: Order,
    ) -> Result<(), CopyFault> {
        let mut done = 0;
        while done < len {
            let at = advance(addr, done).map_err(CopyFault::Source)?;
            let to_at = advance(to_addr, done).map_err(CopyFault::Target)?;
            let from = self.piece(at, len - done, Intent::Read).map_err(CopyFault::Source)?;
            let into = to.piece(to_at, from.len, Intent::Write).map_err(CopyFault::Target)?;
            done += into.len;
            let order = if done < len { Order::Any } else { order };
            from.memory
                .copy_to(from.offset, into.memory, into.offset, into.len, order)
                .ok_or(CopyFault::Target(Fault::unmapped(to_at)))?;
        }
        Ok(())
    }

    /// Prefetches memory that will be read, up to the end of its range.
    #[inline]
    pub fn fetch_ahead(&self, addr: u64, len: usize) {
        if let Ok(piece) = self.piece(addr, len, Intent::Read) {
            piece.memory.fetch_ahead(piece.offset, piece.len);
        }
    }

    /// Prefetches a cache line for writing.
    #[inline]
    pub fn fetch_for_write(&self, addr: u64) {
        if let Ok(piece) = self.piece(addr, 1, Intent::Write) {
            piece.memory.fetch_for_write(piece.offset);
        }
    }

    /// Adds to an aligned 8-byte word. Returns the old value.
    ///
    /// # Errors
    /// Returns a fault if the word is not aligned or not writable.
    pub fn fetch_add(&self, addr: u64, value: u64) -> Result<u64, Fault> {
        let Piece { memory, offset, .. } = self.piece(addr, 8, Intent::Write)?;
        let added = memory.word64(offset).and_then(|word| word.fetch_add(value));
        added.filter(|_| !memory.is_lost()).ok_or(Fault { addr, why: FaultKind::Unaligned })
    }

    /// Stores `new` into an aligned 8-byte word if the word is `compare`. Returns the old value.
    ///
    /// # Errors
    /// Returns a fault if the word is not aligned or not writable.
    pub fn compare_swap(&self, addr: u64, compare: u64, new: u64) -> Result<u64, Fault> {
        let Piece { memory, offset, .. } = self.piece(addr, 8, Intent::Write)?;
        let old = memory.word64(offset).and_then(|word| word.compare_swap(compare, new));
        old.filter(|_| !memory.is_lost()).ok_or(Fault { addr, why: FaultKind::Unaligned })
    }

    /// Stores a value into an aligned 8-byte word.
    ///
    /// # Errors
    /// Returns a fault if the word is not aligned or not writable.
    pub fn store(&self, addr: u64, value: u64) -> Result<(), Fault> {
        let Piece { memory, offset, .. } = self.piece(addr, 8, Intent::Write)?;
        let stored = memory.word64(offset).and_then(|word| word.store(value, Ordering::SeqCst));
        stored.filter(|()| !memory.is_lost()).ok_or(Fault { addr, why: FaultKind::Unaligned })
    }

    /// Checks that all of a range can be accessed.
    ///
    /// # Errors
    /// Returns the first address that cannot be accessed.
    pub fn check(&self, addr: u64, len: u64, intent: Intent) -> Result<(), Fault> {
        let mut done = 0u64;
        while done < len {
            let at = addr.checked_add(done).ok_or(Fault::unmapped(addr))?;
            let left = usize::try_from(len - done).unwrap_or(usize::MAX);
            done += self.piece(at, left, intent)?.len as u64;
        }
        Ok(())
    }

    /// Returns the longest piece from `addr` on that is inside of one range, up to `len` bytes.
    #[inline]
    fn piece(&self, addr: u64, len: usize, intent: Intent) -> Result<Piece<'_>, Fault> {
        let fault = |why| Fault { addr, why };
        if !self.reach.bus_master {
            return Err(fault(FaultKind::NotBusMaster));
        }
        let entry = self.reach.ranges.find(addr, &self.place).ok_or(Fault::unmapped(addr))?;
        let memory = entry.memory.as_deref().ok_or(fault(FaultKind::NoFile))?;
        if memory.is_lost() {
            return Err(fault(FaultKind::Lost));
        }
        match intent {
            Intent::Read if !entry.readable => return Err(fault(FaultKind::WriteOnly)),
            Intent::Write if !entry.writable => return Err(fault(FaultKind::ReadOnly)),
            Intent::Read | Intent::Write => {}
        }
        // An address of a range is inside of its mapping, whose length is a `usize`.
        let offset = entry.base + (addr - entry.first) as usize;
        let rest = ((entry.last - addr) as usize).saturating_add(1);
        Ok(Piece { memory, offset, len: len.min(rest) })
    }
}

/// Part of a mapping.
struct Piece<'a> {
    memory: &'a Mapping,
    offset: usize,
    /// Length in bytes, not zero.
    len: usize,
}

/// Returns `addr + done`, or a fault if that wraps around.
fn advance(addr: u64, done: usize) -> Result<u64, Fault> {
    addr.checked_add(done as u64).ok_or(Fault::unmapped(addr))
}
