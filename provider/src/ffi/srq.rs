// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Shared receive queues.

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_abi::uverbs::SrqResp;
use vrnic_queues::allocator::Resource;
use vrnic_queues::cq::CompletionQueue;
use vrnic_queues::heap::Shared;
use vrnic_queues::layout::SrqRing;
use vrnic_queues::request::PostError;
use vrnic_queues::srq::SharedRecvQueue;

use super::bindings as c;
use super::context::Context;
use super::object::Object;
use super::requests::request::{answer, segments};
use super::{check, commands, cq, pd, pointer, status};

/// A shared receive queue. The queue pairs that take from it share the plugin's part. libibverbs'
/// part is the extended struct, which starts with `ibv_srq`.
type Srq = Object<c::verbs_srq, Shared<SharedRecvQueue>>;

/// Returns the plugin's part of a shared receive queue; `None` for null.
///
/// # Safety
/// `srq` must be null or a queue of this plugin, live as long as the result is used.
#[inline]
pub(super) unsafe fn own<'a>(srq: *mut c::ibv_srq) -> Option<&'a Shared<SharedRecvQueue>> {
    // SAFETY: the caller passes null or a live queue of this plugin.
    unsafe { Srq::own(srq.cast()) }
}

/// Implements `create_srq`.
pub(super) unsafe extern "C" fn create(
    pd: *mut c::ibv_pd,
    attr: *mut c::ibv_srq_init_attr,
) -> *mut c::ibv_srq {
    // SAFETY: the arguments are libibverbs' own, and no other code uses `attr` meanwhile.
    pointer(unsafe { try_create(pd, &mut *attr) })
}

/// # Safety
/// `pd` must be live.
unsafe fn try_create(
    pd: *mut c::ibv_pd,
    attr: &mut c::ibv_srq_init_attr,
) -> Result<*mut c::ibv_srq, Errno> {
    // SAFETY: the caller passes a live protection domain of this plugin, whose context is live too.
    let context = unsafe { Context::of((*pd).context) }?;
    // SAFETY: the caller passes a live protection domain.
    let source = unsafe { pd::source(context, pd, Resource::Srq) };
    let ring = SrqRing::allocate(attr.attr.max_wr, attr.attr.max_sge, &context.limits, &source)?;
    let srq = Srq::begin()?;
    let base: *mut c::ibv_srq = srq.base().cast();
    // SAFETY: the objects are live, `srq` is ours.
    let response = unsafe { commands::create_srq(pd, base, attr, ring.request()) }?;
    // SAFETY: the caller passes a live protection domain.
    match unsafe { open(context, pd, None, ring, &response) } {
        Ok(queue) => Ok(srq.complete(queue).cast()),
        Err(error) => {
            // SAFETY: just created. If that fails too, the kernel destroys it with the context.
            let _ = unsafe { c::ibv_cmd_destroy_srq(base) };
            Err(error)
        }
    }
}

/// `create_srq_ex`, for shared receive queues of XRC; [`create`] makes the plain ones.
pub(super) unsafe extern "C" fn create_ex(
    context: *mut c::ibv_context,
    attr: *mut c::ibv_srq_init_attr_ex,
) -> *mut c::ibv_srq {
    // SAFETY: the arguments are libibverbs' own, and no other code uses `attr` meanwhile.
    pointer(unsafe { try_create_ex(context, &mut *attr) })
}

/// The attributes that an SRQ of XRC must have.
const OF_XRC: u32 = c::IBV_SRQ_INIT_ATTR_TYPE
    | c::IBV_SRQ_INIT_ATTR_PD
    | c::IBV_SRQ_INIT_ATTR_XRCD
    | c::IBV_SRQ_INIT_ATTR_CQ;

