// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The commands to the kernel that carry payloads of the plugin. libibverbs expects each as one
//! struct whose first part is its own.

use std::ffi::{CStr, c_int, c_void};
use std::mem::offset_of;
use std::sync::OnceLock;

use rustix::io::Errno;
use vrnic_abi::admin::MrFlags;
use vrnic_abi::uverbs::{
    AhResp, ContextResp, CqReq, CqResp, MrReq, Payload, PdResp, QpReq, QpResp, ResizeCqResp,
    SpreadReq, SrqReq, SrqResp,
};
use vrnic_queues::policy::PayloadPolicy;

use super::bindings as c;
use super::libibverbs::functions::{self, CreateCq};
use super::{check, libibverbs::environment};

/// The environment variable that makes payloads as long as another version's payloads.
const VARIABLE: &CStr = c"VRNIC_PAYLOADS";

/// A part of libibverbs and one of the plugin, without a gap.
#[repr(C)]
#[derive(Default)]
struct With<C, P> {
    core: C,
    payload: P,
    /// Room for the payload of a later version.
    more: [u8; PayloadPolicy::MORE],
}

impl<C, P: Payload> With<C, P> {
    /// Bytes of libibverbs' part. Evaluated at compile time, which fails if there is a gap.
    const CORE: usize = {
        assert!(offset_of!(Self, payload) == size_of::<C>());
        assert!(offset_of!(Self, more) == size_of::<C>() + size_of::<P>());
        size_of::<C>()
    };

    /// Returns the bytes of both parts.
    fn length() -> usize {
        static POLICY: OnceLock<PayloadPolicy> = OnceLock::new();
        let policy = POLICY.get_or_init(|| environment::policy(VARIABLE, "own, older, newer"));
        Self::CORE + policy.length(size_of::<P>(), P::REQUIRED)
    }
}

/// Runs a command with `payload` as the plugin's part, and returns the plugin's part of the answer.
/// `call` gets the command and the answer with their lengths. `C` and `R` are the types that the
/// function called by it expects.
fn run<C: Default, P: Payload, R: Default, A: Default + Payload>(
    payload: P,
    call: impl FnOnce(*mut C, usize, *mut R, usize) -> c_int,
) -> Result<A, Errno> {
    let mut command = With { core: C::default(), payload, more: Default::default() };
    let mut response = With::<R, A>::default();
    check(call(
        (&raw mut command).cast(),
        With::<C, P>::length(),
        (&raw mut response).cast(),
        With::<R, A>::length(),
    ))?;
    Ok(response.payload)
}

/// Opens the context.
///
/// # Safety
/// `context` must be one that `_verbs_init_and_alloc_context` just made.
pub(super) unsafe fn get_context(context: *mut c::verbs_context) -> Result<ContextResp, Errno> {
    run((), |command, length, response, room| {
        // SAFETY: `context` is valid; command and response have the given lengths.
        unsafe { functions::get_context(context, command, length, response, room) }
    })
}

/// Allocates a protection domain.
///
/// # Safety
/// `context` must be live and `pd` memory for the result.
pub(super) unsafe fn alloc_pd(
    context: *mut c::ibv_context,
    pd: *mut c::ibv_pd,
) -> Result<PdResp, Errno> {
    run((), |command, length, response, room| {
        // SAFETY: the objects are valid; command and response have the given lengths.
        unsafe { c::ibv_cmd_alloc_pd(context, pd, command, length, response, room) }
    })
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
    // libibverbs makes the command itself.
    run((), |_command: *mut (), _length, response, room| {
        // SAFETY: the objects are valid; the response has the given length.
        unsafe { c::ibv_cmd_create_ah(pd, ah, attr, response, room) }
    })
}

/// The attributes of a new region.
pub(super) struct NewRegion {
    /// The first byte in this process.
    pub(super) addr: *mut c_void,
    /// Number of bytes.
    pub(super) length: usize,
    /// The first byte as work requests name it.
    pub(super) iova: u64,
    /// Rights (`enum ibv_access_flags`).
    pub(super) access: c_int,
    /// Properties that verbs do not have.
    pub(super) flags: MrFlags,
}

/// Registers memory.
///
/// # Safety
/// `pd` must be live, `region` memory for the result.
pub(super) unsafe fn reg_mr(
    pd: *mut c::ibv_pd,
    new: &NewRegion,
    region: *mut c::verbs_mr,
) -> Result<(), Errno> {
    let NewRegion { addr, length, iova, access, flags } = *new;
    let payload = MrReq { flags: flags.bits().into(), ..MrReq::default() };
    run(payload, |command, size, response, room| {
        // SAFETY: the objects are valid; command and response have the given lengths. The kernel
        // checks the memory range.
        unsafe {
            c::ibv_cmd_reg_mr(pd, addr, length, iova, access, region, command, size, response, room)
        }
    })
}

