// SPDX-License-Identifier: GPL-2.0
//! Address ranges of processes. A process has only ranges of its own queue pairs, with packet
//! memory in its own device memory, or in a block of the adapter, which it cannot name. The core
//! finds queue pair and device memory by the process's numbers.

use abi::{
    GuestAddr,
    admin::DeviceFeatures,
    direct::{Direction, Notice, PacketMemory},
    uverbs::{Payload, RangeOp, RangeReq, RangeResp, range_mmap},
};
use kernel::prelude::*;

use super::{
    Ctx, Verbs,
    direct::{self, Transfer},
    memory::dm::Dm,
    qp::{Qp, Queues},
    range_end,
};
use crate::{direct::quota::Counted, rdma::user::ucontext::User};

/// Carries out a request of a process about a range of its queue pair.
pub(crate) fn run(ctx: &Ctx<'_>, qp: &Qp, dm: Option<&Dm>, user: &User<'_, Verbs>) -> Result {
    let request: RangeReq = user.data.request(RangeReq::REQUIRED)?;
    let op = RangeOp::from_raw(request.op).ok_or(EOPNOTSUPP)?;
    let is_plain = request.packet_memory == PacketMemory::Address as u8;
    if op != RangeOp::Arm && (dm.is_some() || !is_plain) {
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
        RangeOp::Arm => arm(ctx, qp, dm, &request),
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
    let share = user.context.quotas.ranges.take(1).ok_or(ENOSPC)?;
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

fn arm(ctx: &Ctx<'_>, qp: &Qp, dm: Option<&Dm>, request: &RangeReq) -> Result {
    if !ctx.adapter.caps().has(DeviceFeatures::READS_AT_ONCE) {
        return Err(EOPNOTSUPP);
    }
    let direction = Direction::from_raw(request.direction).ok_or(EINVAL)?;
    let notice = Notice::from_raw(request.notice).ok_or(EINVAL)?;
    let transfer = Transfer {
        memory: GuestAddr::default(),
        length: request.length.get(),
        time_limit_ms: request.time_limit_ms.get(),
        write: direction == Direction::Write,
        counted: notice == Notice::Counted,
        // A load that waits would stop the whole guest.
        at_once: true,
        packet_memory: request.packet_memory,
    };
    match (PacketMemory::from_raw(request.packet_memory), dm) {
        (Some(PacketMemory::Address), Some(dm)) => arm_in(ctx, qp, dm, request, transfer),
        (Some(PacketMemory::FreeBlock), None) => arm_through(ctx, qp, request, &transfer),
        _ => Err(EINVAL),
    }
}

/// Arms a range with packet memory in device memory of the process.
fn arm_in(ctx: &Ctx<'_>, qp: &Qp, dm: &Dm, request: &RangeReq, transfer: Transfer) -> Result {
    let offset = request.offset.get();
    if offset.checked_add(transfer.length.into()).is_none_or(|end| end > dm.length) {
        return Err(EINVAL);
    }
    let memory = dm.memory.bus_address().checked_add(offset).ok_or(EINVAL)?.into();
    let transfer = Transfer { memory, ..transfer };
    let arm = || direct::arm(ctx, qp, request.range, &transfer);
    ctx.adapter.ranges().arm_in(request.range, dm.memory.clone(), arm)
}

/// Arms a range with a free block of the adapter. It does not wait for one, because ranges of
/// kernel clients would wait behind it.
fn arm_through(ctx: &Ctx<'_>, qp: &Qp, request: &RangeReq, transfer: &Transfer) -> Result {
    if !ctx.adapter.has_blocks() {
        return Err(EOPNOTSUPP);
    }
    if request.offset.get() != 0 {
        return Err(EINVAL);
    }
    let arm = || direct::arm(ctx, qp, request.range, transfer);
    ctx.adapter.ranges().arm_through(request.range, || {
        // The adapter has too few blocks or ranges.
        arm().map_err(|error| if error == ENOMEM { ENOSPC } else { error })
    })
}