/// # Safety
/// The context and the objects in `attr` must be live.
unsafe fn try_create_ex(
    context: *mut c::ibv_context,
    attr: &mut c::ibv_srq_init_attr_ex,
) -> Result<*mut c::ibv_srq, Errno> {
    if attr.comp_mask & c::IBV_SRQ_INIT_ATTR_TYPE == 0 || attr.srq_type != c::IBV_SRQT_XRC {
        return Err(Errno::OPNOTSUPP);
    }
    if attr.comp_mask != OF_XRC {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller passes a live context and attributes whose completion queue is null or
    // live.
    let (own, cq) = unsafe { (Context::of(context), cq::own(attr.cq)) };
    let (own, cq) = (own?, cq.ok_or(Errno::INVAL)?);
    // SAFETY: the caller passes attributes whose protection domain is null or live.
    let source = unsafe { pd::source(own, attr.pd, Resource::Srq) };
    let ring = SrqRing::allocate(attr.attr.max_wr, attr.attr.max_sge, &own.limits, &source)?;
    let srq = Srq::begin()?;
    // SAFETY: the objects are live, `srq` is ours.
    let response = unsafe { commands::create_srq_ex(context, srq.base(), attr, ring.request()) }?;
    // SAFETY: the caller passes a live protection domain.
    match unsafe { open(own, attr.pd, Some(cq.clone()), ring, &response) } {
        Ok(queue) => Ok(srq.complete(queue).cast()),
        Err(error) => {
            // SAFETY: just created. If that fails too, the kernel destroys it with the context.
            let _ = unsafe { c::ibv_cmd_destroy_srq(srq.base().cast()) };
            Err(error)
        }
    }
}

/// Implements `get_srq_num`.
pub(super) unsafe extern "C" fn number(srq: *mut c::ibv_srq, number: *mut u32) -> c_int {
    let base: *mut c::verbs_srq = srq.cast();
    // SAFETY: made by us, live; the result is the caller's.
    unsafe {
        if (*base).srq_type != c::IBV_SRQT_XRC {
            return status(Err(Errno::OPNOTSUPP));
        }
        *number = (*base).srq_num;
    }
    0
}

/// # Safety
/// `pd` must be live.
unsafe fn open(
    context: &Context,
    pd: *mut c::ibv_pd,
    cq: Option<Shared<CompletionQueue>>,
    ring: SrqRing,
    response: &SrqResp,
) -> Result<Shared<SharedRecvQueue>, Errno> {
    let uar = context.uar(response.uar, response.uar_mmap.get())?;
    // SAFETY: the caller passes a live protection domain.
    let sharing = unsafe { pd::sharing(pd) };
    Shared::new(SharedRecvQueue::new(ring, response, uar, sharing, cq)?)
}

/// Implements `modify_srq`.
pub(super) unsafe extern "C" fn modify(
    srq: *mut c::ibv_srq,
    attr: *mut c::ibv_srq_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the arguments are libibverbs' own, and no other code uses `attr` meanwhile.
    status(unsafe { try_modify(srq, &mut *attr, mask) })
}

/// # Safety
/// `srq` must be live.
unsafe fn try_modify(
    srq: *mut c::ibv_srq,
    attr: &mut c::ibv_srq_attr,
    mask: c_int,
) -> Result<(), Errno> {
    if mask == 0 {
        return Ok(());
    }
    if mask.cast_unsigned() & c::IBV_SRQ_MAX_WR == 0 {
        let mut command = c::ibv_modify_srq::default();
        // SAFETY: the queue is live; the command has the given length.
        return check(unsafe {
            c::ibv_cmd_modify_srq(srq, attr, mask, &raw mut command, size_of_val(&command))
        });
    }
    // SAFETY: the caller passes a live queue of this plugin, and so its domain is live, too.
    let (queue, context, domain) = unsafe { (own(srq), Context::of((*srq).context), (*srq).pd) };
    let (queue, context) = (queue.ok_or(Errno::INVAL)?, context?);
    // SAFETY: the domain is live, as said above.
    let source = unsafe { pd::source(context, domain, Resource::Srq) };
    let ring = SrqRing::allocate(attr.max_wr, queue.max_sge(), &context.limits, &source)?;
    let resizes = c::IBV_SRQ_MAX_WR.cast_signed();
    // SAFETY: the queue is live.
    queue.resize(ring, |request| unsafe { commands::resize_srq(srq, attr, resizes, request) })?;
    // The limit is set by a command of its own, which may be refused: the queue has its new size.
    // SAFETY: the caller passes a live queue.
    unsafe { try_modify(srq, attr, mask & !resizes) }
}

/// Implements `query_srq`.
pub(super) unsafe extern "C" fn query(srq: *mut c::ibv_srq, attr: *mut c::ibv_srq_attr) -> c_int {
    let mut command = c::ibv_query_srq::default();
    // SAFETY: the arguments are libibverbs' own; the command has the given length.
    status(check(unsafe {
        c::ibv_cmd_query_srq(srq, attr, &raw mut command, size_of_val(&command))
    }))
}

/// Implements `destroy_srq`.
pub(super) unsafe extern "C" fn destroy(srq: *mut c::ibv_srq) -> c_int {
    // SAFETY: made by `create`, live, and given up by the caller if this succeeds.
    unsafe { Srq::destroy(srq, c::ibv_cmd_destroy_srq) }
}

/// Implements `post_srq_recv`.
pub(super) unsafe extern "C" fn post_recv(
    srq: *mut c::ibv_srq,
    list: *mut c::ibv_recv_wr,
    bad: *mut *mut c::ibv_recv_wr,
) -> c_int {
    // SAFETY: live by libibverbs' promise.
    let Some(queue) = (unsafe { own(srq) }) else { return status(Err(Errno::INVAL)) };
    let mut next = list;
    // SAFETY: the list is valid by libibverbs' promise.
    let posted = unsafe { recv_list(queue, &mut next) };
    // SAFETY: valid by libibverbs' promise.
    unsafe { answer(posted, next, bad) }
}

/// Posts requests up to the end of the list; on an error `next` is the request that was refused.
///
/// # Safety
/// `next` must be null or start a valid list.
unsafe fn recv_list(
    queue: &SharedRecvQueue,
    next: &mut *mut c::ibv_recv_wr,
) -> Result<(), PostError> {
    let mut batch = queue.recvs();
    // SAFETY: the caller passes null or a valid list, of which this is the rest.
    while let Some(request) = unsafe { next.as_ref() } {
        // SAFETY: the request is part of the caller's list, which is valid: it has the given number
        // of segments.
        batch.push(request.wr_id, unsafe { segments(request.sg_list, request.num_sge) }?)?;
        *next = request.next;
    }
    Ok(())
}
