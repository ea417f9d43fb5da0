// SPDX-License-Identifier: GPL-2.0
//! Completion queues.

use abi::{
    Cqn,
    admin::{CreateCq, DeviceFeatures, ModifyCq, ResizeCq, command},
    cq::CQE_LEN,
    uar::CqState,
    uverbs::{CQ_ANY_VECTOR, CQ_HOLDING, CqReq, CqResp, Payload, ResizeCqResp},
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Mutex,
        atomic::{Atomic, Relaxed},
    },
};

use super::{
    Ctx, Verbs, ctx::KERNEL_UAR, memory::pages::PageTable, poll::KernelCq, uar::TakenSlot,
};
use crate::bindings;
use crate::hw::ring::{Ring, RingShape};
use crate::rdma::{
    self, Device,
    memory::umem::{Umem, Use},
    queues::cq::{CqInit, CqOperations, Moderation, Notify},
    requests::wc::Completions,
    user::ucontext::User,
};

/// The adapter's part of a completion queue.
pub(crate) struct Cq {
    /// The number of the queue.
    pub(super) cqn: Cqn,
    /// The completion event handler that it is bound to.
    pub(super) handler: u32,
    /// The moderation as it was last set: the count, then 16 bits of microseconds.
    pub(super) moderation: Atomic<u64>,
    /// The memory of its entries.
    memory: Memory,
}

/// The ring, by owner.
enum Memory {
    /// A process polls it.
    User { ring: Pin<KBox<Mutex<Umem>>>, _slot: TakenSlot },
    /// A kernel client polls it, through us.
    Kernel(Pin<KBox<KernelCq>>),
}

impl Cq {
    fn new(cqn: Cqn, handler: u32, memory: Memory) -> Self {
        Self { cqn, handler, moderation: Atomic::new(0), memory }
    }

    /// Returns the queue as kernel clients use it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for one that belongs to a process.
    pub(super) fn kernel(&self) -> Result<Pin<&KernelCq>> {
        match &self.memory {
            Memory::Kernel(queue) => Ok(queue.as_ref()),
            Memory::User { .. } => Err(EINVAL),
        }
    }
}

/// The creation flags of processes.
const USER_FLAGS: u32 = rdma::queues::cq::TIMESTAMPS | rdma::queues::cq::IGNORE_OVERRUN;
/// The creation flags of kernel clients.
const KERNEL_FLAGS: u32 = rdma::queues::cq::TIMESTAMPS | bindings::VRNIC_CQ_HOLDING;

#[vtable]
impl CqOperations for Verbs {
    fn create_cq(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        init: &mut CqInit<'_>,
        user: Option<&User<'_, Self>>,
    ) -> Result<Cq> {
        // Completions have timestamps, asked for or not.
        let known = if user.is_some() { USER_FLAGS } else { KERNEL_FLAGS };
        if init.flags & !known != 0 {
            return Err(EOPNOTSUPP);
        }
        if init.entries == 0 || init.entries > ctx.adapter.caps().max_cqe.get() {
            return Err(EINVAL);
        }
        match user {
            Some(user) => create_user(ctx, device, init, user),
            None => create_kernel(ctx, init),
        }
    }

    fn destroy_cq(ctx: &Ctx<'_>, cq: &rdma::queues::cq::Cq<Self>) -> Result {
        ctx.destroy::<command::DestroyCq>(&cq.cqn)?;
        ctx.adapter.remove_cq(cq.handler, cq.cqn, cq.link());
        Ok(())
    }

    fn poll_cq(
        ctx: &Ctx<'_>,
        cq: &rdma::queues::cq::Cq<Self>,
        out: &mut Completions<'_>,
    ) -> Result {
        cq.kernel()?.poll(ctx, out)
    }

    fn req_notify_cq(
        ctx: &Ctx<'_>,
        cq: &rdma::queues::cq::Cq<Self>,
        notify: Notify,
    ) -> Result<bool> {
        cq.kernel()?.arm(ctx, notify)
    }

    fn modify_cq(ctx: &Ctx<'_>, cq: &rdma::queues::cq::Cq<Self>, moderation: Moderation) -> Result {
        let params = ModifyCq::new(cq.cqn, moderation.count, moderation.period);
        ctx.execute::<command::ModifyCq>(&params)?;
        cq.moderation
            .store(u64::from(moderation.count) << 16 | u64::from(moderation.period), Relaxed);
        Ok(())
    }

