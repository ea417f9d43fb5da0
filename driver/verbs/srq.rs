// SPDX-License-Identifier: GPL-2.0
//! Shared receive queues.

use abi::{
    SlotIndex, Srqn,
    admin::{CreateSrq, DeviceFeatures, ModifySrq, ResizeSrq, SrqType, command},
    rq,
    sq::MemFlags,
    uverbs::{Payload, SrqReq, SrqResp},
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc, Mutex,
        atomic::{Atomic, Relaxed},
    },
};

use super::{
    Ctx, Verbs, ctx::KERNEL_UAR, memory::pages::PageTable, post::WorkQueue, uar::TakenSlot,
};
use crate::hw::ring::{Ring, RingShape};
use crate::rdma::{
    self, Device,
    memory::umem::{Umem, Use},
    queues::srq::{NewSrq, SrqChange, SrqInit, SrqKind, SrqOperations, SrqQuery, SrqSize},
    requests::recv_wr::RecvWrs,
    user::ucontext::User,
};

/// The adapter's part of a shared receive queue.
pub(crate) struct Srq {
    /// The number of the queue.
    pub(super) srqn: Srqn,
    max_sge: u32,
    /// The number of its entries.
    entries: Atomic<u32>,
    memory: Memory,
}

/// The ring, by owner.
enum Memory {
    /// A process posts, without us.
    User { ring: Pin<KBox<Mutex<UserRing>>>, _slot: TakenSlot },
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
    /// The doorbell slot, once the adapter has the queue.
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

/// A ring in a process.
struct UserRing {
    _umem: Umem,
    shape: RingShape,
}

impl UserRing {
    /// Pins the ring that a command offers, and describes it to the adapter.
    fn pin(
        ctx: &Ctx<'_>,
        device: &Device<Verbs>,
        SrqSize { max_wr, max_sge }: SrqSize,
        user: &User<'_, Verbs>,
    ) -> Result<(Self, PageTable)> {
        let request: SrqReq = user.data.request(SrqReq::REQUIRED)?;
        let shape = RingShape { log_size: request.log_size, log_stride: request.log_stride };
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
        Ok((Self { _umem: umem, shape }, table))
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
        init.set_size(SrqSize { max_wr: entries, max_sge });
        let driver = Srq { srqn, max_sge, entries: Atomic::new(entries), memory };
        Ok(NewSrq { number: srqn.get(), driver })
    }

    /// Changes the size, the limit, or first the size and then the limit. A limit that the new size
    /// does not permit is refused before.
    fn modify_srq(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        srq: &rdma::queues::srq::Srq<Self>,
        change: SrqChange,
        user: Option<&User<'_, Self>>,
    ) -> Result {
        match (change.max_wr, user) {
            (Some(_), Some(user)) => resize_user(ctx, device, srq, &change, user)?,
            // The queues of kernel clients keep their size.
            (Some(_), None) => return Err(EOPNOTSUPP),
            (None, Some(user)) => user.data.no_request()?,
            (None, None) => {}
        }
        if let Some(limit) = change.limit {
            if limit > srq.entries.load(Relaxed) {
                return Err(EINVAL);
            }
            ctx.execute::<command::ModifySrq>(&ModifySrq::new(srq.srqn, limit))?;
        }
        Ok(())
    }

    fn query_srq(ctx: &Ctx<'_>, srq: &rdma::queues::srq::Srq<Self>) -> Result<SrqQuery> {
        let status = ctx.execute::<command::QuerySrq>(&srq.srqn)?;
        let size = SrqSize { max_wr: srq.entries.load(Relaxed), max_sge: srq.max_sge };
        Ok(SrqQuery { size, limit: status.limit.get() })
    }

    fn destroy_srq(ctx: &Ctx<'_>, srq: &rdma::queues::srq::Srq<Self>) -> Result {
        ctx.destroy::<command::DestroySrq>(&srq.srqn)?;
        ctx.adapter.remove_srq(srq.srqn, srq.link());
        Ok(())
    }

    fn post_srq_recv(
        ctx: &Ctx<'_>,
        srq: &rdma::queues::srq::Srq<Self>,
        wrs: &mut RecvWrs<'_>,
    ) -> Result {
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
    let (ring, table) = UserRing::pin(ctx, device, init.size(), user)?;
    let shape = ring.shape;
    let slot = user.context.uars.take_slot(ctx, |area| user.context.add_mapping(area))?;
    let uar = slot.uar;
    params.pages = table.pages();
    params.uar = uar.index;
    (params.log_size, params.log_stride) = (shape.log_size, shape.log_stride);
    let ring = KBox::pin_init(new_mutex!(ring, "vrnic::Srq::ring"), GFP_KERNEL)?;
    let result = ctx.execute::<command::CreateSrq>(&params)?;
    let memory = ctx.complete::<command::DestroySrq, _>(
        result.srqn,
        Memory::User { ring, _slot: slot },
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

/// Moves a process' queue to another ring of the process, which contains the posted receives
/// already.
///
/// # Errors
///
/// `EINVAL` if the ring has another stride, or fewer entries than the new limit, `EBUSY` if it has
/// too few entries for the receives that are posted, or for the limit.
fn resize_user(
    ctx: &Ctx<'_>,
    device: &Device<Verbs>,
    srq: &Srq,
    change: &SrqChange,
    user: &User<'_, Verbs>,
) -> Result {
    let max_wr = change.max_wr.unwrap_or(0);
    let Memory::User { ring: current, .. } = &srq.memory else { return Err(EINVAL) };
    let caps = ctx.adapter.caps();
    if !caps.has(DeviceFeatures::RESIZE_SRQ) {
        return Err(EOPNOTSUPP);
    }
    if max_wr == 0 || max_wr > caps.max_wr.get() {
        return Err(EINVAL);
    }
    let size = SrqSize { max_wr, max_sge: srq.max_sge };
    let (ring, table) = UserRing::pin(ctx, device, size, user)?;
    let RingShape { log_size, log_stride } = ring.shape;
    let entries = ring.shape.entries();
    if change.limit.is_some_and(|limit| limit > entries) {
        return Err(EINVAL);
    }
    let mut current = current.lock();
    if log_stride != current.shape.log_stride {
        return Err(EINVAL);
    }
    ctx.execute::<command::ResizeSrq>(&ResizeSrq::new(srq.srqn, log_size, table.pages()))?;
    // The adapter no longer reads the old ring.
    *current = ring;
    srq.entries.store(entries, Relaxed);
    Ok(())
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
