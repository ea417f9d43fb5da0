// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Completion queues: making and destroying them.

use std::ffi::c_int;
use std::sync::Arc;

use rustix::io::Errno;
use vrnic_abi::uverbs::CqResp;
use vrnic_queues::cq::CompletionQueue;
use vrnic_queues::plan::CqRing;

use super::bindings as c;
use super::commands::{self, CqArgs};
use super::context::Context;
use super::object::Object;
use super::{check, pointer, status};

/// A completion queue; the queue pairs that feed it share our part. libibverbs' part is the
/// extended one, of which the plain `ibv_cq` is the start.
type Cq = Object<c::verbs_cq, Arc<CompletionQueue>>;

/// Our part of a completion queue; `None` for null.
///
/// # Safety
/// `cq` must be null or a queue of this plugin, live as long as the result is used.
#[inline]
pub(super) unsafe fn own<'a>(cq: *mut c::ibv_cq) -> Option<&'a Arc<CompletionQueue>> {
    // SAFETY: by the caller's promise.
    unsafe { Cq::own(cq.cast()) }
}

/// `create_cq`.
pub(super) unsafe extern "C" fn create(
    context: *mut c::ibv_context,
    entries: c_int,
    channel: *mut c::ibv_comp_channel,
    vector: c_int,
) -> *mut c::ibv_cq {
    let args = CqArgs { context, entries, channel, vector };
    // SAFETY: the arguments are libibverbs' own.
    pointer(unsafe { try_create(&args) })
}

/// # Safety
/// The objects in `args` must be live.
unsafe fn try_create(args: &CqArgs) -> Result<*mut c::ibv_cq, Errno> {
    // SAFETY: by the caller's promise.
    let context = unsafe { Context::of(args.context) }?;
    let entries = u32::try_from(args.entries).map_err(|_| Errno::INVAL)?;
    let ring = CqRing::allocate(entries, &context.limits)?;
    let vector = u32::try_from(args.vector).map_err(|_| Errno::INVAL)?;
    let request = ring.request(vector, context.vector_policy);
    let cq = Cq::begin();
    let base: *mut c::ibv_cq = cq.base().cast();
    // SAFETY: the arguments are live, `cq` is ours.
    let response = unsafe { commands::create_cq(args, base, request) }?;
    match open(context, ring, &response) {
        Ok(queue) => Ok(cq.complete(Arc::new(queue)).cast()),
        Err(error) => {
            // SAFETY: just created. If that fails too, the kernel destroys it with the context.
            let _ = unsafe { c::ibv_cmd_destroy_cq(base) };
            Err(error)
        }
    }
}

fn open(context: &Context, ring: CqRing, response: &CqResp) -> Result<CompletionQueue, Errno> {
    let uar = context.uar(response.uar.get(), response.uar_mmap.get())?;
    CompletionQueue::new(ring, response, uar)
}

/// `modify_cq`: interrupt moderation.
pub(super) unsafe extern "C" fn modify(
    cq: *mut c::ibv_cq,
    attr: *mut c::ibv_modify_cq_attr,
) -> c_int {
    let mut command = c::ibv_modify_cq::default();
    // SAFETY: a live CQ and the caller's attributes; the command is as long as said.
    let result =
        check(unsafe { c::ibv_cmd_modify_cq(cq, attr, &raw mut command, size_of_val(&command)) });
    status(result)
}

/// `destroy_cq`.
pub(super) unsafe extern "C" fn destroy(cq: *mut c::ibv_cq) -> c_int {
    // SAFETY: made by `create`, live.
    let result = check(unsafe { c::ibv_cmd_destroy_cq(cq) });
    if result.is_ok() {
        // SAFETY: as above, and given up by the caller.
        unsafe { Cq::free(cq.cast()) };
    }
    status(result)
}
