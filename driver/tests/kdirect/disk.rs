// SPDX-License-Identifier: GPL-2.0
//! The disk.

use core::{ops::Range, ptr::NonNull};

use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
};

use crate::{
    bindings,
    kclient::{self, connection::Connection, mapped::Mapped},
};

/// Bytes of a sector.
pub(crate) const SECTOR: usize = 512;

/// A disk whose controller reaches memory of other PCI devices; closed on drop.
///
/// # Invariants
///
/// The pointer refers to an open file of a block device, which this type owns.
pub(crate) struct Disk(NonNull<kclient::bindings::file>);

// SAFETY: files may be used and closed by any thread.
unsafe impl Send for Disk {}
// SAFETY: requests may be submitted by several threads at a time.
unsafe impl Sync for Disk {}

impl Disk {
    /// Opens the disk of this number.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if it does not reach other devices' memory.
    pub(crate) fn open(number: u32) -> Result<Self> {
        // SAFETY: any number may be tried.
        let file = from_err_ptr(unsafe { bindings::kdirect_open(number) })?;
        // INVARIANT: opened just now.
        Ok(Self(NonNull::new(file).ok_or(ENODEV)?))
    }

    /// Moves a part of packet memory, which is one piece, to the disk or from there. When the
    /// controller has moved all bytes, and before this returns, the transfers end.
    pub(crate) fn transfer(
        &self,
        write: bool,
        sector: u64,
        (memory, part): (&Mapped, Range<usize>),
        connection: &Connection,
        ends: &[bindings::kdirect_end],
    ) -> Result {
        let start = memory.starts().next().ok_or(EINVAL)?;
        let length = part.end.checked_sub(part.start).ok_or(EINVAL)?;
        if part.end > memory.len() || length % SECTOR != 0 || length == 0 {
            return Err(EINVAL);
        }
        let (qp, file) = (connection.as_raw(), self.0.as_ptr());
        let (length, count) = (u32::try_from(length)?, u32::try_from(ends.len())?);
        let start = start.wrapping_add(part.start).cast();
        // SAFETY: the file is open by the type's invariants. The part lies in the memory, which is
        // one piece of a device's (anything else is refused), and lives during the call, as do the
        // queue pair and the ends.
        to_result(unsafe {
            bindings::kdirect_move(file, write, sector, start, length, qp, ends.as_ptr(), count)
        })
    }
}

/// The disks of a server.
pub(crate) struct Disks {
    first: Disk,
    second: Option<Disk>,
}

impl Disks {
    /// Opens the disks of these numbers; zero means that there is no second one.
    ///
    /// # Errors
    ///
    /// As for [`Disk::open`].
    pub(crate) fn open(first: u32, second: u32) -> Result<Self> {
        let second = if second == 0 { None } else { Some(Disk::open(second)?) };
        Ok(Self { first: Disk::open(first)?, second })
    }

    /// Returns the disk for transfers that do not use the window.
    pub(crate) fn first(&self) -> &Disk {
        &self.first
    }

    /// Moves bytes of the disks to the ranges of `ends`, or from there. Of two disks, each has
    /// every other range, and half of the sectors.
    pub(crate) fn transfer_through(
        &self,
        write: bool,
        sector: u64,
        length: usize,
        connection: &Connection,
        ends: &[bindings::kdirect_end],
    ) -> Result {
        let second = self.second.as_ref().map_or(core::ptr::null_mut(), |disk| disk.0.as_ptr());
        let transfer = bindings::kdirect_transfer {
            disks: [self.first.0.as_ptr(), second],
            write,
            sector,
            length: u32::try_from(length)?,
            qp: connection.as_raw(),
            ends: ends.as_ptr(),
            count: u32::try_from(ends.len())?,
        };
        // SAFETY: the files are open by the invariants of `Disk`; the queue pair and the ends live
        // during the call. The controllers reach nothing but the window, for whatever ranges.
        to_result(unsafe { bindings::kdirect_move_through(&transfer) })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants the file is this type's own.
        unsafe { bindings::kdirect_close(self.0.as_ptr()) };
    }
}

/// Continues a CRC-32 of the kind that gzip uses, which starts at zero.
pub(crate) fn crc(crc: u32, bytes: &[u8]) -> u32 {
    // SAFETY: the bytes are there.
    unsafe { bindings::kdirect_crc(crc, bytes.as_ptr().cast(), bytes.len()) }
}
