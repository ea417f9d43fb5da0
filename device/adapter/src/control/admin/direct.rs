//! Address ranges of direct transfers.

use std::mem::offset_of;
use std::time::Duration;

use vrnic_abi::admin::{ArmRange, RangeRegisters, SetWindow, Status, WindowRegisters};
use vrnic_abi::direct::{
    Direction, MAPPED_LEN_MAX, Notice, PacketMemory, RANGE_LEN, RANGES, TIME_LIMIT_MAX_MS,
    WINDOW_LEN,
};
use vrnic_abi::pci::BAR_WINDOW_LEN;
use vrnic_abi::qp::Type;
use vrnic_abi::{GuestAddr, RangeNumber};

use super::{Outcome, bad};
use crate::adapter::Adapter;
use crate::host::{HeldMemory, Host, Lane};
use crate::objects::direct::range::{Packets, Transfer};
use crate::objects::direct::ranges::{Blocks, Window};

pub(super) fn set_window<H: Host>(adapter: &Adapter<H>, params: &SetWindow) -> Outcome<()> {
    let SetWindow { memory, base, length, blocks, .. } = *params;
    let window = Window { base: base.get(), length: length.get() };
    let blocks = Blocks { memory, count: blocks.get() };
    if window.length > WINDOW_LEN || !window.length.is_multiple_of(RANGE_LEN) {
        return Err(bad(offset_of!(SetWindow, length)));
    }
    if u64::from(window.base) + u64::from(window.length) > BAR_WINDOW_LEN {
        return Err(bad(offset_of!(SetWindow, base)));
    }
    if blocks.count > RANGES {
        return Err(bad(offset_of!(SetWindow, blocks)));
    }
    if blocks.count > 0 {
        check(adapter, memory, blocks.count * RANGE_LEN, true)?;
    }
    if adapter.core().ranges.set_window(window, blocks) { Ok(()) } else { Err(Status::Busy.into()) }
}

pub(super) fn query_window<H: Host>(
    adapter: &Adapter<H>,
    _params: &(),
) -> Outcome<WindowRegisters> {
    Ok(adapter.core().ranges.window_registers())
}

/// Checks that packet memory is accessible at once.
fn check<H: Host>(
    adapter: &Adapter<H>,
    memory: GuestAddr,
    length: u32,
    is_stored: bool,
) -> Outcome<()> {
    let held = adapter.host().hold(Lane::SHARED);
    held.check(memory, length.into(), is_stored).map_err(|_| Status::BadAddress)?;
    if held.is_immediate(memory, length.into()) { Ok(()) } else { Err(Status::BadAddress.into()) }
}

pub(super) fn arm_range<H: Host>(adapter: &Adapter<H>, params: &ArmRange) -> Outcome<()> {
    let ArmRange { memory, range, qpn, length, time_limit_ms, .. } = *params;
    let direction =
        Direction::from_raw(params.direction).ok_or(bad(offset_of!(ArmRange, direction)))?;
    let notice = Notice::from_raw(params.notice).ok_or(bad(offset_of!(ArmRange, notice)))?;
    if params.at_once > 1 {
        return Err(bad(offset_of!(ArmRange, at_once)));
    }
    let at_once = params.at_once == 1;
    let kind = PacketMemory::from_raw(params.packet_memory)
        .ok_or(bad(offset_of!(ArmRange, packet_memory)))?;
    let by_block = kind != PacketMemory::Address;
    if by_block && notice != Notice::Counted {
        return Err(bad(offset_of!(ArmRange, notice)));
    }
    if by_block && memory.get() != 0 {
        return Err(bad(offset_of!(ArmRange, memory)));
    }
    let (length, limit) = (length.get(), time_limit_ms.get());
    let max_length = match notice {
        Notice::Counted if by_block && direction == Direction::Read => MAPPED_LEN_MAX,
        Notice::Counted => RANGE_LEN,
        Notice::Mapped => MAPPED_LEN_MAX,
    };
    if !(1..=max_length).contains(&length) {
        return Err(bad(offset_of!(ArmRange, length)));
    }
    if !(1..=TIME_LIMIT_MAX_MS).contains(&limit) {
        return Err(bad(offset_of!(ArmRange, time_limit_ms)));
    }
    let qp = adapter.qp(qpn).ok_or(Status::NotFound)?;
    if !matches!(qp.kind, Type::Rc | Type::Uc) {
        return Err(Status::Unsupported.into());
    }
    let memory = if by_block {
        Packets::Block(None)
    } else {
        check(adapter, memory, length, direction == Direction::Write)?;
        Packets::At(memory)
    };
    let deadline = adapter.host().now().plus(Duration::from_millis(limit.into()));
    let transfer =
        Transfer { qpn, domain: qp.domain, direction, notice, memory, length, deadline, at_once };
    let armed = adapter.core().ranges.arm(range, transfer, kind != PacketMemory::FreeBlock);
    Ok(armed.ok_or(bad(offset_of!(ArmRange, range)))??)
}

pub(super) fn end_range<H: Host>(adapter: &Adapter<H>, &range: &RangeNumber) -> Outcome<()> {
    let ended = adapter.core().ranges.end(range).ok_or(Status::NotFound)?;
    ended.into_iter().for_each(|qpn| adapter.resume(qpn));
    Ok(())
}

pub(super) fn query_range<H: Host>(
    adapter: &Adapter<H>,
    &range: &RangeNumber,
) -> Outcome<RangeRegisters> {
    Ok(adapter.core().ranges.registers(range).ok_or(Status::NotFound)?)
}
