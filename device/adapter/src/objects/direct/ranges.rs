//! The address ranges of an adapter.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use vrnic_abi::admin::{RangeRegisters, Status, WindowRegisters};
use vrnic_abi::direct::{Direction, Place, RANGE_LEN, RANGES, WINDOW_LEN};
use vrnic_abi::{GuestAddr, Qpn, RangeNumber};
use vrnic_packet::Nanos;

use crate::domain::User;
use crate::host::Fault;
use crate::memory::tpt::Denied;
use crate::objects::direct::range::{Burst, Bytes, Packets, Range, Taken, Transfer};

/// The result of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Bytes were moved.
    Some,
    /// The last bytes of the transfer were moved. The TRANSFER of this QP continues.
    All(Qpn),
    /// The transfer has failed. The TRANSFER of this QP continues. A read returns ones.
    Failed(Qpn),
    /// Nothing was moved. A read returns ones.
    Nothing,
    /// The data has not arrived yet.
    Early,
}

/// The place of the ranges in BAR4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The offset of the first range.
    pub base: u32,
    /// The length of all ranges.
    pub length: u32,
}

impl Window {
    /// The place after a reset.
    const RESET: Self = Self { base: 0, length: WINDOW_LEN };

    const fn to_word(self) -> u64 {
        (self.base as u64) << 32 | self.length as u64
    }

    const fn from_word(word: u64) -> Self {
        // CAST: both halves.
        Self { base: (word >> 32) as u32, length: word as u32 }
    }

    /// Returns the place of the byte at this offset in BAR4, if it is in a range; and the number
    /// of bytes from there to the next border of a range, or to the first range.
    #[must_use]
    pub fn find(self, offset: u64) -> (Option<Place>, u64) {
        let Some(within) = offset.checked_sub(self.base.into()) else {
            return (None, u64::from(self.base) - offset);
        };
        match Place::at(within).filter(|_| within < self.length.into()) {
            Some(place) => (Some(place), place.left()),
            None => (None, u64::MAX),
        }
    }
}

/// The packet memory of the adapter: blocks of [`RANGE_LEN`] bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blocks {
    /// The address of the first one.
    pub memory: GuestAddr,
    /// Their number, at most [`RANGES`].
    pub count: u32,
}

/// All address ranges, and the blocks.
#[derive(Debug)]
struct List {
    ranges: Box<[Range]>,
    blocks: Blocks,
    /// Number of transfers that were armed.
    armed: u64,
    /// Number of transfers for which there was no block at first.
    short: u32,
}

impl List {
    /// Returns the addresses of the blocks that no range has.
    fn free_blocks(&self) -> impl Iterator<Item = GuestAddr> {
        let taken: Vec<_> = self.ranges.iter().filter_map(Range::block).collect();
        let Blocks { memory, count } = self.blocks;
        let all = (0..count).map(move |nth| memory.wrapping_add(u64::from(nth * RANGE_LEN)));
        all.filter(move |block| !taken.contains(block))
    }

    /// Takes blocks from the ranges that do not need them any more, and gives them to those that
    /// wait, in the order in which they were armed.
    fn share_blocks(&mut self) {
        if self.blocks.count == 0 {
            return;
        }
        self.ranges.iter_mut().for_each(Range::give_block);
        if self.ranges.iter().all(|range| range.wants_block().is_none()) {
            return;
        }
        let free: Vec<_> = self.free_blocks().collect();
        let mut waiting: Vec<_> =
            self.ranges.iter_mut().filter(|range| range.wants_block().is_some()).collect();
        waiting.sort_by_key(|range| range.wants_block());
        waiting.into_iter().zip(free).for_each(|(range, block)| range.get_block(block));
    }
}

/// All address ranges.
#[derive(Debug)]
pub struct Ranges {
    /// The lock is held while bytes are copied, so that the memory of a transfer is not accessed
    /// after its end. Its holder may hold guest memory, and takes no other lock.
    list: Mutex<List>,
    /// The place of the ranges: the words of a [`Window`].
    window: AtomicU64,
    /// False if no transfer can exceed its time limit.
    any_live: AtomicBool,
    /// True if there are blocks.
    has_blocks: AtomicBool,
    /// The maximum number of ranges with transfers.
    max: AtomicU32,
}

impl Default for Ranges {
    fn default() -> Self {
        let ranges = (0..RANGES).map(|_| Range::default()).collect();
        let list = List { ranges, blocks: Blocks::default(), armed: 0, short: 0 };
        Self {
            list: Mutex::new(list),
            window: AtomicU64::new(Window::RESET.to_word()),
            any_live: AtomicBool::new(false),
            has_blocks: AtomicBool::new(false),
            max: AtomicU32::new(RANGES),
        }
    }
}

