//! Guest memory during a turn.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLockReadGuard;
use vrnic_adapter::host::{Awaited, HandedOver};

use super::external::ExternalMemory;
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
    /// The memory that is reached by messages to the VMM, if the settings allow these.
    external: Option<&'a ExternalMemory>,
    /// The asker for such memory, or zero if the access cannot be tried again.
    asker: Cell<u64>,
    /// The message of the asker.
    message: Cell<u64>,
    /// True if an access to such memory has failed because its bytes are not there.
    tried: Cell<bool>,
    /// True if an access has used such memory since the last call of [`Self::settle`].
    used: Cell<bool>,
}

impl<'a> DmaView<'a> {
    pub(super) fn new(
        reach: RwLockReadGuard<'a, Reach>,
        external: Option<&'a ExternalMemory>,
    ) -> Self {
        let (asker, message) = (Cell::new(0), Cell::new(0));
        let (tried, used) = (Cell::new(false), Cell::new(false));
        Self { reach, place: Cell::new(0), external, asker, message, tried, used }
    }

    /// Allows access to memory that messages reach, for an asker that tries again.
    #[inline]
    pub fn attend(&self, asker: u64) {
        self.asker.set(asker);
    }

    /// Sets the RDMA message to which the next reads belong.
    #[inline]
    pub fn of_message(&self, number: u64) {
        self.message.set(number);
    }

    /// Starts to read the bytes of a range that are reached by messages, as far as there is room.
    pub fn announce(&self, addr: u64, len: usize) {
        let (Some(external), asker @ 1..) = (self.external, self.asker.get()) else { return };
        let mut done = 0;
        while done < len {
            let Ok(at) = advance(addr, done) else { return };
            done += match self.gap(at, len - done, Intent::Read) {
                Some(gap) => {
                    external.announce(asker, self.message.get(), at, gap);
                    gap
                }
                None => match self.piece(at, len - done, Intent::Read) {
                    Ok(piece) => piece.len,
                    Err(_) => return,
                },
            };
        }
    }

    /// Copies into guest memory. Bytes that go by messages count as written when they are taken
    /// over.
    ///
    /// # Errors
    /// Returns the first address that cannot be written, or whose byte is not taken over.
    pub fn hand_over(
        &self,
        addr: u64,
        from: &[u8],
        progress: &Arc<HandedOver>,
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < from.len() {
            let at = advance(addr, done)?;
            let rest = from.get(done..).unwrap_or_default();
            done += match self.piece(at, rest.len(), Intent::Write) {
                Ok(piece) => {
                    let part = rest.get(..piece.len).ok_or(Fault::unmapped(at))?;
                    piece.memory.write(piece.offset, part).ok_or(Fault::unmapped(at))?;
                    piece.len
                }
                Err(fault) => {
                    let asker = self.asker.get();
                    let external = self.external.filter(|_| asker != 0).ok_or(fault)?;
                    let gap = self.gap(at, rest.len(), Intent::Write).ok_or(fault)?;
                    let part = rest.get(..gap).ok_or(fault)?;
                    if !external.hand_over(asker, at, part, progress) {
                        self.tried.set(true);
                        return Err(fault);
                    }
                    gap
                }
            };
        }
        Ok(())
    }

    /// Returns what a failed access to a range waits for.
    #[must_use]
    pub fn awaited(&self, addr: u64, len: u64) -> Awaited {
        match (self.external, self.asker.get()) {
            (Some(external), asker @ 1..) => self.awaited_of(external, asker, addr, len),
            _ => Awaited::Nothing,
        }
    }

    fn awaited_of(&self, external: &ExternalMemory, asker: u64, addr: u64, len: u64) -> Awaited {
        let (mut done, mut awaited) = (0, Awaited::Nothing);
        while done < len {
            let Some(at) = addr.checked_add(done) else { return Awaited::Failed };
            let left = usize::try_from(len - done).unwrap_or(usize::MAX);
            match self.gap(at, left, Intent::Read).or_else(|| self.gap(at, left, Intent::Write)) {
                Some(gap) => {
                    match external.awaited(asker, at, gap as u64) {
                        Awaited::Failed => return Awaited::Failed,
                        Awaited::Soon => awaited = Awaited::Soon,
                        // This access found no room for its transfer, and there may be some since.
                        Awaited::Nothing if self.tried.get() && external.is_connected() => {
                            awaited = Awaited::Soon;
                        }
                        Awaited::Nothing => {}
                    }
                    done += gap as u64;
                }
                None => match self.piece(at, left, Intent::Read) {
                    Ok(piece) => done += piece.len as u64,
                    Err(_) => return Awaited::Failed,
                },
            }
        }
        awaited
    }

    /// Returns whether no byte of a range is reached by messages.
    #[must_use]
    pub fn is_immediate(&self, addr: u64, len: u64) -> bool {
        if self.external.is_none() {
            return true;
        }
        let mut done = 0;
        while done < len {
            let Some(at) = addr.checked_add(done) else { return true };
            let left = usize::try_from(len - done).unwrap_or(usize::MAX);
            match self.piece(at, left, Intent::Read) {
                Ok(piece) => done += piece.len as u64,
                Err(_) => return false,
            }
        }
        true
    }

