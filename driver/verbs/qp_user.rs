// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of processes: the rings are theirs, we pin and describe them.

use abi::{
    admin::{CreateQp, QpFlags, QpResult, command},
    sq,
    uar::SQ_MEMORY_UNIT,
    uverbs::{Payload, QpReq, QpReqFlags, QpResp},
};
use kernel::prelude::*;

use super::{
    Ctx, Verbs,
    context::Pd,
    pages::PageTable,
    qp_params::{self, Shape, own_cap},
    uar::TakenSlot,
};
use crate::rdma::{
    Device,
    qp::QpInit,
    qp_attr::{QpCap, QpType},
    udata::User,
    umem::{Umem, Use},
};

/// The memory of a process' queue pair: its pinned rings and its doorbell slot.
pub(super) struct UserQp {
    _sq: Option<Umem>,
    _rq: Option<Umem>,
    slot: TakenSlot,
    /// mmap offset of a send queue in device memory.
    sq_mmap: Option<u64>,
}

impl UserQp {
    /// The process may no longer map the send queue. Without a `user` its context goes, and the
    /// mapping with it.
    pub(super) fn unmap(&self, user: Option<&User<'_, Verbs>>) {
        if let (Some(offset), Some(user)) = (self.sq_mmap, user) {
            user.context.remove_mapping(offset);
        }
    }
}

/// A checked request.
struct Plan {
    sq: Shape,
    rq: Shape,
    sq_buf: u64,
    rq_buf: u64,
    sq_in_device: bool,
    flags: QpFlags,
    /// The place at which commands carry keys; the adapter checks it.
    tag_form: u8,
    tag_offset: u32,
}

impl Plan {
    /// Checks what the provider asks for against what the core was told.
    fn new(request: &QpReq, cap: &QpCap) -> Result<Self> {
        let asked = QpReqFlags::from_bits(request.flags.get()).ok_or(EOPNOTSUPP)?;
        if request.reserved != [0; 3] {
            return Err(EOPNOTSUPP);
        }
        let mut flags = QpFlags::empty();
        flags.set(QpFlags::SQ_IN_DEVICE, asked.contains(QpReqFlags::SQ_IN_DEVICE));
        flags.set(QpFlags::REACTIVE, asked.contains(QpReqFlags::REACTIVE));
        let this = Self {
            sq: Shape { log_size: request.sq_log_size, log_stride: request.sq_log_stride },
            rq: Shape { log_size: request.rq_log_size, log_stride: request.rq_log_stride },
            sq_buf: request.sq_buf.get(),
            rq_buf: request.rq_buf.get(),
            sq_in_device: asked.contains(QpReqFlags::SQ_IN_DEVICE),
            flags,
            tag_form: request.tag_form,
            tag_offset: request.tag_offset.get(),
        };
        let sq_ok = !this.sq.exists()
            || u32::from(this.sq.log_size) <= sq::LOG_WQES_MAX
                && this.sq.has_stride(sq::STRIDE_MIN, sq::STRIDE_MAX);
        let rq_ok = !this.rq.exists() || this.rq.is_recv_queue();
        if !sq_ok || !rq_ok {
            return Err(EINVAL);
        }
        if cap.max_send_wr > this.sq.entries() || cap.max_recv_wr > this.rq.entries() {
            return Err(EINVAL);
        }
        if this.sq_in_device && (!this.sq.exists() || this.sq_buf != 0) {
            return Err(EINVAL);
        }
        Ok(this)
    }

    /// The sizes that these rings give.
    fn cap(&self, kind: QpType, asked: &QpCap) -> QpCap {
        QpCap {
            max_send_wr: self.sq.entries(),
            max_recv_wr: self.rq.entries(),
            max_inline_data: match kind {
                _ if !self.sq.exists() => 0,
                QpType::XRC_INI => sq::xrc_inline_capacity(self.sq.stride()),
                kind if kind.is_datagram() => sq::datagram_inline_capacity(self.sq.stride()),
                _ => sq::inline_capacity(self.sq.stride()),
            },
            ..*asked
        }
    }

