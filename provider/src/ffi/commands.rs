// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The commands to the kernel that carry payloads of ours: libibverbs wants each as one struct,
//! its own part first.

use std::ffi::{c_int, c_void};

use rustix::io::Errno;
use vrnic_abi::admin::MrFlags;
use vrnic_abi::uverbs::{
    AhResp, ContextResp, CqReq, CqResp, MrReq, PdResp, QpReq, QpResp, ResizeCqResp, SrqReq, SrqResp,
};

use super::bindings as c;
use super::check;

/// A part of libibverbs and one of ours, without a gap.
#[repr(C)]
#[derive(Default)]
struct With<C, P> {
    core: C,
    payload: P,
}

impl<C, P> With<C, P> {
    /// Bytes of both parts. Evaluated at compile time, which fails if there is a gap.
    const LEN: usize = {
        assert!(size_of::<Self>() == size_of::<C>() + size_of::<P>());
        size_of::<Self>()
    };
}

/// Opens the context.
///
/// # Safety
/// `context` must be one that `_verbs_init_and_alloc_context` just made.
pub(super) unsafe fn get_context(context: *mut c::verbs_context) -> Result<ContextResp, Errno> {
    type Resp = With<c::ib_uverbs_get_context_resp, ContextResp>;
    let mut command = c::ibv_get_context::default();
    let mut response = Resp::default();
    // SAFETY: `context` is valid; command and response are as long as said.
    check(unsafe {
        c::ibv_cmd_get_context(
            context,
            &raw mut command,
            size_of_val(&command),
            (&raw mut response).cast(),
            Resp::LEN,
        )
    })?;
    Ok(response.payload)
}

/// Allocates a protection domain.
///
/// # Safety
/// `context` must be live and `pd` memory for the result.
pub(super) unsafe fn alloc_pd(
    context: *mut c::ibv_context,
    pd: *mut c::ibv_pd,
) -> Result<PdResp, Errno> {
    type Resp = With<c::ib_uverbs_alloc_pd_resp, PdResp>;
    let mut command = c::ibv_alloc_pd::default();
    let mut response = Resp::default();
    // SAFETY: the objects are valid; command and response are as long as said.
    check(unsafe {
        c::ibv_cmd_alloc_pd(
            context,
            pd,
            &raw mut command,
            size_of_val(&command),
            (&raw mut response).cast(),
            Resp::LEN,
        )
    })?;
    Ok(response.payload)
}

/// Resolves an address vector.
///
/// # Safety
/// `pd` must be live, `attr` valid and `ah` memory for the result.
pub(super) unsafe fn create_ah(
    pd: *mut c::ibv_pd,
    ah: *mut c::ibv_ah,
    attr: *mut c::ibv_ah_attr,
) -> Result<AhResp, Errno> {
    type Resp = With<c::ib_uverbs_create_ah_resp, AhResp>;
    let mut response = Resp::default();
    // SAFETY: the objects are valid; the response is as long as said.
    check(unsafe { c::ibv_cmd_create_ah(pd, ah, attr, (&raw mut response).cast(), Resp::LEN) })?;
    Ok(response.payload)
}

/// Registers memory.
///
/// # Safety
/// `pd` must be live, `region` memory for the result.
pub(super) unsafe fn reg_mr(
    pd: *mut c::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
    flags: MrFlags,
    region: *mut c::verbs_mr,
) -> Result<(), Errno> {
    type Req = With<c::ibv_reg_mr, MrReq>;
    let payload = MrReq { flags: flags.bits().into(), ..MrReq::default() };
    let mut command = Req { payload, ..Req::default() };
    let mut response = c::ib_uverbs_reg_mr_resp::default();
    // SAFETY: the objects are valid; command and response are as long as said. The kernel
    // checks the memory range.
    check(unsafe {
        c::ibv_cmd_reg_mr(
            pd,
            addr,
            length,
            iova,
            access,
            region,
            (&raw mut command).cast(),
            Req::LEN,
            &raw mut response,
            size_of_val(&response),
        )
    })
}

