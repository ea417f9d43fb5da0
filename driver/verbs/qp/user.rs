// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of processes: the rings are in memory of the process, and the driver pins and
//! describes them.

use abi::{
    admin::{CreateQp, Pages, QpFlags, QpOptions, QpResult, command},
    qp::Destination,
    rss, sq,
    uar::SQ_MEMORY_UNIT,
    uverbs::{Payload, QpReq, QpReqFlags, QpResp, SpreadReq},
};
use kernel::{dma::Coherent, io::Io, prelude::*};
use zerocopy::{FromZeros, IntoBytes};

use super::params::{self, CreatedQp, asked_shape, own_cap, set_rq, set_sq};
use crate::{
    hw::ring::RingShape,
    rdma::{
        Device,
        memory::umem::{Umem, Use},
        qp_attr::{QpCap, QpType},
        queues::qp::QpInit,
        queues::wq::WqTable,
        user::ucontext::User,
    },
    verbs::{Ctx, Verbs, context::Pd, memory::pages::PageTable, uar::TakenSlot},
};

/// The memory of a process' queue pair: its pinned rings and its doorbell slot.
pub(in crate::verbs) struct UserQp {
    _sq: Option<Umem>,
    _rq: Option<Umem>,
    slot: TakenSlot,
    /// mmap offset of a send queue in device memory.
    sq_mmap: Option<u64>,
}

impl UserQp {
    /// Forbids the process to map the send queue. Without a `user`, its context ends, and the
    /// mapping with it.
    pub(super) fn unmap(&self, user: Option<&User<'_, Verbs>>) {
        if let (Some(offset), Some(user)) = (self.sq_mmap, user) {
            user.context.remove_mapping(offset);
        }
    }
}

/// A checked request.
struct Plan {
    sq: Option<RingShape>,
    rq: Option<RingShape>,
    sq_buf: u64,
    rq_buf: u64,
    flags: QpFlags,
    options: QpOptions,
    /// The place at which commands carry keys; the adapter checks it.
    tag_form: u8,
    tag_offset: u32,
}

/// Returns the number of entries of a queue that may not exist.
fn entries(queue: Option<RingShape>) -> u32 {
    queue.map_or(0, RingShape::entries)
}

impl Plan {
    /// Compares what the provider asks for with what the program gave the core.
    fn new(request: &QpReq, cap: &QpCap) -> Result<Self> {
        let asked = QpReqFlags::from_bits(request.flags.get()).ok_or(EOPNOTSUPP)?;
        if request.reserved != [0; 3] {
            return Err(EOPNOTSUPP);
        }
        let mut flags = QpFlags::empty();
        flags.set(QpFlags::SQ_IN_DEVICE, asked.contains(QpReqFlags::SQ_IN_DEVICE));
        flags.set(QpFlags::REACTIVE, asked.contains(QpReqFlags::REACTIVE));
        flags.set(QpFlags::PUSH, asked.contains(QpReqFlags::PUSH));
        flags.set(QpFlags::NO_SQ_KEYS, asked.contains(QpReqFlags::NO_SQ_KEYS));
        flags.set(QpFlags::WINDOWS_ONLY, asked.contains(QpReqFlags::WINDOWS_ONLY));
        flags.set(QpFlags::QUEUE_LENGTH, asked.contains(QpReqFlags::QUEUE_LENGTH));
        let mut options = QpOptions::empty();
        options.set(QpOptions::BLOCK_LOOPBACK, asked.contains(QpReqFlags::BLOCK_LOOPBACK));
        options.set(QpOptions::ACKNOWLEDGED, asked.contains(QpReqFlags::ACKNOWLEDGED));
        let this = Self {
            sq: asked_shape(request.sq_log_size, request.sq_log_stride),
            rq: asked_shape(request.rq_log_size, request.rq_log_stride),
            sq_buf: request.sq_buf.get(),
            rq_buf: request.rq_buf.get(),
            flags,
            options,
            tag_form: request.tag_form,
            tag_offset: request.tag_offset.get(),
        };
        if !this.sq.is_none_or(RingShape::is_send_queue)
            || !this.rq.is_none_or(RingShape::is_recv_queue)
        {
            return Err(EINVAL);
        }
        if cap.max_send_wr > entries(this.sq) || cap.max_recv_wr > entries(this.rq) {
            return Err(EINVAL);
        }
        if this.sq_in_device() && (this.sq.is_none() || this.sq_buf != 0) {
            return Err(EINVAL);
        }
        Ok(this)
    }