    /// Pins and describes the rings that are in the process.
    fn pin(
        &self,
        ctx: &Ctx<'_>,
        device: &Device<Verbs>,
        params: &mut CreateQp,
    ) -> Result<(Pinned, Pinned)> {
        let sq = if self.sq.exists() && !self.sq_in_device {
            Pinned::new(ctx, device, self.sq_buf, self.sq.length())?
        } else {
            Pinned::none()
        };
        let rq = if self.rq.exists() {
            Pinned::new(ctx, device, self.rq_buf, self.rq.length())?
        } else {
            Pinned::none()
        };
        let (sq_pages, rq_pages) = (sq.table.pages(), rq.table.pages());
        params.sq_table = sq_pages.table;
        params.sq_page_shift = sq_pages.page_shift;
        params.sq_levels = sq_pages.levels;
        params.rq_table = rq_pages.table;
        params.rq_page_shift = rq_pages.page_shift;
        params.rq_levels = rq_pages.levels;
        params.sq_log_size = self.sq.log_size;
        params.sq_log_stride = if self.sq.exists() { self.sq.log_stride } else { 0 };
        params.rq_log_size = self.rq.log_size;
        params.rq_log_stride = if self.rq.exists() { self.rq.log_stride } else { 0 };
        params.flags |= self.flags.bits();
        params.tag_form = self.tag_form;
        params.tag_offset = self.tag_offset.into();
        Ok((sq, rq))
    }
}

/// A ring of a process and its description.
struct Pinned {
    memory: Option<Umem>,
    table: PageTable,
}

impl Pinned {
    fn new(ctx: &Ctx<'_>, device: &Device<Verbs>, address: u64, length: u64) -> Result<Self> {
        let mut umem = Umem::pin(device, address, length, Use::Read)?;
        let page_sizes = ctx.adapter.caps().page_sizes.get();
        let table = PageTable::of_ring(ctx.dma(), &mut umem, page_sizes, address)?;
        Ok(Self { memory: Some(umem), table })
    }

    fn none() -> Self {
        Self { memory: None, table: PageTable::none() }
    }
}

pub(super) fn create(
    ctx: &Ctx<'_>,
    device: &Device<Verbs>,
    pd: &Pd,
    init: &QpInit<'_, Verbs>,
    user: &User<'_, Verbs>,
) -> Result<(QpCap, UserQp, u32)> {
    let request: QpReq = user.data.request(QpReq::REQUIRED)?;
    let cap = own_cap(init);
    let plan = Plan::new(&request, &cap)?;
    if init.srq().is_some() && plan.rq.exists() {
        return Err(EINVAL);
    }
    let slot = user.context.uars.take_slot(ctx, |area| user.context.add_mapping(area))?;
    let mut params = qp_params::params(pd, init, slot.uar.index)?;
    let (sq, rq) = plan.pin(ctx, device, &mut params)?;
    let memory = UserQp { _sq: sq.memory, _rq: rq.memory, slot, sq_mmap: None };
    let result = ctx.execute::<command::CreateQp>(&params)?;
    let qpn = result.qpn.get();
    let memory = ctx.complete::<command::DestroyQp, _>(result.qpn, memory, |memory| {
        answer(ctx, &plan, &result, memory, user).inspect_err(|_| memory.unmap(Some(user)))
    })?;
    Ok((plan.cap(init.kind(), &cap), memory, qpn))
}

/// Tells the process of a new queue pair, after making mappable what it has in the device.
fn answer(
    ctx: &Ctx<'_>,
    plan: &Plan,
    result: &QpResult,
    memory: &mut UserQp,
    user: &User<'_, Verbs>,
) -> Result {
    let mut response = QpResp {
        qpn: result.qpn,
        slot: result.slot,
        uar: memory.slot.uar.index.into(),
        uar_mmap: memory.slot.uar.mmap.into(),
        ..QpResp::default()
    };
    if plan.sq_in_device {
        let length = plan.sq.length().next_multiple_of(SQ_MEMORY_UNIT.into());
        let area = ctx.adapter.sq_area(result.sq_offset.get(), length)?;
        response.sq_mmap_len = u32::try_from(length)?.into();
        let offset = user.context.add_mapping(area)?;
        memory.sq_mmap = Some(offset);
        response.sq_mmap = offset.into();
    }
    user.data.respond(&response)
}
