// SPDX-License-Identifier: GPL-2.0
//! Address ranges of direct transfers: what the ranges of kernel clients and of processes have in
//! common.

use abi::{
    GuestAddr, RangeNumber,
    admin::{ArmRange, DeviceFeatures, RangeRegisters, command},
    direct::{Direction, MARK_FAILED, MARKS, Notice},
};
use kernel::{ffi::c_void, prelude::*};

use super::{Ctx, qp::Qp};

/// The parameters that a range is armed with.
pub(crate) struct Transfer {
    /// The bus address of the first byte in packet memory.
    pub(crate) memory: GuestAddr,
    /// Number of bytes.
    pub(crate) length: u32,
    /// Milliseconds until it fails.
    pub(crate) time_limit_ms: u32,
    /// True for a WRITE, false for a READ.
    pub(crate) write: bool,
    /// True if the adapter counts the bytes in the window.
    pub(crate) counted: bool,
    /// True if loads from the window do not wait for data.
    pub(crate) at_once: bool,
    /// A [`abi::direct::PacketMemory`].
    pub(crate) packet_memory: u8,
}

/// Gives a free range to a queue pair.
///
/// # Errors
///
/// `ENOSPC` if there is none, `EINVAL` for the queue pair of a process.
pub(crate) fn get(ctx: &Ctx<'_>, qp: &Qp) -> Result<RangeNumber> {
    qp.kernel()?;
    ctx.adapter.ranges().take(qp.qpn).ok_or(ENOSPC)
}

/// Ends the transfer of a range and takes it from its queue pair.
pub(crate) fn put(ctx: &Ctx<'_>, qp: &Qp, range: RangeNumber) -> Result {
    end(ctx, qp, range)?;
    ctx.adapter.ranges().give_back(range, qp.qpn);
    Ok(())
}

/// Ends the transfer of a range.
pub(super) fn end(ctx: &Ctx<'_>, qp: &Qp, range: RangeNumber) -> Result {
    check(ctx, qp, range)?;
    ctx.destroy::<command::EndRange>(&range)
}

/// Arms a range.
pub(crate) fn arm(ctx: &Ctx<'_>, qp: &Qp, range: RangeNumber, transfer: &Transfer) -> Result {
    check(ctx, qp, range)?;
    let direction = if transfer.write { Direction::Write } else { Direction::Read };
    let notice = if transfer.counted { Notice::Counted } else { Notice::Mapped };
    ctx.execute::<command::ArmRange>(&ArmRange {
        memory: transfer.memory,
        range,
        qpn: qp.qpn,
        length: transfer.length.into(),
        time_limit_ms: transfer.time_limit_ms.into(),
        // CAST: the enums' numbers.
        direction: direction as u8,
        notice: notice as u8,
        at_once: transfer.at_once.into(),
        packet_memory: transfer.packet_memory,
        ..ArmRange::default()
    })
}

/// Returns the kernel's address of a range in the window.
///
/// # Errors
///
/// `EOPNOTSUPP` if the kernel has not accepted the window.
pub(crate) fn page(ctx: &Ctx<'_>, qp: &Qp, range: RangeNumber) -> Result<*mut c_void> {
    check(ctx, qp, range)?;
    ctx.adapter.range_page(range)
}

/// Returns the registers of a range.
pub(crate) fn query(ctx: &Ctx<'_>, qp: &Qp, range: RangeNumber) -> Result<RangeRegisters> {
    check(ctx, qp, range)?;
    ctx.execute::<command::QueryRange>(&range)
}

/// Tells the adapter that the controller has moved all bytes of a range. Does not sleep.
///
/// # Errors
///
/// `EINVAL` if the queue pair does not have the range, `EIO` if the adapter has died.
pub(crate) fn done(ctx: &Ctx<'_>, qp: &Qp, range: RangeNumber) -> Result {
    check(ctx, qp, range)?;
    check_alive(ctx)?;
    ctx.adapter.set_range_done(range);
    Ok(())
}

/// Tells the adapter that the transfer of a mark has ended, or has failed if the mark has the bit
/// [`MARK_FAILED`]. Does not sleep.
///
/// # Errors
///
/// `EOPNOTSUPP` if the adapter has no AWAIT, `EINVAL` for the queue pair of a process and for a
/// number that is out of bounds, `EIO` if the adapter has died.
pub(crate) fn mark(ctx: &Ctx<'_>, qp: &Qp, word: u32, mark: u32) -> Result {
    if !ctx.adapter.caps().has(DeviceFeatures::AWAIT) {
        return Err(EOPNOTSUPP);
    }
    if word >= MARKS || mark & !MARK_FAILED == 0 {
        return Err(EINVAL);
    }
    let doorbell = qp.kernel()?.doorbell();
    check_alive(ctx)?;
    ctx.adapter.doorbells().mark(doorbell, word, mark);
    Ok(())
}

/// Fails if the adapter has died: an access to one that has stalled stops the machine for seconds.
fn check_alive(ctx: &Ctx<'_>) -> Result {
    if ctx.adapter.is_dead() { Err(EIO) } else { Ok(()) }
}

/// Fails unless the queue pair has the range.
fn check(ctx: &Ctx<'_>, qp: &Qp, range: RangeNumber) -> Result {
    ctx.adapter.ranges().is_of(range, qp.qpn).then_some(()).ok_or(EINVAL)
}
