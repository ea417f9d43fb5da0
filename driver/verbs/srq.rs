// SPDX-License-Identifier: GPL-2.0
//! Shared receive queues.

use abi::{
    SlotIndex, Srqn,
    admin::{CreateSrq, ModifySrq, SrqType, command},
    rq,
    sq::MemFlags,
    uverbs::{Payload, SrqReq, SrqResp},
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
};

use super::{Ctx, Verbs, ctx::KERNEL_UAR, pages::PageTable, post::WorkQueue, uar::TakenSlot};
use crate::hw::ring::{Ring, RingShape};
use crate::rdma::{
    self, Device,
    recv_wr::RecvWrs,
    srq::{NewSrq, SrqChange, SrqInit, SrqKind, SrqOperations, SrqQuery, SrqSize},
    ucontext::User,
    umem::{Umem, Use},
};

/// The adapter's part of a shared receive queue.
pub(crate) struct Srq {
    /// Its number.
    pub(super) srqn: Srqn,
    size: SrqSize,
    memory: Memory,
}

/// The ring, by owner.
enum Memory {
    /// A process posts, without us.
    User { _ring: Umem, _slot: TakenSlot },
    /// A kernel client posts, through us.
    Kernel(Arc<KernelSrq>),
}

impl Srq {
    /// Returns the queue as kernel clients use it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for one that belongs to a process.
    pub(super) fn kernel(&self) -> Result<&Arc<KernelSrq>> {
        match &self.memory {
            Memory::Kernel(queue) => Ok(queue),
            Memory::User { .. } => Err(EINVAL),
        }
    }
}

/// The queue of a kernel client.
#[pin_data]
pub(super) struct KernelSrq {
    /// Its doorbell slot, once the adapter has it.
    doorbell: Atomic<u32>,
    /// The queue itself.
    #[pin]
    queue: WorkQueue,
}

impl KernelSrq {
    /// Posts receive work requests.
    pub(super) fn post_recv(&self, ctx: &Ctx<'_>, wrs: &mut RecvWrs<'_>) -> Result {
        let bells = ctx.adapter.doorbells();
        let slot = SlotIndex::new(self.doorbell.load(Relaxed));
        self.queue.recv_shared(wrs, || bells.srq_freed(slot), |pi| bells.set_srq_pi(slot, pi))
    }

    /// Records that a completion has shown that the entries up to and including `index` are free.
    pub(super) fn free(&self, index: u32) {
        self.queue.free_shared(index);
    }
}

/// A queue that the adapter has created.
struct Created {
    srqn: Srqn,
    /// The number of its entries.
    entries: u32,
    memory: Memory,
}

#[vtable]
impl SrqOperations for Verbs {
    fn create_srq(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        pd: &rdma::pd::Pd<Self>,
        init: &mut SrqInit<'_, Self>,
        user: Option<&User<'_, Self>>,
    ) -> Result<NewSrq<Srq>> {
        let SrqSize { max_wr, max_sge } = init.size();
        let caps = ctx.adapter.caps();
        if max_wr == 0 || max_wr > caps.max_wr.get() || max_sge > caps.max_sge.get() {
            return Err(EINVAL);
        }
        let mut params = CreateSrq { pdn: pd.pdn, ..CreateSrq::default() };
        if let SrqKind::Xrc { xrcd, cq } = init.kind()? {
            // CAST: the enum's number.
            params.srq_type = SrqType::Xrc as u8;
            params.xrcdn = xrcd.xrcdn;
            params.cqn = cq.cqn;
        }
        let Created { srqn, entries, memory } = match user {
            Some(user) => create_user(ctx, device, params, init, user)?,
            None => create_kernel(ctx, params, init)?,
        };
        let memory = ctx.complete::<command::DestroySrq, _>(srqn, memory, |_| {
            ctx.adapter.add_srq(srqn, init.link.clone())
        })?;
        let size = SrqSize { max_wr: entries, max_sge };
        init.set_size(size);
        Ok(NewSrq { number: srqn.get(), driver: Srq { srqn, size, memory } })
    }

