// SPDX-License-Identifier: GPL-2.0
//! Address ranges of processes. A process has ranges of its own queue pairs alone, with packet
//! memory in its own device memory; the core finds both by the process's numbers.

use abi::{
    admin::DeviceFeatures,
    direct::{Direction, Notice, PacketMemory},
    uverbs::{Payload, RangeOp, RangeReq, RangeResp, range_mmap},
};
use kernel::prelude::*;

use super::{
    Ctx, Verbs,
    direct::{self, Transfer},
    dm::Dm,
    qp::{Qp, Queues},
    range_end,
};
use crate::{quota::Counted, rdma::ucontext::User};

/// Carries out a request of a process about a range of its queue pair.
pub(crate) fn run(ctx: &Ctx<'_>, qp: &Qp, dm: Option<&Dm>, user: &User<'_, Verbs>) -> Result {
    let request: RangeReq = user.data.request(RangeReq::REQUIRED)?;
    let op = RangeOp::from_raw(request.op).ok_or(EOPNOTSUPP)?;
    if request.reserved != 0 || (dm.is_some() && op != RangeOp::Arm) {
        return Err(EINVAL);
    }
    // Hardly anything is left that could fail when it has been carried out.
    user.data.clear()?;
    let (range, ranges) = (request.range, ctx.adapter.ranges());
    // Threads of the process may give a range back, which another process then gets, so the owner
    // is checked and the range is used under one lock.
    match op {
        RangeOp::Get => get(ctx, qp, user),
        RangeOp::Put => range_end::retire(ctx, qp.qpn, range, user, || direct::end(ctx, qp, range)),
        RangeOp::Arm => arm(ctx, qp, dm.ok_or(EINVAL)?, &request),
        RangeOp::Query => {
            let found = ranges.locked(|| direct::query(ctx, qp, range))?;
            user.data.respond(&RangeResp {
                range,
                count: found.count,
                pci_valid: found.pci_valid,
                adapter_valid: found.adapter_valid,
                failure: found.failure,
                ..RangeResp::default()
            })
        }
        RangeOp::Done => ranges.locked(|| direct::done(ctx, qp, range)),
    }
}

/// Gives a range to the queue pair of a process. The last step gives it, and cannot fail: the
/// process knows the numbers of all ranges, so another thread of it may arm the range from then on.
fn get(ctx: &Ctx<'_>, qp: &Qp, user: &User<'_, Verbs>) -> Result {
    if !matches!(qp.queues, Queues::User { .. }) {
        return Err(EINVAL);
    }
    let share = user.context.ranges.take(1).ok_or(ENOSPC)?;
    let lease = Counted::new(ctx.adapter.ranges().lease().ok_or(ENOSPC)?, share);
    let range = lease.range();
    let area = ctx.adapter.range_area(range)?;
    let offset = range_mmap(range).ok_or(EINVAL)?;
    user.context.add_mapping_at(offset, area, KBox::new(lease, GFP_KERNEL)?)?;
    let answer = RangeResp { range, ..RangeResp::default() };
    user.data.respond(&answer).inspect_err(|_| range_end::unmap(range, Some(user)))?;
    ctx.adapter.ranges().grant(range, qp.qpn);
    Ok(())
}

fn arm(ctx: &Ctx<'_>, qp: &Qp, dm: &Dm, request: &RangeReq) -> Result {
    if !ctx.adapter.caps().has(DeviceFeatures::READS_AT_ONCE) {
        return Err(EOPNOTSUPP);
    }
    let direction = Direction::from_raw(request.direction).ok_or(EINVAL)?;
    let notice = Notice::from_raw(request.notice).ok_or(EINVAL)?;
    let (offset, length) = (request.offset.get(), request.length.get());
    if offset.checked_add(length.into()).is_none_or(|end| end > dm.length) {
        return Err(EINVAL);
    }
    let transfer = Transfer {
        memory: dm.memory.bus_address().checked_add(offset).ok_or(EINVAL)?.into(),
        length,
        time_limit_ms: request.time_limit_ms.get(),
        write: direction == Direction::Write,
        counted: notice == Notice::Counted,
        // A load that waits would stop the whole guest.
        at_once: true,
        packet_memory: PacketMemory::Address as u8,
    };
    let arm = || direct::arm(ctx, qp, request.range, &transfer);
    ctx.adapter.ranges().arm_in(request.range, dm.memory.clone(), arm)
}
