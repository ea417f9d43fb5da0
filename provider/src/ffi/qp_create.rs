// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Making queue pairs.

use rustix::io::Errno;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::uverbs::{Features, QpResp};
use vrnic_queues::allocator::Resource;
use vrnic_queues::layout::{QpCap, QpExtras, QpLayout, QpRings, WqeHeader};
use vrnic_queues::policy::SqPolicy;
use vrnic_queues::qp::{QpParts, QueuePair};

use super::bindings as c;
use super::context::Context;
use super::qp::{self, Own, Qp};
use super::requests::builder::Builder;
use super::{commands, cq, pd, pointer, srq, wq, wr, xrc};

/// Implements `create_qp`.
pub(super) unsafe extern "C" fn create(
    pd: *mut c::ibv_pd,
    attr: *mut c::ibv_qp_init_attr,
) -> *mut c::ibv_qp {
    // SAFETY: the arguments are libibverbs' own, and no other code uses `attr` meanwhile.
    pointer(unsafe { try_create(pd, &mut *attr, QpExtras::default()) })
}

/// Attributes that may be given.
const ATTRIBUTES: u32 = c::IBV_QP_INIT_ATTR_PD
    | c::IBV_QP_INIT_ATTR_CREATE_FLAGS
    | c::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
    | c::IBV_QP_INIT_ATTR_MAX_TSO_HEADER;

/// `create_qp_ex`: also XRC targets, queue pairs that spread frames over work queues, and queue
/// pairs with the newer interface for posting.
pub(super) unsafe extern "C" fn create_ex(
    context: *mut c::ibv_context,
    attr: *mut c::ibv_qp_init_attr_ex,
) -> *mut c::ibv_qp {
    // SAFETY: the arguments are libibverbs' own, and no other code uses `attr` meanwhile.
    let extended = unsafe { &mut *attr };
    if extended.qp_type == c::IBV_QPT_XRC_RECV {
        // SAFETY: the arguments are libibverbs' own.
        return pointer(unsafe { xrc::create_target(context, extended) });
    }
    if extended.comp_mask & c::IBV_QP_INIT_ATTR_IND_TABLE != 0 {
        // SAFETY: the arguments are libibverbs' own.
        return pointer(unsafe { wq::create_spreading(context, extended) });
    }
    // SAFETY: the arguments are libibverbs' own.
    pointer(unsafe { try_create_ex(extended) })
}

