// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Completion queues: creation and destruction.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `poll` | polling |
//! | [`extended`], `polling` | the extended interface |

pub(crate) mod extended;
pub(crate) mod poll;
mod polling;

use std::ffi::c_int;
use std::ptr;

use rustix::io::Errno;
use vrnic_abi::uverbs::{CqResp, Features};
use vrnic_queues::allocator::Resource;
use vrnic_queues::cq::CompletionQueue;
use vrnic_queues::heap::Shared;
use vrnic_queues::layout::CqRing;
use vrnic_queues::lock::Sharing;
use vrnic_queues::policy::VectorPolicy;
use vrnic_queues::source::Source;

use super::bindings as c;
use super::commands::{self, CqArgs};
use super::context::Context;
use super::object::Object;
use super::{check, pd, pointer, status};
use polling::Polling;

/// A completion queue. libibverbs' part is the extended struct, which starts with `ibv_cq`.
type Cq = Object<c::verbs_cq, Own>;

/// The plugin's part of a completion queue.
pub(super) struct Own {
    /// The state of the extended interface. It may hold the queue's lock, so it is dropped first.
    pub(super) polling: Polling,
    /// The queue, which the queue pairs that feed it share.
    pub(super) queue: Shared<CompletionQueue>,
    /// The completion vector that the queue is bound to.
    pub(super) vector: u32,
    /// The source of its memory, also when it is resized.
    source: Source,
}

/// Returns the plugin's part of a completion queue; `None` for null.
///
/// # Safety
/// `cq` must be null or a queue of this plugin, live as long as the result is used.
#[inline]
pub(super) unsafe fn whole<'a>(cq: *mut c::ibv_cq) -> Option<&'a Own> {
    // SAFETY: the caller passes null or a live queue of this plugin.
    unsafe { Cq::own(cq.cast()) }
}

/// Returns the queue; `None` for null.
///
/// # Safety
/// The requirements of [`whole`] apply.
#[inline]
pub(super) unsafe fn own<'a>(cq: *mut c::ibv_cq) -> Option<&'a Shared<CompletionQueue>> {
    // SAFETY: the caller passes null or a live queue of this plugin.
    unsafe { whole(cq) }.map(|own| &own.queue)
}

/// The attributes of a new queue.
pub(super) enum CqInit<'a> {
    /// `ibv_create_cq`.
    Plain { entries: c_int, channel: *mut c::ibv_comp_channel, vector: c_int },
    /// `ibv_create_cq_ex`.
    Extended(&'a c::ibv_cq_init_attr_ex),
}

/// Properties of a new queue that are flags in verbs, or that verbs do not have.
#[derive(Clone, Copy)]
pub(super) struct CqExtras {
    /// The threads that poll it.
    pub(super) sharing: Sharing,
    /// Lets the driver choose the completion vector, whatever the context's policy is.
    pub(super) any_vector: bool,
    /// For a holding CQ, the number of free entries at which few are left.
    pub(super) holding: Option<u32>,
}

/// Implements `create_cq`.
pub(super) unsafe extern "C" fn create(
    context: *mut c::ibv_context,
    entries: c_int,
    channel: *mut c::ibv_comp_channel,
    vector: c_int,
) -> *mut c::ibv_cq {
    let init = CqInit::Plain { entries, channel, vector };
    let extras = CqExtras { sharing: Sharing::ANY, any_vector: false, holding: None };
    // SAFETY: the arguments are libibverbs' own.
    pointer(unsafe { create_from(context, &init, extras) })
}

