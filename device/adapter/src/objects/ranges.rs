//! The address ranges of an adapter.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use vrnic_abi::admin::{RangeRegisters, Status};
use vrnic_abi::direct::{Direction, Place, RANGES};
use vrnic_abi::{GuestAddr, Qpn, RangeNumber};
use vrnic_packet::Nanos;

use crate::domain::User;
use crate::host::Fault;
use crate::memory::tpt::Denied;
use crate::objects::range::{Burst, Range, Taken, Transfer};

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

/// All address ranges.
#[derive(Debug)]
pub struct Ranges {
    /// The lock is held while bytes of a burst are copied, so that the memory of a transfer is not
    /// written after its end. Its holder may hold guest memory, and takes no other lock.
    list: Mutex<Box<[Range]>>,
    /// False if no transfer can exceed its time limit.
    any_live: AtomicBool,
    /// The maximum number of ranges with transfers.
    max: AtomicU32,
}

impl Default for Ranges {
    fn default() -> Self {
        let list = (0..RANGES).map(|_| Range::default()).collect();
        Self {
            list: Mutex::new(list),
            any_live: AtomicBool::new(false),
            max: AtomicU32::new(RANGES),
        }
    }
}

impl Ranges {
    /// Calls `run` with a range, if there is one with this number.
    fn with<T>(&self, range: RangeNumber, run: impl FnOnce(&mut Range) -> T) -> Option<T> {
        let index = usize::try_from(range.get()).ok()?;
        self.list.lock().get_mut(index).map(run)
    }

    /// Returns the number of ranges with transfers.
    #[must_use]
    pub fn used(&self) -> usize {
        self.list.lock().iter().filter(|range| range.is_used()).count()
    }

    /// Sets the maximum number of ranges with transfers. Transfers above it stay.
    pub fn set_max(&self, max: u32) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Starts a transfer. Returns `None` if there is no such range, [`Status::Busy`] if it has a
    /// transfer already, and [`Status::NoResource`] if too many ranges have one.
    pub fn arm(&self, range: RangeNumber, transfer: Transfer) -> Option<Result<(), Status>> {
        let index = usize::try_from(range.get()).ok()?;
        let mut list = self.list.lock();
        let used = list.iter().filter(|range| range.is_used()).count();
        let range = list.get_mut(index)?;
        if !range.is_used() && used >= self.max.load(Ordering::Relaxed) as usize {
            return Some(Err(Status::NoResource));
        }
        if !range.arm(transfer) {
            return Some(Err(Status::Busy));
        }
        self.any_live.store(true, Ordering::Release);
        Some(Ok(()))
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
        for range in self.list.lock().iter_mut().filter(|range| range.qpn() == qpn) {
            *range = Range::default();
        }
    }

    /// Fails the transfers whose time limit is over. Returns the QPs whose TRANSFERs continue. Does
    /// nothing while a burst is copied, because the caller must not wait for guest memory.
    #[must_use]
    pub fn expire(&self, now: Nanos) -> Vec<Qpn> {
        if !self.any_live.load(Ordering::Acquire) {
            return Vec::new();
        }
        let Some(mut list) = self.list.try_lock() else { return Vec::new() };
        let late = list.iter_mut().filter(|range| range.is_late(now));
        let qpns = late.filter_map(|range| range.fail(Denied::Short).then_some(range.qpn()));
        let qpns = qpns.collect();
        self.any_live.store(list.iter().any(Range::is_live), Ordering::Release);
        qpns
    }

    /// Returns the registers of a range, if there is one with this number.
    #[must_use]
    pub fn registers(&self, range: RangeNumber) -> Option<RangeRegisters> {
        self.with(range, |range| range.registers())
    }

    /// Removes all transfers.
    pub fn clear(&self) {
        self.list.lock().iter_mut().for_each(|range| *range = Range::default());
    }
}
