//! Address ranges of direct transfers.

use std::mem::offset_of;
use std::time::Duration;

use vrnic_abi::RangeNumber;
use vrnic_abi::admin::{ArmRange, RangeRegisters, Status};
use vrnic_abi::direct::{Direction, MAPPED_LEN_MAX, Notice, RANGE_LEN, TIME_LIMIT_MAX_MS};
use vrnic_abi::qp::Type;

use super::{Outcome, bad};
use crate::adapter::Adapter;
use crate::host::{HeldMemory, Host, Lane};
use crate::objects::range::Transfer;

pub(super) fn arm_range<H: Host>(adapter: &Adapter<H>, params: &ArmRange) -> Outcome<()> {
    let ArmRange { memory, range, qpn, length, time_limit_ms, .. } = *params;
    let direction =
        Direction::from_raw(params.direction).ok_or(bad(offset_of!(ArmRange, direction)))?;
    let notice = Notice::from_raw(params.notice).ok_or(bad(offset_of!(ArmRange, notice)))?;
    if params.at_once > 1 {
        return Err(bad(offset_of!(ArmRange, at_once)));
    }
    let at_once = params.at_once == 1;
    let (length, limit) = (length.get(), time_limit_ms.get());
    let max_length = match notice {
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
    let held = adapter.host().hold(Lane::SHARED);
    let is_stored = direction == Direction::Write;
    held.check(memory, length.into(), is_stored).map_err(|_| Status::BadAddress)?;
    if !held.is_immediate(memory, length.into()) {
        return Err(Status::BadAddress.into());
    }
    drop(held);
    let deadline = adapter.host().now().plus(Duration::from_millis(limit.into()));
    let transfer =
        Transfer { qpn, domain: qp.domain, direction, notice, memory, length, deadline, at_once };
    let armed = adapter.core().ranges.arm(range, transfer);
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