/// What is to change of a region, and how.
pub(super) struct Rereg {
    pub(super) flags: u32,
    pub(super) addr: *mut c_void,
    pub(super) length: usize,
    pub(super) access: c_int,
    pub(super) pd: *mut c::ibv_pd,
}

/// Changes a region.
///
/// # Safety
/// `region` must be live, and the PD if one is named.
pub(super) unsafe fn rereg_mr(region: *mut c::verbs_mr, change: &Rereg) -> Result<(), Errno> {
    let mut command = c::ibv_rereg_mr::default();
    let mut response = c::ib_uverbs_rereg_mr_resp::default();
    // CAST: an address of this process, as the region's first address.
    let iova = change.addr as u64;
    // SAFETY: the objects are valid; command and response are as long as said. The kernel
    // checks the memory range.
    check(unsafe {
        c::ibv_cmd_rereg_mr(
            region,
            change.flags,
            change.addr,
            change.length,
            iova,
            change.access,
            change.pd,
            &raw mut command,
            size_of_val(&command),
            &raw mut response,
            size_of_val(&response),
        )
    })
}

/// Allocates a window.
///
/// # Safety
/// `pd` must be live, `window` memory for the result.
pub(super) unsafe fn alloc_mw(
    pd: *mut c::ibv_pd,
    kind: c::ibv_mw_type,
    window: *mut c::ibv_mw,
) -> Result<(), Errno> {
    let mut command = c::ibv_alloc_mw::default();
    let mut response = c::ib_uverbs_alloc_mw_resp::default();
    // SAFETY: the objects are valid; command and response are as long as said.
    check(unsafe {
        c::ibv_cmd_alloc_mw(
            pd,
            kind,
            window,
            &raw mut command,
            size_of_val(&command),
            &raw mut response,
            size_of_val(&response),
        )
    })
}

/// What the application asks of a completion queue.
pub(super) struct CqArgs {
    pub(super) context: *mut c::ibv_context,
    pub(super) entries: c_int,
    pub(super) channel: *mut c::ibv_comp_channel,
    pub(super) vector: c_int,
}

/// Creates a completion queue.
///
/// # Safety
/// The objects in `args` must be live, `cq` memory for the result.
pub(super) unsafe fn create_cq(
    args: &CqArgs,
    cq: *mut c::ibv_cq,
    request: CqReq,
) -> Result<CqResp, Errno> {
    type Command = With<c::ibv_create_cq, CqReq>;
    type Resp = With<c::ib_uverbs_create_cq_resp, CqResp>;
    let mut command = Command { payload: request, ..Command::default() };
    let mut response = Resp::default();
    // SAFETY: the objects are valid; command and response are as long as said.
    check(unsafe {
        c::ibv_cmd_create_cq(
            args.context,
            args.entries,
            args.channel,
            args.vector,
            cq,
            (&raw mut command).cast(),
            Command::LEN,
            (&raw mut response).cast(),
            Resp::LEN,
        )
    })?;
    Ok(response.payload)
}

/// Creates a completion queue with extended attributes.
///
/// # Safety
/// `context` and the objects in `attr` must be live, `cq` memory for the result.
pub(super) unsafe fn create_cq_ex(
    context: *mut c::ibv_context,
    attr: &c::ibv_cq_init_attr_ex,
    cq: *mut c::verbs_cq,
    request: CqReq,
) -> Result<CqResp, Errno> {
    type Command = With<c::ibv_create_cq_ex, CqReq>;
    type Resp = With<c::ib_uverbs_ex_create_cq_resp, CqResp>;
    let mut command = Command { payload: request, ..Command::default() };
    let mut response = Resp::default();
    // SAFETY: the objects are valid; command and response are as long as said.
    check(unsafe {
        c::ibv_cmd_create_cq_ex(
            context,
            attr,
            cq,
            (&raw mut command).cast(),
            Command::LEN,
            (&raw mut response).cast(),
            Resp::LEN,
            0,
        )
    })?;
    Ok(response.payload)
}

