// SPDX-License-Identifier: GPL-2.0 OR MIT
//! XRC: domains, targets, and the sends of initiators.

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_abi::sq::{MAX_SGE, XrcSeg};
use vrnic_queues::qp::QueuePair;
use vrnic_queues::request::{Data, Payload, PostError};

use super::bindings as c;
use super::libibverbs::functions::layout;
use super::object::Object;
use super::qp::Qp;
use super::requests::request::{check_flags, inline_pieces, message_header, segments, translate};
use super::{check, pointer};

type Xrcd = Object<c::verbs_xrcd, ()>;

/// Implements `open_xrcd`.
pub(super) unsafe extern "C" fn open_domain(
    context: *mut c::ibv_context,
    attr: *mut c::ibv_xrcd_init_attr,
) -> *mut c::ibv_xrcd {
    let mut command = c::ibv_open_xrcd::default();
    let mut response = c::ib_uverbs_open_xrcd_resp::default();
    pointer(Xrcd::begin().and_then(|xrcd| {
        // SAFETY: the arguments are libibverbs' own, `xrcd` is ours; command and response have the
        // given lengths.
        check(unsafe {
            c::ibv_cmd_open_xrcd(
                context,
                xrcd.base(),
                // CAST: the size of a small struct.
                size_of::<c::verbs_xrcd>() as c_int,
                attr,
                &raw mut command,
                size_of_val(&command),
                &raw mut response,
                size_of_val(&response),
            )
        })?;
        Ok(xrcd.complete(()).cast())
    }))
}

/// Implements `close_xrcd`.
pub(super) unsafe extern "C" fn close_domain(xrcd: *mut c::ibv_xrcd) -> c_int {
    // SAFETY: made by `open_domain`, live, and given up by the caller if this succeeds.
    unsafe { Xrcd::destroy(xrcd.cast(), c::ibv_cmd_close_xrcd) }
}

/// Creates a target. Nothing is posted to a target, so it has no part of the plugin.
///
/// # Safety
/// The context and the domain in `attr` must be live.
pub(super) unsafe fn create_target(
    context: *mut c::ibv_context,
    attr: &mut c::ibv_qp_init_attr_ex,
) -> Result<*mut c::ibv_qp, Errno> {
    let qp = Qp::begin()?;
    let mut command = c::ibv_create_qp::default();
    let mut response = c::ib_uverbs_create_qp_resp::default();
    // SAFETY: the caller passes live objects, and `qp` is ours; command and response have the given
    // lengths.
    check(unsafe {
        c::ibv_cmd_create_qp_ex(
            context,
            qp.base(),
            attr,
            &raw mut command,
            size_of_val(&command),
            &raw mut response,
            size_of_val(&response),
        )
    })?;
    Ok(qp.complete_bare().cast())
}

/// `open_qp`: opens a target that another process may have created.
pub(super) unsafe extern "C" fn open_target(
    context: *mut c::ibv_context,
    attr: *mut c::ibv_qp_open_attr,
) -> *mut c::ibv_qp {
    let mut command = c::ibv_open_qp::default();
    let mut response = c::ib_uverbs_create_qp_resp::default();
    pointer(Qp::begin().and_then(|qp| {
        // SAFETY: the arguments are libibverbs' own, `qp` is ours; command and response have the
        // given lengths.
        check(unsafe {
            c::ibv_cmd_open_qp(
                context,
                qp.base(),
                // CAST: the size of a small struct.
                layout().qp_size as c_int,
                attr,
                &raw mut command,
                size_of_val(&command),
                &raw mut response,
                size_of_val(&response),
            )
        })?;
        Ok(qp.complete_bare().cast())
    }))
}

/// Posts requests of an initiator up to the end of the list; on an error `next` is the request that
/// was refused.
///
/// # Safety
/// `next` must be null or start a valid list.
pub(super) unsafe fn send_list(
    queues: &QueuePair,
    next: &mut *mut c::ibv_send_wr,
) -> Result<(), PostError> {
    let mut batch = queues.sends()?;
    // SAFETY: the caller passes null or a valid list, of which this is the rest.
    while let Some(request) = unsafe { next.as_ref() } {
        check_flags(request.send_flags)?;
        // SAFETY: the caller passes requests to initiators, in which this field of the union is
        // set.
        let srqn = unsafe { request.qp_type.xrc.remote_srqn };
        let to = XrcSeg { srqn: srqn.into(), ..XrcSeg::default() };
        // SAFETY: the request is part of the caller's list, which is valid: it has the given number
        // of segments.
        let segments = unsafe { segments(request.sg_list, request.num_sge) }?;
        let inline = request.send_flags & c::IBV_SEND_INLINE != 0;
        // SAFETY: the caller passes requests in which the fields that the opcode calls for are set.
        match unsafe { message_header(request) } {
            Some(header) if inline => {
                let mut pieces: [&[u8]; MAX_SGE as usize] = [&[]; MAX_SGE as usize];
                // SAFETY: inline segments name readable memory of the caller.
                let pieces = unsafe { inline_pieces(segments, &mut pieces) }?;
                batch.push(header, Payload::Xrc(to, Data::Inline(pieces)))?;
            }
            Some(header) => batch.push(header, Payload::Xrc(to, Data::Segments(segments)))?,
            None if inline => return Err(PostError::Inline),
            None => {
                // SAFETY: the caller passes requests in which the fields that the opcode calls for
                // are set.
                let Ok((header, Some(operands))) = (unsafe { translate(request) }) else {
                    return Err(PostError::Unsupported);
                };
                batch.push(header, Payload::Xrc(to, Data::Atomic(operands, segments)))?;
            }
        }
        *next = request.next;
    }
    Ok(())
}