/// A change of a region (`ibv_rereg_mr`).
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
    let Rereg { flags, addr, length, access, pd } = *change;
    // CAST: an address of this process, as the region's first address.
    let iova = addr as u64;
    run((), |command, size, response, room| {
        // SAFETY: the objects are valid; command and response have the given lengths. The kernel
        // checks the memory range.
        unsafe {
            c::ibv_cmd_rereg_mr(
                region, flags, addr, length, iova, access, pd, command, size, response, room,
            )
        }
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
    run((), |command, length, response, room| {
        // SAFETY: the objects are valid; command and response have the given lengths.
        unsafe { c::ibv_cmd_alloc_mw(pd, kind, window, command, length, response, room) }
    })
}

/// The arguments of `ibv_create_cq`.
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
    let CqArgs { context, entries, channel, vector } = *args;
    run(request, |command, length, response, room| {
        // SAFETY: the objects are valid; command and response have the given lengths.
        unsafe {
            c::ibv_cmd_create_cq(
                context, entries, channel, vector, cq, command, length, response, room,
            )
        }
    })
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
    let args = CreateCq { context, attr, cq };
    run(request, |command, length, response, room| {
        // SAFETY: the objects are valid; command and response have the given lengths.
        unsafe { functions::create_cq_ex(&args, command, length, response, room) }
    })
}

/// Continues a completion queue in another ring. Returns the index of the first entry there.
///
/// # Safety
/// `cq` must be live.
pub(super) unsafe fn resize_cq(
    cq: *mut c::ibv_cq,
    entries: c_int,
    request: CqReq,
) -> Result<u32, Errno> {
    let answer: ResizeCqResp = run(request, |command, length, response, room| {
        // SAFETY: the queue is live; command and response have the given lengths.
        unsafe { c::ibv_cmd_resize_cq(cq, entries, command, length, response, room) }
    })?;
    Ok(answer.first.get())
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
    run(request, |command, length, response, room| {
        // SAFETY: the objects are valid; command and response have the given lengths.
        unsafe { c::ibv_cmd_create_srq(pd, srq, attr, command, length, response, room) }
    })
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
    run(request, |command, length, response, room| {
        // SAFETY: the objects are valid; command and response have the given lengths.
        unsafe { c::ibv_cmd_create_srq_ex(context, srq, attr, command, length, response, room) }
    })
}

/// Continues a shared receive queue in another ring, with these attributes.
///
/// # Safety
/// `srq` must be live.
pub(super) unsafe fn resize_srq(
    srq: *mut c::ibv_srq,
    attr: *mut c::ibv_srq_attr,
    mask: c_int,
    request: SrqReq,
) -> Result<(), Errno> {
    run(request, |command: *mut c::ibv_modify_srq, length, _: *mut (), _| {
        // SAFETY: the queue is live; the command has the given length.
        unsafe { c::ibv_cmd_modify_srq(srq, attr, mask, command, length) }
    })
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
    run(request, |command, length, response, room| {
        // SAFETY: the objects are valid; command and response have the given lengths.
        unsafe { c::ibv_cmd_create_qp(pd, qp, attr, command, length, response, room) }
    })
}

/// Creates a work queue; `attr` gets the sizes granted.
///
/// # Safety
/// The context and the objects in `attr` must be live, `wq` memory for the result.
pub(super) unsafe fn create_wq(
    context: *mut c::ibv_context,
    attr: *mut c::ibv_wq_init_attr,
    wq: *mut c::ibv_wq,
    request: QpReq,
) -> Result<QpResp, Errno> {
    run(request, |command, length, response, room| {
        // SAFETY: the objects are valid; command and response have the given lengths.
        unsafe { c::ibv_cmd_create_wq(context, attr, wq, command, length, response, room) }
    })
}

/// Creates a queue pair that spreads frames over work queues.
///
/// # Safety
/// The context and the objects in `attr` must be live, `qp` memory for the result.
pub(super) unsafe fn create_spreading_qp(
    context: *mut c::ibv_context,
    qp: *mut c::verbs_qp,
    attr: *mut c::ibv_qp_init_attr_ex,
    request: SpreadReq,
) -> Result<QpResp, Errno> {
    run(request, |command, length, response, room| {
        // SAFETY: the objects are valid; command and response have the given lengths.
        unsafe { functions::create_qp_ex2(context, qp, attr, command, length, response, room) }
    })
}
