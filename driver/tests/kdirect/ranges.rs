// SPDX-License-Identifier: GPL-2.0
//! The address ranges of a connection, or the marks that take their place.

use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc,
    time::{Delta, Instant, Monotonic, delay::fsleep},
};

use crate::kclient::{
    bindings,
    connection::Connection,
    mapped::Part,
    request::Request,
    work::{InRange, Op},
};

/// Bytes of a range.
pub(crate) const LENGTH: usize = bindings::VRNIC_RANGE_LEN as usize;
/// The time between two looks at a range.
const POLL_INTERVAL: Delta = Delta::from_micros(100);
/// The longest time from the end of a READ to the beginning of the TRANSFER after it.
const TIMEOUT: Delta = Delta::from_secs(5);

/// The event that ends a transfer.
pub(crate) type End = crate::bindings::kdirect_end;

/// The way in which the adapter learns which bytes the disk's controller has moved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The module writes the number of a range when the disk has done its work.
    Done,
    /// The module stores a mark then.
    Mark,
    /// The controller uses the window, and the adapter counts the bytes.
    Window,
    /// As [`Self::Window`], but a READ of any length uses one range.
    OneRange,
}

impl Way {
    /// Returns the way with this number.
    pub(crate) fn from_number(number: u32) -> Result<Self> {
        match number {
            0 => Ok(Self::Done),
            1 => Ok(Self::Mark),
            2 => Ok(Self::Window),
            3 => Ok(Self::OneRange),
            _ => Err(EINVAL),
        }
    }

    /// Returns whether the controller uses the window.
    fn is_by_window(self) -> bool {
        matches!(self, Self::Window | Self::OneRange)
    }
}

/// Ranges of a connection, which belong to it until they are put or the connection is dropped; or
/// the words of its queue pair.
pub(crate) struct Ranges<'a> {
    connection: &'a Connection,
    ends: KVec<End>,
    way: Way,
    /// The last mark.
    mark: u32,
}

impl<'a> Ranges<'a> {
    /// Gets some ranges, or as many words.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are not this many free ones, `EINVAL` on a device of another driver.
    pub(crate) fn get(connection: &'a Connection, count: usize, way: Way) -> Result<Self> {
        let mut ends = KVec::with_capacity(count, GFP_KERNEL)?;
        for nth in 0..count {
            let number = match way {
                Way::Mark => nth.try_into()?,
                // SAFETY: the connection keeps its queue pair.
                _ => unsafe { bindings::vrnic_range_get(connection.as_raw()) },
            };
            to_result(number.min(0))?;
            ends.push(End { number: number.try_into()?, mark: 0 }, GFP_KERNEL)?;
        }
        Ok(Self { connection, ends, way, mark: 0 })
    }

    /// Returns what ends the transfers of the first few.
    pub(crate) fn first(&self, count: usize) -> &[End] {
        self.ends.get(..count).unwrap_or_default()
    }

    /// Returns what ends the transfer of the first one, this many times.
    pub(crate) fn first_again(&self, times: usize) -> Result<KVec<End>> {
        let End { number, mark } = *self.ends.first().ok_or(EINVAL)?;
        let mut ends = KVec::with_capacity(times, GFP_KERNEL)?;
        for _ in 0..times {
            ends.push(End { number, mark }, GFP_KERNEL)?;
        }
        Ok(ends)
    }

    /// Returns the way in which transfers end.
    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Returns the first bytes of a range, for a request.
    pub(crate) fn part(&self, nth: usize, length: usize) -> Result<InRange> {
        let range = self.ends.get(nth).ok_or(EINVAL)?.number;
        Ok(InRange { range, within: 0, length: length.try_into()? })
    }

    /// Begins a transfer from or to this memory, or through a block of the adapter, for a WRITE or
    /// a READ.
    pub(crate) fn arm(
        &mut self,
        nth: usize,
        part: &Part,
        write: bool,
        time_limit_ms: u32,
    ) -> Result {
        let end = self.ends.get_mut(nth).ok_or(EINVAL)?;
        if self.way == Way::Mark {
            self.mark += 1;
            end.mark = self.mark;
            return Ok(());
        }
        let by_window = self.way.is_by_window();
        let kind = match by_window {
            true => bindings::vrnic_packet_memory_VRNIC_PACKET_BLOCK,
            false => bindings::vrnic_packet_memory_VRNIC_PACKET_ADDRESS,
        };
        let transfer = bindings::vrnic_transfer {
            memory: if by_window { 0 } else { part.address()? },
            length: u32::try_from(part.len())?,
            time_limit_ms,
            write,
            counted: by_window,
            // One range is read while its data comes.
            at_once: self.way != Way::OneRange,
            packet_memory: kind.try_into()?,
        };
        let qp = self.connection.as_raw();
        // SAFETY: the connection keeps its queue pair; the struct is valid.
        to_result(unsafe { bindings::vrnic_range_arm(qp, end.number, &transfer) })
    }

    /// Posts the request that waits for the end of the transfer.
    pub(crate) fn post(&self, nth: usize, request: &Arc<Request>, time_limit_ms: u32) -> Result {
        let End { number, mark } = *self.ends.get(nth).ok_or(EINVAL)?;
        if mark == 0 {
            return self.connection.transfer(request, number);
        }
        self.connection.await_mark(request, &Op::Await { word: number, mark, time_limit_ms })
    }

    /// Waits until the controller may read what a READ has brought. The READ has ended, so the
    /// TRANSFER after it has begun, or is about to; a mark may come before its AWAIT has begun.
    /// Returns false if the transfer has failed.
    pub(crate) fn wait_open(&self, nth: usize) -> Result<bool> {
        let End { number, mark } = *self.ends.get(nth).ok_or(EINVAL)?;
        if mark != 0 {
            return Ok(true);
        }
        let mut state = bindings::vrnic_range_state {
            count: 0,
            pci_valid: false,
            adapter_valid: false,
            failure: 0,
        };
        let qp = self.connection.as_raw();
        let start = Instant::<Monotonic>::now();
        while start.elapsed() < TIMEOUT {
            // SAFETY: the connection keeps its queue pair; the struct is valid.
            to_result(unsafe { bindings::vrnic_range_query(qp, number, &mut state) })?;
            match state.adapter_valid {
                _ if state.pci_valid => return Ok(true),
                true => fsleep(POLL_INTERVAL),
                false => return Ok(false),
            }
        }
        Err(ETIMEDOUT)
    }

    /// Ends their transfers, which fail, and gives the ranges back.
    pub(crate) fn put(&mut self) -> Result {
        let qp = self.connection.as_raw();
        for End { number, mark } in self.ends.drain_all() {
            let put = match (self.way, mark) {
                (Way::Mark, 0) => 0,
                // SAFETY: the connection keeps its queue pair. Any word and any mark may be given.
                (Way::Mark, _) => unsafe { bindings::vrnic_mark(qp, number, mark, true) },
                // SAFETY: the connection keeps its queue pair.
                _ => unsafe { bindings::vrnic_range_put(qp, number) },
            };
            to_result(put)?;
        }
        Ok(())
    }
}