/// # Safety
/// The objects in `attr` must be live.
unsafe fn try_create_ex(attr: &mut c::ibv_qp_init_attr_ex) -> Result<*mut c::ibv_qp, Errno> {
    let given = |attribute: u32| attr.comp_mask & attribute != 0;
    let flags = if given(c::IBV_QP_INIT_ATTR_CREATE_FLAGS) { attr.create_flags } else { 0 };
    if attr.comp_mask & !ATTRIBUTES != 0 || flags & !c::IBV_QP_CREATE_BLOCK_SELF_MCAST_LB != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if !given(c::IBV_QP_INIT_ATTR_PD) {
        return Err(Errno::INVAL);
    }
    let operations = given(c::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(attr.send_ops_flags);
    let max_headers = match given(c::IBV_QP_INIT_ATTR_MAX_TSO_HEADER) {
        true => attr.max_tso_header.into(),
        false => 0,
    };
    let (pd, kind) = (attr.pd, attr.qp_type);
    let plain: *mut c::ibv_qp_init_attr = std::ptr::from_mut(attr).cast();
    // SAFETY: the caller passes a live protection domain of this plugin, whose context is live too.
    let features = unsafe { Context::of((*pd).context) }?.features();
    let block_loopback = flags != 0;
    if block_loopback && (kind != c::IBV_QPT_UD || !features.contains(Features::BLOCK_LOOPBACK)) {
        return Err(Errno::OPNOTSUPP);
    }
    let extras = QpExtras { max_headers, block_loopback, ..QpExtras::default() };
    // SAFETY: the caller passes attributes whose objects are live. The extended struct begins as
    // the plain one does, so libibverbs too passes it on.
    let qp = unsafe { try_create(pd, &mut *plain, extras) }?;
    if let Some(operations) = operations
        // SAFETY: just made.
        && let Err(error) = unsafe { wr::set_up(qp, kind, operations, features) }
    {
        // SAFETY: just made, and no code knows it. If that fails, the kernel destroys it with the
        // context.
        let _ = unsafe { qp::destroy(qp) };
        return Err(error);
    }
    Ok(qp)
}

/// Creates a queue pair, with properties that verbs cannot ask for.
///
/// # Safety
/// `pd` and the objects in `attr` must be live.
pub(super) unsafe fn try_create(
    pd: *mut c::ibv_pd,
    attr: &mut c::ibv_qp_init_attr,
    extras: QpExtras,
) -> Result<*mut c::ibv_qp, Errno> {
    let kind = wr::qp_type(attr.qp_type).ok_or(Errno::OPNOTSUPP)?;
    if kind == Type::Toe && !extras.toe {
        return Err(Errno::OPNOTSUPP);
    }
    let header = WqeHeader::of(kind);
    let extras = QpExtras { header, ..extras };
    // SAFETY: the caller passes a live protection domain of this plugin, whose context is live too.
    let context = unsafe { Context::of((*pd).context) }?;
    if header == WqeHeader::Raw {
        context.needs(Features::RAW_PACKET)?;
    }
    if extras.commands.is_some() {
        context.needs(Features::COMMANDS)?;
    }
    if extras.no_sq_keys || extras.windows_only {
        context.needs(Features::KEY_OPTIONS)?;
    }
    if extras.acknowledged || extras.by_length && !extras.toe {
        context.needs(Features::ACKNOWLEDGED)?;
    }
    if extras.toe {
        context.needs(Features::TOE)?;
    }
    // With a shared receive queue it has none of its own; an initiator receives nothing.
    let (max_recv_wr, max_recv_sge) = match attr.srq.is_null() && header != WqeHeader::Xrc {
        true => (attr.cap.max_recv_wr, attr.cap.max_recv_sge),
        false => (0, 0),
    };
    let cap = QpCap {
        max_send_wr: attr.cap.max_send_wr,
        max_recv_wr,
        max_send_sge: attr.cap.max_send_sge,
        max_recv_sge,
        max_inline: attr.cap.max_inline_data,
    };
    let layout = QpLayout::new(&cap, &context.limits, context.sq_policy, extras)?;
    // SAFETY: the caller passes a live protection domain and attributes whose objects are live.
    let first = unsafe { create_with(context, pd, attr, &cap, layout) };
    match first {
        // The adapter's memory is used up; the program did not insist on it.
        Err(Errno::NOMEM) if layout.send_in_device && context.sq_policy == SqPolicy::Auto => {
            // SAFETY: the caller passes a live protection domain and attributes whose objects are
            // live.
            unsafe { create_with(context, pd, attr, &cap, layout.in_guest()) }
        }
        result => result,
    }
}

/// # Safety
/// `pd` and the objects in `attr` must be live.
unsafe fn create_with(
    context: &Context,
    pd: *mut c::ibv_pd,
    attr: &mut c::ibv_qp_init_attr,
    cap: &QpCap,
    layout: QpLayout,
) -> Result<*mut c::ibv_qp, Errno> {
    // SAFETY: the caller passes a live protection domain.
    let rings = QpRings::allocate(layout, &unsafe { pd::source(context, pd, Resource::Qp) })?;
    let qp = Qp::begin()?;
    let base: *mut c::ibv_qp = qp.base().cast();
    // SAFETY: the objects are live, `qp` is ours.
    let response = unsafe { commands::create_qp(pd, base, attr, rings.request()) }?;
    // SAFETY: the caller passes a live protection domain and attributes whose objects are live.
    match unsafe { open(context, pd, attr, cap, rings, &response) } {
        Ok(queues) => Ok(qp.complete(Own { builder: Builder::default(), queues }).cast()),
        Err(error) => {
            // SAFETY: just created. If that fails too, the kernel destroys it with the context.
            let _ = unsafe { c::ibv_cmd_destroy_qp(base) };
            Err(error)
        }
    }
}

/// # Safety
/// `pd` and the objects in `attr` must be live.
unsafe fn open(
    context: &Context,
    pd: *mut c::ibv_pd,
    attr: &c::ibv_qp_init_attr,
    cap: &QpCap,
    rings: QpRings,
    response: &QpResp,
) -> Result<QueuePair, Errno> {
    // The kernel grants a send queue in the adapter's memory, or fails.
    let device_send = match (rings.layout().send_in_device, response.sq_mmap_len.get()) {
        (true, 0) => return Err(Errno::IO),
        (true, len) => Some(context.map(response.sq_mmap.get(), len)?),
        (false, _) => None,
    };
    // SAFETY: the caller passes attributes whose queues are null or live.
    let send_cq = unsafe { cq::own(attr.send_cq) };
    let recv_cq = match rings.layout().extras.header {
        WqeHeader::Xrc => send_cq,
        // SAFETY: the caller passes attributes whose queues are null or live.
        _ => unsafe { cq::own(attr.recv_cq) },
    };
    // SAFETY: the caller passes attributes whose shared receive queue is null or live.
    let srq = unsafe { srq::own(attr.srq) };
    let parts = QpParts {
        uar: context.uar(response.uar, response.uar_mmap.get())?,
        device_send,
        send_cq: send_cq.ok_or(Errno::INVAL)?.clone(),
        recv_cq: recv_cq.ok_or(Errno::INVAL)?.clone(),
        srq: srq.cloned(),
        all_signaled: attr.sq_sig_all != 0,
        // SAFETY: the caller passes null or a live protection domain.
        sharing: unsafe { pd::sharing(pd) },
    };
    let toe = rings.layout().extras.toe;
    let queues = QueuePair::new(rings, cap, response, parts)?;
    if toe {
        // As the kernel has created it. It takes receives already.
        queues.entered(State::Init);
    }
    Ok(queues)
}