    /// Returns whether memory can be reached by messages.
    #[inline]
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.external.is_some()
    }

    /// Ends the accesses since the last call, which belong to one operation that has succeeded.
    #[inline]
    pub fn settle(&self) {
        if self.used.get() {
            self.settle_used();
        }
    }

    #[cold]
    fn settle_used(&self) {
        self.used.set(false);
        if let Some(external) = self.external {
            external.settle(self.asker.get());
        }
    }

    /// Forgets bytes that were read for an earlier message of the asker.
    #[inline]
    pub fn forget(&self) {
        if let Some(external) = self.external
            && external.is_used()
        {
            external.forget_reads(self.asker.get());
        }
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
            let piece = match self.piece(at, into.len() - done, Intent::Read) {
                Ok(piece) => piece,
                Err(fault) => {
                    done +=
                        self.read_behind(at, into.get_mut(done..).unwrap_or_default(), fault)?;
                    continue;
                }
            };
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
            let piece = match self.piece(at, from.len() - done, Intent::Write) {
                Ok(piece) => piece,
                Err(fault) => {
                    done += self.write_behind(at, from.get(done..).unwrap_or_default(), fault)?;
                    continue;
                }
            };
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
            let from = self.piece(at, len - done, Intent::Read).map_err(CopyFault::Source);
            let pieces = from.and_then(|from| {
                let into = to.piece(to_at, from.len, Intent::Write).map_err(CopyFault::Target)?;
                Ok((from, into))
            });
            let (from, into) = match pieces {
                Ok(pieces) => pieces,
                Err(fault) => {
                    done += self.copy_behind(at, to, to_at, len - done, fault)?;
                    continue;
                }
            };
            done += into.len;
            let order = if done < len { Order::Any } else { order };
            from.memory
                .copy_to(from.offset, into.memory, into.offset, into.len, order)
                .ok_or(CopyFault::Target(Fault::unmapped(to_at)))?;
        }
        Ok(())
    }

    /// Reads the start of `into` by messages.
    ///
    /// # Errors
    /// Returns `fault`, the fault of the access without messages, if the bytes are not there yet.
    #[cold]
    fn read_behind(&self, addr: u64, into: &mut [u8], fault: Fault) -> Result<usize, Fault> {
        let asker = self.asker.get();
        let external = self.external.filter(|_| asker != 0).ok_or(fault)?;
        let gap = self.gap(addr, into.len(), Intent::Read).ok_or(fault)?;
        let into = into.get_mut(..gap).ok_or(fault)?;
        self.used.set(true);
        let read = external.read(asker, self.message.get(), addr, into);
        self.tried.set(read.is_none());
        read.ok_or(fault)
    }

    /// Writes the start of `from` by messages.
    ///
    /// # Errors
    /// Returns `fault`, the fault of the access without messages, if the VMM has not got them yet.
    #[cold]
    fn write_behind(&self, addr: u64, from: &[u8], fault: Fault) -> Result<usize, Fault> {
        let asker = self.asker.get();
        let external = self.external.filter(|_| asker != 0).ok_or(fault)?;
        let gap = self.gap(addr, from.len(), Intent::Write).ok_or(fault)?;
        self.used.set(true);
        let written = external.write(asker, addr, from.get(..gap).ok_or(fault)?);
        self.tried.set(written.is_none());
        written.ok_or(fault)
    }

    /// Copies a part of `len` bytes of which some are reached by messages. Returns its length.
    ///
    /// # Errors
    /// Returns `fault` if neither memory has messages, or the side that cannot be accessed.
    #[cold]
    fn copy_behind(
        &self,
        addr: u64,
        to: &DmaView<'_>,
        to_addr: u64,
        len: usize,
        fault: CopyFault,
    ) -> Result<usize, CopyFault> {
        if self.external.or(to.external).is_none() {
            return Err(fault);
        }
        let mut bytes = vec![0; len.min(MAX_PART)];
        self.read(addr, &mut bytes).map_err(CopyFault::Source)?;
        to.write(to_addr, &bytes).map_err(CopyFault::Target)?;
        Ok(bytes.len())
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
            done += match self.piece(at, left, intent) {
                Ok(piece) => piece.len,
                Err(fault) => self.gap(at, left, intent).ok_or(fault)?,
            } as u64;
        }
        Ok(())
    }

    /// Returns the number of bytes from `addr` on, up to `len`, that are reached by messages, or
    /// `None` if the first one is not.
    fn gap(&self, addr: u64, len: usize, intent: Intent) -> Option<usize> {
        self.external.filter(|_| self.reach.bus_master && len > 0)?;
        let last = addr.saturating_add(len as u64 - 1);
        let end = match self.reach.ranges.find(addr, &self.place) {
            Some(entry) => {
                let allowed = match intent {
                    Intent::Read => entry.readable,
                    Intent::Write => entry.writable,
                };
                if entry.memory.is_some() || !allowed {
                    return None;
                }
                entry.last.min(last)
            }
            None => match self.reach.ranges.first_in(&(addr..=last)) {
                Some(next) => next.first - 1,
                None => last,
            },
        };
        usize::try_from(end - addr).ok()?.checked_add(1)
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

/// Maximum number of bytes that are copied at once from or to memory that is reached by messages.
const MAX_PART: usize = 128 << 10;

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