/// Creates a completion queue, without its extended interface.
///
/// # Safety
/// `context` and the objects in `init` must be live.
pub(super) unsafe fn create_from(
    raw_context: *mut c::ibv_context,
    init: &CqInit<'_>,
    extras: CqExtras,
) -> Result<*mut c::ibv_cq, Errno> {
    // SAFETY: the caller passes a live context, which is one of this plugin.
    let context = unsafe { Context::of(raw_context) }?;
    let entries = match init {
        CqInit::Plain { entries, .. } => u32::try_from(*entries).map_err(|_| Errno::INVAL)?,
        CqInit::Extended(attr) => attr.cqe,
    };
    let domain = match init {
        CqInit::Extended(attr) if attr.comp_mask & c::IBV_CQ_INIT_ATTR_MASK_PD != 0 => {
            attr.parent_domain
        }
        _ => ptr::null_mut(),
    };
    // SAFETY: the caller passes attributes whose domain is live.
    let source = unsafe { pd::source(context, domain, Resource::Cq) };
    let ring = CqRing::allocate(entries, &context.limits, &source)?.holding(extras.holding);
    let vector = match *init {
        CqInit::Plain { vector, .. } => u32::try_from(vector).map_err(|_| Errno::INVAL)?,
        CqInit::Extended(attr) => attr.comp_vector,
    };
    if extras.any_vector {
        context.needs(Features::ANY_VECTOR)?;
    }
    if extras.holding.is_some() {
        context.needs(Features::HOLDING_CQ)?;
    }
    let policy = if extras.any_vector { VectorPolicy::Any } else { context.vector_policy };
    let request = ring.request(vector, policy);
    let cq = Cq::begin()?;
    let base: *mut c::ibv_cq = cq.base().cast();
    // SAFETY: the arguments are live, `cq` is ours.
    let response = unsafe {
        match *init {
            CqInit::Plain { entries, channel, vector } => {
                let args = CqArgs { context: raw_context, entries, channel, vector };
                commands::create_cq(&args, base, request)
            }
            CqInit::Extended(attr) => {
                commands::create_cq_ex(raw_context, attr, base.cast(), request)
            }
        }
    }?;
    match open(context, ring, &response, extras.sharing) {
        Ok(queue) => {
            let vector = response.vector.get();
            let own = Own { polling: Polling::default(), queue, vector, source };
            Ok(cq.complete(own).cast())
        }
        Err(error) => {
            // SAFETY: just created. If that fails too, the kernel destroys it with the context.
            let _ = unsafe { c::ibv_cmd_destroy_cq(base) };
            Err(error)
        }
    }
}

fn open(
    context: &Context,
    ring: CqRing,
    response: &CqResp,
    sharing: Sharing,
) -> Result<Shared<CompletionQueue>, Errno> {
    let uar = context.uar(response.uar, response.uar_mmap.get())?;
    Shared::new(CompletionQueue::new(ring, response, uar, sharing)?)
}

/// `modify_cq`: interrupt moderation.
pub(super) unsafe extern "C" fn modify(
    cq: *mut c::ibv_cq,
    attr: *mut c::ibv_modify_cq_attr,
) -> c_int {
    let mut command = c::ibv_modify_cq::default();
    // SAFETY: a live CQ and the caller's attributes; the command has the given length.
    let result =
        check(unsafe { c::ibv_cmd_modify_cq(cq, attr, &raw mut command, size_of_val(&command)) });
    status(result)
}

/// Implements `resize_cq`.
pub(super) unsafe extern "C" fn resize(cq: *mut c::ibv_cq, entries: c_int) -> c_int {
    // SAFETY: live by libibverbs' promise.
    status(unsafe { try_resize(cq, entries) })
}

/// # Safety
/// `cq` must be a live queue of this plugin.
unsafe fn try_resize(cq: *mut c::ibv_cq, entries: c_int) -> Result<(), Errno> {
    // SAFETY: the caller passes a live queue of this plugin, whose context is live too.
    let (own, context) = unsafe { (whole(cq).ok_or(Errno::INVAL)?, Context::of((*cq).context)?) };
    let wanted = u32::try_from(entries).map_err(|_| Errno::INVAL)?;
    let ring = CqRing::allocate(wanted, &context.limits, &own.source)?;
    // SAFETY: the caller passes a live queue, as long as which the ring lives.
    own.queue.resize(ring, |request| unsafe { commands::resize_cq(cq, entries, request) })
}

/// Implements `destroy_cq`.
pub(super) unsafe extern "C" fn destroy(cq: *mut c::ibv_cq) -> c_int {
    // SAFETY: made by `create`, live, and given up by the caller if this succeeds.
    unsafe { Cq::destroy(cq, c::ibv_cmd_destroy_cq) }
}