    fn modify_srq(ctx: &Ctx<'_>, srq: &rdma::srq::Srq<Self>, change: SrqChange) -> Result {
        if change.max_wr.is_some() {
            return Err(EOPNOTSUPP);
        }
        if let Some(limit) = change.limit {
            if limit > srq.size.max_wr {
                return Err(EINVAL);
            }
            ctx.execute::<command::ModifySrq>(&ModifySrq::new(srq.srqn, limit))?;
        }
        Ok(())
    }

    fn query_srq(ctx: &Ctx<'_>, srq: &rdma::srq::Srq<Self>) -> Result<SrqQuery> {
        let status = ctx.execute::<command::QuerySrq>(&srq.srqn)?;
        Ok(SrqQuery { size: srq.size, limit: status.limit.get() })
    }

    fn destroy_srq(ctx: &Ctx<'_>, srq: &rdma::srq::Srq<Self>) -> Result {
        ctx.destroy::<command::DestroySrq>(&srq.srqn)?;
        ctx.adapter.remove_srq(srq.srqn, srq.link());
        Ok(())
    }

    fn post_srq_recv(ctx: &Ctx<'_>, srq: &rdma::srq::Srq<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        srq.kernel()?.post_recv(ctx, wrs)
    }
}

fn create_user(
    ctx: &Ctx<'_>,
    device: &Device<Verbs>,
    mut params: CreateSrq,
    init: &SrqInit<'_, Verbs>,
    user: &User<'_, Verbs>,
) -> Result<Created> {
    let request: SrqReq = user.data.request(SrqReq::REQUIRED)?;
    let shape = RingShape { log_size: request.log_size, log_stride: request.log_stride };
    let SrqSize { max_wr, max_sge } = init.size();
    if request.reserved != [0; 6]
        || !shape.is_recv_queue()
        || max_wr > shape.entries()
        || rq::stride(max_sge).is_none_or(|stride| stride > shape.stride())
    {
        return Err(EINVAL);
    }
    let buffer = request.buf.get();
    let mut umem = Umem::pin(device, buffer, shape.length(), Use::Read)?;
    let table =
        PageTable::of_ring(ctx.dma(), &mut umem, ctx.adapter.caps().page_sizes.get(), buffer)?;
    let slot = user.context.uars.take_slot(ctx, |area| user.context.add_mapping(area))?;
    let uar = slot.uar;
    params.pages = table.pages();
    params.uar = uar.index;
    (params.log_size, params.log_stride) = (shape.log_size, shape.log_stride);
    let result = ctx.execute::<command::CreateSrq>(&params)?;
    let memory = ctx.complete::<command::DestroySrq, _>(
        result.srqn,
        Memory::User { _ring: umem, _slot: slot },
        |_| {
            user.data.respond(&SrqResp {
                srqn: result.srqn,
                slot: result.slot,
                uar: uar.index,
                uar_mmap: uar.mmap.into(),
                ..SrqResp::default()
            })
        },
    )?;
    Ok(Created { srqn: result.srqn, entries: shape.entries(), memory })
}

fn create_kernel(
    ctx: &Ctx<'_>,
    mut params: CreateSrq,
    init: &SrqInit<'_, Verbs>,
) -> Result<Created> {
    let SrqSize { max_wr, max_sge } = init.size();
    let stride = rq::stride(max_sge).ok_or(EINVAL)?;
    let shape = RingShape::with_room(max_wr, stride);
    let ring = Ring::in_pieces(ctx.dma(), shape)?;
    let table = PageTable::of_kernel_ring(ctx.dma(), &ring)?;
    params.pages = table.pages();
    params.uar = KERNEL_UAR;
    (params.log_size, params.log_stride) = (shape.log_size, shape.log_stride);
    let queue = Arc::pin_init(
        pin_init!(KernelSrq {
            doorbell: Atomic::new(0),
            queue <- WorkQueue::new(Some(ring), max_sge, MemFlags::empty()),
        }),
        GFP_KERNEL,
    )?;
    let result = ctx.execute::<command::CreateSrq>(&params)?;
    queue.doorbell.store(result.slot.get(), Relaxed);
    let memory = Memory::Kernel(queue);
    Ok(Created { srqn: result.srqn, entries: shape.entries(), memory })
}