impl Ranges {
    /// Calls `run`, which changes nothing, with a range, if there is one with this number.
    fn look<T>(&self, range: RangeNumber, run: impl FnOnce(&mut Range) -> T) -> Option<T> {
        let index = usize::try_from(range.get()).ok()?;
        self.list.lock().ranges.get_mut(index).map(run)
    }

    /// Calls `run` with a range, if there is one with this number, and then shares out the blocks.
    fn with<T>(&self, range: RangeNumber, run: impl FnOnce(&mut Range) -> T) -> Option<T> {
        let index = usize::try_from(range.get()).ok()?;
        let mut list = self.list.lock();
        let found = list.ranges.get_mut(index).map(run);
        list.share_blocks();
        found
    }

    /// Sets the place of the ranges, and the blocks. Returns false and changes nothing if a range
    /// has a transfer.
    #[must_use]
    pub fn set_window(&self, window: Window, blocks: Blocks) -> bool {
        let mut list = self.list.lock();
        if list.ranges.iter().any(Range::is_used) {
            return false;
        }
        list.ranges.iter_mut().for_each(|range| *range = Range::default());
        (list.blocks, list.short) = (blocks, 0);
        self.has_blocks.store(blocks.count > 0, Ordering::Release);
        self.window.store(window.to_word(), Ordering::Relaxed);
        true
    }