    /// Moves a process' queue to another ring of the process; returns the number of entries of that
    /// ring.
    fn resize_user_cq(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        cq: &rdma::queues::cq::Cq<Self>,
        entries: u32,
        user: &User<'_, Self>,
    ) -> Result<u32> {
        let Memory::User { ring: current, .. } = &cq.memory else { return Err(EINVAL) };
        let UserRing { umem, table, log_size, holding, .. } =
            UserRing::pin(ctx, device, entries, user)?;
        if holding.is_some() {
            return Err(EINVAL);
        }
        let mut current = current.lock();
        // An answer that cannot be written fails here, where nothing has changed.
        user.data.clear()?;
        let result =
            ctx.execute::<command::ResizeCq>(&ResizeCq::new(cq.cqn, log_size, table.pages()))?;
        // The adapter no longer writes to the old ring.
        *current = umem;
        let answer = ResizeCqResp { first: result.first, ..ResizeCqResp::default() };
        // If the process has unmapped the room for the answer in the meantime, it does not learn
        // the position at which its queue continues.
        user.data.respond(&answer).inspect_err(|_| cq.link().report_error())?;
        Ok(1 << log_size)
    }
}

/// Returns the completion vector with the least load.
pub(crate) fn any_vector(ctx: &Ctx<'_>) -> u32 {
    ctx.adapter.handlers().any()
}

/// Returns the state of a kernel client's queue, as the adapter has stored it.
///
/// # Errors
///
/// `EINVAL` for a queue that belongs to a process, `EIO` if the adapter has died.
pub(crate) fn state(ctx: &Ctx<'_>, cq: &rdma::queues::cq::Cq<Verbs>) -> Result<CqState> {
    cq.kernel()?.condition(ctx)
}

/// Gives a kernel client's queue room for at least `entries`. Returns for how many.
///
/// # Errors
///
/// `EINVAL` for a queue that belongs to a process, for too many entries, and for fewer than wait in
/// the queue.
pub(crate) fn resize(ctx: &Ctx<'_>, cq: &rdma::queues::cq::Cq<Verbs>, entries: u32) -> Result<u32> {
    let queue = cq.kernel()?;
    if entries == 0 || entries > ctx.adapter.caps().max_cqe.get() {
        return Err(EINVAL);
    }
    let ring = Ring::in_pieces(ctx.dma(), RingShape::with_room(entries, CQE_LEN))?;
    let table = PageTable::of_kernel_ring(ctx.dma(), &ring)?;
    let shape = ring.shape();
    let params = ResizeCq::new(cq.cqn, shape.log_size, table.pages());
    let switch = || Ok(ctx.execute::<command::ResizeCq>(&params)?.first.get());
    if !queue.move_to(ctx, ring, switch)? {
        cq.link().report_error();
        return Err(EIO);
    }
    Ok(shape.entries())
}

fn create_user(
    ctx: &Ctx<'_>,
    device: &Device<Verbs>,
    init: &mut CqInit<'_>,
    user: &User<'_, Verbs>,
) -> Result<Cq> {
    let ring = UserRing::pin(ctx, device, init.entries, user)?;
    let slot = user.context.uars.take_slot(ctx, |area| user.context.add_mapping(area))?;
    let uar = slot.uar;
    let handler = if ring.any_vector { ctx.adapter.handlers().any() } else { init.comp_vector };
    let eqn = ctx.adapter.handlers().get(handler)?.eqn;
    let params = CreateCq::new(uar.index, eqn, ring.log_size, ring.table.pages());
    let params = match (init.flags & rdma::queues::cq::IGNORE_OVERRUN != 0, ring.holding) {
        (false, holding) => with_holding(ctx, params, holding)?,
        (true, Some(_)) => return Err(EINVAL),
        (true, None) if !ctx.adapter.caps().has(DeviceFeatures::IGNORE_OVERRUN) => {
            return Err(EOPNOTSUPP);
        }
        (true, None) => params.ignoring_overruns(),
    };
    init.granted = 1 << ring.log_size;
    let memory = KBox::pin_init(new_mutex!(ring.umem, "vrnic::Cq::ring"), GFP_KERNEL)?;
    let memory = Memory::User { ring: memory, _slot: slot };
    let result = ctx.execute::<command::CreateCq>(&params)?;
    let cqn = result.cqn;
    let memory = ctx.complete::<command::DestroyCq, _>(cqn, memory, |_| {
        user.data.respond(&CqResp {
            cqn,
            slot: result.slot,
            uar: uar.index,
            uar_mmap: uar.mmap.into(),
            vector: handler.into(),
            ..CqResp::default()
        })?;
        ctx.adapter.add_cq(handler, cqn, init.link.clone())
    })?;
    Ok(Cq::new(cqn, handler, memory))
}

