// SPDX-License-Identifier: GPL-2.0
//! The address ranges of a connection.

use kernel::{
    error::to_result,
    prelude::*,
    time::{Delta, Instant, Monotonic, delay::fsleep},
};

use crate::kclient::{bindings, connection::Connection, mapped::Part};

/// Bytes of a range.
pub(crate) const LENGTH: usize = bindings::VRNIC_RANGE_LEN as usize;
/// The time between two looks at a range.
const LOOK: Delta = Delta::from_micros(100);
/// The longest time from the end of a READ to the beginning of the TRANSFER behind it.
const PATIENCE: Delta = Delta::from_secs(5);

/// Ranges of a connection, which belong to it until they are put or the connection is dropped.
pub(crate) struct Ranges<'a> {
    connection: &'a Connection,
    numbers: KVec<u32>,
}

impl<'a> Ranges<'a> {
    /// Gets some.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are not so many free ones, `EINVAL` on a device of another driver.
    pub(crate) fn get(connection: &'a Connection, count: usize) -> Result<Self> {
        let mut numbers = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            // SAFETY: the connection keeps its queue pair.
            let number = unsafe { bindings::vrnic_range_get(connection.as_raw()) };
            to_result(number.min(0))?;
            numbers.push(number.try_into()?, GFP_KERNEL)?;
        }
        Ok(Self { connection, numbers })
    }

    /// Returns the numbers of the first few.
    pub(crate) fn first(&self, count: usize) -> &[u32] {
        self.numbers.get(..count).unwrap_or_default()
    }

    /// Returns the number of one.
    pub(crate) fn number(&self, nth: usize) -> Result<u32> {
        self.numbers.get(nth).copied().ok_or(EINVAL)
    }

    /// Arms one for a transfer from or to this memory, for a WRITE or a READ.
    pub(crate) fn arm(&self, nth: usize, part: &Part, write: bool, time_limit_ms: u32) -> Result {
        let length = u32::try_from(part.len())?;
        let memory = part.address()?;
        let transfer =
            bindings::vrnic_transfer { memory, length, time_limit_ms, write, counted: false };
        let (qp, number) = (self.connection.as_raw(), self.number(nth)?);
        // SAFETY: the connection keeps its queue pair; the struct is valid.
        to_result(unsafe { bindings::vrnic_range_arm(qp, number, &transfer) })
    }

    /// Waits until the controller may read what a READ has brought. The READ has ended, so the
    /// TRANSFER behind it has begun, or is about to. Returns false if the transfer has failed.
    pub(crate) fn wait_open(&self, nth: usize) -> Result<bool> {
        let mut state = bindings::vrnic_range_state {
            count: 0,
            pci_valid: false,
            adapter_valid: false,
            failure: 0,
        };
        let (qp, number) = (self.connection.as_raw(), self.number(nth)?);
        let start = Instant::<Monotonic>::now();
        while start.elapsed() < PATIENCE {
            // SAFETY: the connection keeps its queue pair; the struct is valid.
            to_result(unsafe { bindings::vrnic_range_query(qp, number, &mut state) })?;
            match state.adapter_valid {
                _ if state.pci_valid => return Ok(true),
                true => fsleep(LOOK),
                false => return Ok(false),
            }
        }
        Err(ETIMEDOUT)
    }

    /// Ends their transfers and gives them back.
    pub(crate) fn put(&mut self) -> Result {
        for number in self.numbers.drain_all() {
            // SAFETY: the connection keeps its queue pair.
            to_result(unsafe { bindings::vrnic_range_put(self.connection.as_raw(), number) })?;
        }
        Ok(())
    }
}