    fn sq_in_device(&self) -> bool {
        self.flags.contains(QpFlags::SQ_IN_DEVICE)
    }

    /// Returns the sizes that these rings give.
    fn cap(&self, destination: Destination, asked: &QpCap) -> QpCap {
        let inline = |sq: RingShape| sq::inline_capacity(destination, sq.stride());
        QpCap {
            max_send_wr: entries(self.sq),
            max_recv_wr: entries(self.rq),
            max_inline_data: self.sq.map_or(0, inline),
            ..*asked
        }
    }
}

/// A ring of a process and its description.
struct Pinned {
    memory: Umem,
    table: PageTable,
}

impl Pinned {
    fn new(ctx: &Ctx<'_>, device: &Device<Verbs>, address: u64, shape: RingShape) -> Result<Self> {
        let mut memory = Umem::pin(device, address, shape.length(), Use::Read)?;
        let page_sizes = ctx.adapter.caps().page_sizes.get();
        let table = PageTable::of_ring(ctx.dma(), &mut memory, page_sizes, address)?;
        Ok(Self { memory, table })
    }
}

pub(super) fn create(
    ctx: &Ctx<'_>,
    device: &Device<Verbs>,
    pd: &Pd,
    init: &QpInit<'_, Verbs>,
    user: &User<'_, Verbs>,
) -> Result<CreatedQp<UserQp>> {
    let request: QpReq = user.data.request(QpReq::REQUIRED)?;
    let cap = own_cap(init);
    let plan = Plan::new(&request, &cap)?;
    params::check_options(ctx, init.kind(), plan.flags, plan.options)?;
    if init.srq().is_some() && plan.rq.is_some() {
        return Err(EINVAL);
    }
    let created = create_by(ctx, device, &plan, params::params(pd, init)?, user)?;
    let destination = params::kind(init.kind())?.info().destination;
    Ok(CreatedQp { cap: plan.cap(destination, &cap), ..created })
}

/// Creates a work queue, which has no send queue.
pub(in crate::verbs) fn create_wq(
    ctx: &Ctx<'_>,
    device: &Device<Verbs>,
    params: CreateQp,
    cap: &QpCap,
    user: &User<'_, Verbs>,
) -> Result<CreatedQp<UserQp>> {
    let request: QpReq = user.data.request(QpReq::REQUIRED)?;
    let plan = Plan::new(&request, cap)?;
    if plan.sq.is_some() || plan.rq.is_none() || !plan.flags.is_empty() || !plan.options.is_empty()
    {
        return Err(EINVAL);
    }
    let created = create_by(ctx, device, &plan, params, user)?;
    Ok(CreatedQp { cap: QpCap { max_recv_wr: entries(plan.rq), ..*cap }, ..created })
}

/// Creates a queue pair with the rings of a plan.
fn create_by(
    ctx: &Ctx<'_>,
    device: &Device<Verbs>,
    plan: &Plan,
    mut params: CreateQp,
    user: &User<'_, Verbs>,
) -> Result<CreatedQp<UserQp>> {
    let slot = user.context.uars.take_slot(ctx, |area| user.context.add_mapping(area))?;
    params.uar = slot.uar.index;
    params.flags |= plan.flags.bits();
    params.options = plan.options.bits();
    params.tag_form = plan.tag_form;
    params.tag_offset = plan.tag_offset.into();
    let pin = |address, shape| Pinned::new(ctx, device, address, shape);
    let in_process = plan.sq.filter(|_| !plan.sq_in_device());
    let sq = in_process.map(|shape| pin(plan.sq_buf, shape)).transpose()?;
    let rq = plan.rq.map(|shape| pin(plan.rq_buf, shape)).transpose()?;
    if let Some(shape) = plan.sq {
        set_sq(&mut params, shape, sq.as_ref().map_or(Pages::default(), |sq| sq.table.pages()));
    }
    if let (Some(shape), Some(rq)) = (plan.rq, &rq) {
        set_rq(&mut params, shape, rq.table.pages());
    }
    // The adapter reads the tables while it executes the command.
    let (sq, _sq_table) = sq.map(|sq| (sq.memory, sq.table)).unzip();
    let (rq, _rq_table) = rq.map(|rq| (rq.memory, rq.table)).unzip();
    let memory = UserQp { _sq: sq, _rq: rq, slot, sq_mmap: None };
    execute(ctx, &params, plan.sq.filter(|_| plan.sq_in_device()), memory, user)
}