/// Gives a completion queue another ring; returns the index of the first entry there.
///
/// # Safety
/// `cq` must be live.
pub(super) unsafe fn resize_cq(
    cq: *mut c::ibv_cq,
    entries: c_int,
    request: CqReq,
) -> Result<u32, Errno> {
    type Command = With<c::ibv_resize_cq, CqReq>;
    type Resp = With<c::ib_uverbs_resize_cq_resp, ResizeCqResp>;
    let mut command = Command { payload: request, ..Command::default() };
    let mut response = Resp::default();
    // SAFETY: the queue is live; command and response are as long as said.
    check(unsafe {
        c::ibv_cmd_resize_cq(
            cq,
            entries,
            (&raw mut command).cast(),
            Command::LEN,
            (&raw mut response).cast(),
            Resp::LEN,
        )
    })?;
    Ok(response.payload.first.get())
}

/// Creates a shared receive queue; `attr` gets the sizes granted.
///
/// # Safety
/// `pd` must be live, `srq` memory for the result.
pub(super) unsafe fn create_srq(
    pd: *mut c::ibv_pd,
    srq: *mut c::ibv_srq,
    attr: *mut c::ibv_srq_init_attr,
    request: SrqReq,
) -> Result<SrqResp, Errno> {
    type Command = With<c::ibv_create_srq, SrqReq>;
    type Resp = With<c::ib_uverbs_create_srq_resp, SrqResp>;
    let mut command = Command { payload: request, ..Command::default() };
    let mut response = Resp::default();
    // SAFETY: the objects are valid; command and response are as long as said.
    check(unsafe {
        c::ibv_cmd_create_srq(
            pd,
            srq,
            attr,
            (&raw mut command).cast(),
            Command::LEN,
            (&raw mut response).cast(),
            Resp::LEN,
        )
    })?;
    Ok(response.payload)
}

/// Creates a shared receive queue of any type; `attr` gets the sizes granted.
///
/// # Safety
/// The objects in `attr` must be live, `srq` memory for the result.
pub(super) unsafe fn create_srq_ex(
    context: *mut c::ibv_context,
    srq: *mut c::verbs_srq,
    attr: *mut c::ibv_srq_init_attr_ex,
    request: SrqReq,
) -> Result<SrqResp, Errno> {
    type Command = With<c::ibv_create_xsrq, SrqReq>;
    type Resp = With<c::ib_uverbs_create_srq_resp, SrqResp>;
    let mut command = Command { payload: request, ..Command::default() };
    let mut response = Resp::default();
    // SAFETY: the objects are valid; command and response are as long as said.
    check(unsafe {
        c::ibv_cmd_create_srq_ex(
            context,
            srq,
            attr,
            (&raw mut command).cast(),
            Command::LEN,
            (&raw mut response).cast(),
            Resp::LEN,
        )
    })?;
    Ok(response.payload)
}

/// Creates a queue pair; `attr` gets the sizes granted.
///
/// # Safety
/// `pd` and the objects in `attr` must be live, `qp` memory for the result.
pub(super) unsafe fn create_qp(
    pd: *mut c::ibv_pd,
    qp: *mut c::ibv_qp,
    attr: *mut c::ibv_qp_init_attr,
    request: QpReq,
) -> Result<QpResp, Errno> {
    type Command = With<c::ibv_create_qp, QpReq>;
    type Resp = With<c::ib_uverbs_create_qp_resp, QpResp>;
    let mut command = Command { payload: request, ..Command::default() };
    let mut response = Resp::default();
    // SAFETY: the objects are valid; command and response are as long as said.
    check(unsafe {
        c::ibv_cmd_create_qp(
            pd,
            qp,
            attr,
            (&raw mut command).cast(),
            Command::LEN,
            (&raw mut response).cast(),
            Resp::LEN,
        )
    })?;
    Ok(response.payload)
}
