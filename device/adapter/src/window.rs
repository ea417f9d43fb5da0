//! The window, BAR4: accesses of another PCI device, and the ends of transfers.

use vrnic_abi::direct::{Direction, Place};
use vrnic_abi::{GuestAddr, Qpn, RangeNumber};

use crate::adapter::Adapter;
use crate::host::{HeldMemory, Host, Lane};
use crate::objects::direct::ranges::{Moved, Window};

/// A read of the window that waits for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The range whose data has not arrived yet.
    pub range: RangeNumber,
    /// Number of bytes before it that have been read. The rest must be read again.
    pub done: usize,
}

/// Returns the place of the first part of an access of `len` bytes at `offset` in BAR4, if it is in
/// a range, and the length of this part.
fn first_part(window: Window, offset: u64, len: usize) -> (Option<Place>, u32) {
    let (place, room) = window.find(offset);
    // CAST: accesses are shorter than 4 GiB; BAR4 is.
    (place, room.min(len as u64) as u32)
}

impl<H: Host> Adapter<H> {
    /// Handles a store of a controller at this offset in BAR4. Bytes outside of ranges are ignored.
    pub fn store_in_window(&self, mut offset: u64, mut from: &[u8]) {
        let window = self.core().ranges.window();
        while !from.is_empty() {
            let (place, len) = first_part(window, offset, from.len());
            let Some((part, rest)) = from.split_at_checked(len as usize) else { break };
            if let Some(place) = place {
                let held = self.host().hold(Lane::SHARED);
                let copy = |addr: GuestAddr| held.write(addr, part);
                let moved = self.core().ranges.burst(Direction::Write, place, len, copy);
                drop(held);
                if let Moved::All(qpn) | Moved::Failed(qpn) = moved {
                    self.resume(qpn);
                }
            }
            (offset, from) = (offset.saturating_add(len.into()), rest);
        }
    }

    /// Handles a read of a controller at this offset in BAR4. Bytes that cannot be read are ones.
    ///
    /// # Errors
    /// Returns an error if data has not arrived yet. The caller reads the rest later, or calls
    /// [`Self::fail_early`].
    pub fn read_window(&self, mut offset: u64, into: &mut [u8]) -> Result<(), Awaited> {
        let window = self.core().ranges.window();
        let (mut done, mut rest) = (0, into);
        while !rest.is_empty() {
            let (place, len) = first_part(window, offset, rest.len());
            let whole = std::mem::take(&mut rest);
            let Some((part, behind)) = whole.split_at_mut_checked(len as usize) else { break };
            if let Some(place) = place {
                let held = self.host().hold(Lane::SHARED);
                let copy = |addr: GuestAddr| held.read(addr, &mut *part);
                let moved = self.core().ranges.burst(Direction::Read, place, len, copy);
                drop(held);
                match moved {
                    Moved::Some => {}
                    Moved::All(qpn) => self.resume(qpn),
                    Moved::Failed(qpn) => {
                        part.fill(0xff);
                        self.resume(qpn);
                    }
                    Moved::Nothing => part.fill(0xff),
                    Moved::Early => return Err(Awaited { range: place.range, done }),
                }
            } else {
                part.fill(0xff);
            }
            (offset, done, rest) = (offset.saturating_add(len.into()), done + len as usize, behind);
        }
        Ok(())
    }

    /// Fails the transfer of a range that a controller has read and whose data does not arrive,
    /// unless the data has just arrived.
    pub fn fail_early(&self, range: RangeNumber) {
        self.core().ranges.give_up(range).into_iter().for_each(|qpn| self.resume(qpn));
    }

    /// Handles the driver's report that the controller has moved all bytes of this range.
    pub(crate) fn finish_range(&self, range: RangeNumber) {
        self.core().ranges.finish(range).into_iter().for_each(|qpn| self.resume(qpn));
    }

    /// Fails the transfers whose time limit is over, and continues AWAITs whose mark was stored
    /// without a ring of the doorbell.
    pub(crate) fn expire_transfers(&self) {
        let now = self.host().now();
        self.core().ranges.expire(now).into_iter().for_each(|qpn| self.resume(qpn));
        self.core().mark_waits.retain_waiting(|qpn, keep| {
            let Some(qp) = self.qp(qpn) else { return false };
            if qp.mark_wait.is_late(now) || qp.is_marked(self.host()) {
                qp.schedule(self.core());
            }
            keep(&qp.mark_wait)
        });
    }

    /// Schedules a QP whose TRANSFER may continue.
    pub(crate) fn resume(&self, qpn: Qpn) {
        if let Some(qp) = self.qp(qpn) {
            qp.schedule(self.core());
        }
    }
}