/// Returns the parameters of a queue that is a holding one, if `holding` is set: the number of free
/// entries at which few are left.
fn with_holding(ctx: &Ctx<'_>, params: CreateCq, holding: Option<u32>) -> Result<CreateCq> {
    match holding {
        None => Ok(params),
        Some(_) if !ctx.adapter.caps().has(DeviceFeatures::HOLDING_CQ) => Err(EOPNOTSUPP),
        Some(few) => Ok(params.holding(few)),
    }
}

/// A ring in a process, described to the adapter.
struct UserRing {
    umem: Umem,
    table: PageTable,
    log_size: u8,
    /// True if the driver must choose the completion vector.
    any_vector: bool,
    /// For a holding CQ, the number of free entries at which few are left.
    holding: Option<u32>,
}

impl UserRing {
    /// Pins the ring that a command offers for a queue of this many entries.
    fn pin(
        ctx: &Ctx<'_>,
        device: &Device<Verbs>,
        entries: u32,
        user: &User<'_, Verbs>,
    ) -> Result<Self> {
        let request: CqReq = user.data.request(CqReq::REQUIRED)?;
        let CqReq { log_size, flags, .. } = request;
        let (holds, few) = (flags & CQ_HOLDING != 0, request.few.get());
        if request.reserved != [0; 2]
            || flags & !(CQ_ANY_VECTOR | CQ_HOLDING) != 0
            || u32::from(log_size) > abi::cq::LOG_CQES_MAX
            || !holds && few != 0
        {
            return Err(EINVAL);
        }
        let offered = 1u32 << log_size;
        if entries > offered || offered > ctx.adapter.caps().max_cqe.get() {
            return Err(EINVAL);
        }
        let buffer = request.buf.get();
        let length = u64::from(offered) * u64::from(CQE_LEN);
        let mut umem = Umem::pin(device, buffer, length, Use::Write)?;
        let table =
            PageTable::of_ring(ctx.dma(), &mut umem, ctx.adapter.caps().page_sizes.get(), buffer)?;
        let (any_vector, holding) = (flags & CQ_ANY_VECTOR != 0, holds.then_some(few));
        Ok(Self { umem, table, log_size, any_vector, holding })
    }
}

fn create_kernel(ctx: &Ctx<'_>, init: &mut CqInit<'_>) -> Result<Cq> {
    let shape = RingShape::with_room(init.entries, CQE_LEN);
    let ring = Ring::in_pieces(ctx.dma(), shape)?;
    let table = PageTable::of_kernel_ring(ctx.dma(), &ring)?;
    init.granted = ring.size();
    let holding = init.flags & bindings::VRNIC_CQ_HOLDING != 0;
    let queue = KBox::pin_init(KernelCq::new(ring, holding), GFP_KERNEL)?;
    let eqn = ctx.adapter.handlers().get(init.comp_vector)?.eqn;
    let params = CreateCq::new(KERNEL_UAR, eqn, shape.log_size, table.pages());
    let params = with_holding(ctx, params, holding.then_some(0))?;
    let result = ctx.execute::<command::CreateCq>(&params)?;
    queue.set_doorbell(result.slot);
    let cqn = result.cqn;
    let queue = ctx.complete::<command::DestroyCq, _>(cqn, queue, |_| {
        ctx.adapter.add_cq(init.comp_vector, cqn, init.link.clone())
    })?;
    Ok(Cq::new(cqn, init.comp_vector, Memory::Kernel(queue)))
}