    /// Returns whether work requests can name ranges.
    #[inline]
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        self.has_blocks.load(Ordering::Acquire)
    }

    /// Returns the place of the ranges.
    #[must_use]
    pub fn window(&self) -> Window {
        Window::from_word(self.window.load(Ordering::Relaxed))
    }

    /// Returns the registers of the window.
    #[must_use]
    pub fn window_registers(&self) -> WindowRegisters {
        let list = self.list.lock();
        let Window { base, length } = self.window();
        // CAST: at most the number of ranges.
        let count = |ranges: usize| (ranges as u32).into();
        WindowRegisters {
            base: base.into(),
            length: length.into(),
            blocks: list.blocks.count.into(),
            allocated: count(list.ranges.iter().filter_map(Range::block).count()),
            waiting: count(list.ranges.iter().filter_map(Range::wants_block).count()),
            short: list.short.into(),
        }
    }

    /// Returns the number of ranges with transfers.
    #[must_use]
    pub fn used(&self) -> usize {
        self.list.lock().ranges.iter().filter(|range| range.is_used()).count()
    }

    /// Sets the maximum number of ranges with transfers. Transfers above it stay.
    pub fn set_max(&self, max: u32) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Starts a transfer. With `may_wait`, it waits for a block if none is free. Returns `None` if
    /// there is no such range, [`Status::Busy`] if it has a transfer already, and
    /// [`Status::NoResource`] if too many ranges have one, or if there is no block.
    pub fn arm(
        &self,
        range: RangeNumber,
        transfer: Transfer,
        may_wait: bool,
    ) -> Option<Result<(), Status>> {
        let index = usize::try_from(range.get()).ok()?;
        let mut list = self.list.lock();
        let list = &mut *list;
        let used = list.ranges.iter().filter(|range| range.is_used()).count();
        let needs_block = transfer.memory == Packets::Block(None);
        let is_short = needs_block && list.free_blocks().next().is_none();
        let range = list.ranges.get_mut(index)?;
        if range.is_used() {
            return Some(Err(Status::Busy));
        }
        if used >= self.max.load(Ordering::Relaxed) as usize {
            return Some(Err(Status::NoResource));
        }
        list.short = list.short.saturating_add(is_short.into());
        if is_short && !(may_wait && list.blocks.count > 0) {
            return Some(Err(Status::NoResource));
        }
        list.armed += 1;
        if !range.arm(transfer, list.armed) {
            return Some(Err(Status::Busy));
        }
        list.share_blocks();
        self.any_live.store(true, Ordering::Release);
        Some(Ok(()))
    }

    /// Checks that a work request of the QP `user` may name these bytes of a range.
    ///
    /// # Errors
    /// See [`Range::check`]. [`Denied::Invalid`] if there is no such range.
    pub fn check(&self, place: Place, user: User, way: Direction, len: u32) -> Result<(), Denied> {
        let bytes = Bytes { within: place.within, len };
        self.look(place.range, |range| range.check(user, way, bytes))
            .unwrap_or(Err(Denied::Invalid))
    }

    /// Calls `copy` with the address of bytes of a range in its block, as soon as they can be used
    /// ([`Range::place`]): a work request of the QP `user` sends them, or a READ stores them there.
    ///
    /// # Errors
    /// [`Denied::Absent`] if they cannot be used yet, [`Denied::Memory`] if the block is not
    /// accessible, and the errors of [`Self::check`].
    pub fn by_work_request(
        &self,
        place: Place,
        user: User,
        way: Direction,
        len: u32,
        copy: impl FnOnce(GuestAddr) -> Result<(), Fault>,
    ) -> Result<(), Denied> {
        let bytes = Bytes { within: place.within, len };
        let moved = self.with(place.range, |range| {
            range.check(user, way, bytes)?;
            copy(range.place(bytes)?).map_err(|_| Denied::Memory)?;
            if way == Direction::Read { range.arrive(bytes) } else { Ok(()) }
        });
        moved.unwrap_or(Err(Denied::Invalid))
    }

    /// Returns whether bytes of a range can be used now ([`Range::place`]).
    #[must_use]
    pub fn is_ready(&self, place: Place, len: u32) -> bool {
        let bytes = Bytes { within: place.within, len };
        self.look(place.range, |range| range.place(bytes).is_ok()).unwrap_or(false)
    }

    /// Handles a burst of `len` bytes by which the controller stores (`Write`) or reads. `copy`
    /// moves the bytes at an address of packet memory.
    pub fn burst(
        &self,
        direction: Direction,
        place: Place,
        len: u32,
        copy: impl FnOnce(GuestAddr) -> Result<(), Fault>,
    ) -> Moved {
        let moved = self.with(place.range, |range| {
            let was_live = range.is_live();
            match range.burst(direction, place.within, len) {
                Burst::At(addr) => match copy(addr) {
                    Ok(()) if range.count(place.within, len) => Moved::All(range.qpn()),
                    Ok(()) => Moved::Some,
                    Err(_) => {
                        range.fail(Denied::Memory);
                        Moved::Failed(range.qpn())
                    }
                },
                Burst::Early => Moved::Early,
                Burst::Ignored if was_live && !range.is_live() => Moved::Failed(range.qpn()),
                Burst::Ignored => Moved::Nothing,
            }
        });
        moved.unwrap_or(Moved::Nothing)
    }

    /// Executes a TRANSFER of a QP.
    ///
    /// # Errors
    /// See [`Range::take`]. [`Denied::Invalid`] if there is no such range.
    pub fn take(&self, range: RangeNumber, user: User) -> Result<Taken, Denied> {
        self.with(range, |range| range.take(user)).unwrap_or(Err(Denied::Invalid))
    }

    /// Handles the driver's report that the controller has moved all bytes. Returns the QP whose
    /// TRANSFER continues, if there is one.
    #[must_use]
    pub fn finish(&self, range: RangeNumber) -> Option<Qpn> {
        self.with(range, |range| range.finish().then_some(range.qpn())).flatten()
    }

    /// Fails a transfer whose data has not arrived. Returns the QP whose TRANSFER continues, if
    /// there is one.
    #[must_use]
    pub fn give_up(&self, range: RangeNumber) -> Option<Qpn> {
        self.with(range, |range| range.give_up().then_some(range.qpn())).flatten()
    }

    /// Ends a transfer. Returns the QP whose TRANSFER may wait for it, if there is a transfer;
    /// `None` if there is no such range.
    #[must_use]
    pub fn end(&self, range: RangeNumber) -> Option<Option<Qpn>> {
        self.with(range, |range| range.end().then_some(range.qpn()))
    }

    /// Ends the transfers of a QP whose work requests are no longer executed.
    pub fn end_all_of(&self, qpn: Qpn) {
        let mut list = self.list.lock();
        for range in list.ranges.iter_mut().filter(|range| range.qpn() == qpn) {
            *range = Range::default();
        }
        list.share_blocks();
    }

    /// Fails the transfers whose time limit is over. Returns the QPs whose TRANSFERs continue. Does
    /// nothing while a burst is copied, because the caller must not wait for guest memory.
    #[must_use]
    pub fn expire(&self, now: Nanos) -> Vec<Qpn> {
        if !self.any_live.load(Ordering::Acquire) {
            return Vec::new();
        }
        let Some(mut list) = self.list.try_lock() else { return Vec::new() };
        let late = list.ranges.iter_mut().filter(|range| range.is_late(now));
        let failed = late.filter_map(|range| range.fail(Denied::Short).then_some(range.qpn()));
        let failed = failed.collect();
        list.share_blocks();
        self.any_live.store(list.ranges.iter().any(Range::is_live), Ordering::Release);
        failed
    }

    /// Returns the registers of a range, if there is one with this number.
    #[must_use]
    pub fn registers(&self, range: RangeNumber) -> Option<RangeRegisters> {
        self.with(range, |range| range.registers())
    }

    /// Removes all transfers and blocks, and sets the window as after a reset.
    pub fn clear(&self) {
        let mut list = self.list.lock();
        list.ranges.iter_mut().for_each(|range| *range = Range::default());
        (list.blocks, list.short) = (Blocks::default(), 0);
        self.has_blocks.store(false, Ordering::Release);
        self.window.store(Window::RESET.to_word(), Ordering::Relaxed);
    }
}