/// Creates a queue pair without queues, which spreads frames over the work queues of a table.
pub(super) fn create_spreading(
    ctx: &Ctx<'_>,
    pd: &Pd,
    init: &QpInit<'_, Verbs>,
    table: &WqTable<'_, Verbs>,
    user: &User<'_, Verbs>,
) -> Result<CreatedQp<UserQp>> {
    let cap = own_cap(init);
    if init.kind() != QpType::RAW_PACKET || cap.max_send_wr != 0 || init.srq().is_some() {
        return Err(EOPNOTSUPP);
    }
    let request: SpreadReq = user.data.request(SpreadReq::REQUIRED)?;
    let fields = u32::try_from(request.fields.get()).map_err(|_| EOPNOTSUPP)?;
    rss::Fields::from_bits(fields).ok_or(EOPNOTSUPP)?;
    let mut spread = KBox::new(rss::Spread::new_zeroed(), GFP_KERNEL)?;
    spread.fields = fields.into();
    spread.log_entries = u8::try_from(table.log_entries())?;
    spread.key = request.key;
    for (entry, (wq, _)) in spread.entries.iter_mut().zip(table.entries()) {
        *entry = wq.qpn;
    }
    // The completion queue is only a formality.
    let (_, cq) = table.entries().next().ok_or(EINVAL)?;
    let buffer = Coherent::<u8>::zeroed_slice(ctx.dma(), size_of::<rss::Spread>(), GFP_KERNEL)?;
    (&buffer).copy_from_slice(spread.as_bytes());
    let slot = user.context.uars.take_slot(ctx, |area| user.context.add_mapping(area))?;
    let params = CreateQp {
        uar: slot.uar.index,
        rq_table: buffer.dma_address().into(),
        flags: QpFlags::SPREADS.bits(),
        ..params::without_queues(pd, QpType::RAW_PACKET, cq.cqn)?
    };
    let memory = UserQp { _sq: None, _rq: None, slot, sq_mmap: None };
    execute(ctx, &params, None, memory, user)
}

/// Has the adapter create a queue pair, and tells the process of it. `device_sq` is the send queue
/// if it is in device memory.
fn execute(
    ctx: &Ctx<'_>,
    params: &CreateQp,
    device_sq: Option<RingShape>,
    memory: UserQp,
    user: &User<'_, Verbs>,
) -> Result<CreatedQp<UserQp>> {
    let result = ctx.execute::<command::CreateQp>(params)?;
    let queues = ctx.complete::<command::DestroyQp, _>(result.qpn, memory, |memory| {
        answer(ctx, device_sq, &result, memory, user).inspect_err(|_| memory.unmap(Some(user)))
    })?;
    Ok(CreatedQp { qpn: result.qpn, cap: QpCap::default(), queues })
}

/// Tells the process of a new queue pair, after making mappable what it has in the device.
fn answer(
    ctx: &Ctx<'_>,
    device_sq: Option<RingShape>,
    result: &QpResult,
    memory: &mut UserQp,
    user: &User<'_, Verbs>,
) -> Result {
    let mut response = QpResp {
        qpn: result.qpn,
        slot: result.slot,
        uar: memory.slot.uar.index,
        uar_mmap: memory.slot.uar.mmap.into(),
        ..QpResp::default()
    };
    if let Some(shape) = device_sq {
        let length = shape.length().next_multiple_of(SQ_MEMORY_UNIT.into());
        let area = ctx.adapter.sq_area(result.sq_offset.get(), length)?;
        response.sq_mmap_len = u32::try_from(length)?.into();
        let offset = user.context.add_mapping(area)?;
        memory.sq_mmap = Some(offset);
        response.sq_mmap = offset.into();
    }
    user.data.respond(&response)
}
