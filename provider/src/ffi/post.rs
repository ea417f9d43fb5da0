// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Posting lists of work requests.

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_abi::sq::{Class, MAX_SGE, MemFlags, Sge};
use vrnic_queues::layout::WqeHeader;
use vrnic_queues::qp::{QueuePair, SendBatch};
use vrnic_queues::request::{Data, Payload, PostError};

use super::bindings as c;
use super::requests::request::{
    MESSAGES, answer, check_flags, inline_pieces, segments, send_flags, translate,
};
use super::{datagram, memory::mw, qp, requests::raw, status, xrc};

/// Implements `post_send`.
pub(super) unsafe extern "C" fn post_send(
    qp: *mut c::ibv_qp,
    list: *mut c::ibv_send_wr,
    bad: *mut *mut c::ibv_send_wr,
) -> c_int {
    // SAFETY: live by libibverbs' promise.
    let Some(queues) = (unsafe { qp::own(qp) }) else { return status(Err(Errno::INVAL)) };
    let mut next = list;
    let posted = match queues.wqe_header() {
        // SAFETY: the list is valid by libibverbs' promise.
        WqeHeader::Connected => unsafe { send_list(queues, &mut next) },
        // SAFETY: the list is valid by libibverbs' promise, and so are its address handles.
        WqeHeader::Datagram => unsafe { datagram::send_list(queues, &mut next) },
        // SAFETY: the list is valid by libibverbs' promise.
        WqeHeader::Xrc => unsafe { xrc::send_list(queues, &mut next) },
        // SAFETY: the list is valid by libibverbs' promise.
        WqeHeader::Raw => unsafe { raw::send_list(queues, &mut next) },
    };
    // SAFETY: valid by libibverbs' promise.
    unsafe { answer(posted, next, bad) }
}

/// Posts requests up to the end of the list; on an error `next` is the request that was refused.
///
/// # Safety
/// `next` must be null or start a valid list.
unsafe fn send_list(queues: &QueuePair, next: &mut *mut c::ibv_send_wr) -> Result<(), PostError> {
    let mut batch = queues.sends()?;
    // SAFETY: the caller passes null or a valid list, of which this is the rest.
    while let Some(request) = unsafe { next.as_ref() } {
        check_flags(request.send_flags)?;
        // SAFETY: the request is part of the caller's list, which is valid: it has the given number
        // of segments.
        let segments = unsafe { segments(request.sg_list, request.num_sge) }?;
        let inline = request.send_flags & c::IBV_SEND_INLINE != 0;
        match MESSAGES.get(request.opcode as usize) {
            Some(message) if !inline => {
                // SAFETY: the caller passes requests in which the fields that the opcode calls for
                // are set.
                let header = unsafe { message.header(request) };
                batch.push(header, Payload::Plain(Data::Segments(segments)))?;
            }
            // SAFETY: the request is part of the caller's list, which is valid.
            _ => unsafe { push_rare(&mut batch, request, segments) }?,
        }
        *next = request.next;
    }
    Ok(())
}

/// Posts inline data, atomics and memory operations. It is not inlined, so that the code for plain
/// messages stays short.
///
/// # Safety
/// The requirements of [`send_list`] apply.
#[inline(never)]
unsafe fn push_rare(
    batch: &mut SendBatch<'_>,
    request: &c::ibv_send_wr,
    segments: &[Sge],
) -> Result<(), PostError> {
    if request.opcode == c::IBV_WR_BIND_MW {
        // SAFETY: the request is part of the caller's list, which is valid, and its opcode is that
        // of a window binding, `IBV_WR_BIND_MW`.
        return unsafe { push_binding(batch, request) };
    }
    // SAFETY: the caller passes requests in which the fields that the opcode calls for are set.
    let (header, operands) = unsafe { translate(request) }?;
    let mut pieces: [&[u8]; MAX_SGE as usize] = [&[]; MAX_SGE as usize];
    let data = match operands {
        _ if request.send_flags & c::IBV_SEND_INLINE != 0 => {
            // SAFETY: inline segments name readable memory of the caller.
            Data::Inline(unsafe { inline_pieces(segments, &mut pieces) }?)
        }
        Some(operands) => Data::Atomic(operands, segments),
        None if header.opcode.info().class == Class::Local => Data::Segments(&[]),
        None => Data::Segments(segments),
    };
    batch.push(header, Payload::Plain(data))
}

/// Posts the binding of a window.
///
/// # Safety
/// The requirements of [`send_list`] apply.
unsafe fn push_binding(
    batch: &mut SendBatch<'_>,
    request: &c::ibv_send_wr,
) -> Result<(), PostError> {
    if request.send_flags & c::IBV_SEND_INLINE != 0 {
        return Err(PostError::Inline);
    }
    // SAFETY: the caller passes a request to bind a window, in which this field of the union is
    // set.
    let wanted = unsafe { request.__bindgen_anon_2.bind_mw };
    let (flags, info) = (send_flags(request.send_flags), &wanted.bind_info);
    // SAFETY: the caller passes a request with a live window.
    let rkey = unsafe { mw::chosen_key(wanted.mw, wanted.rkey) };
    // SAFETY: the caller passes a request whose region is null or live.
    let bound = unsafe { mw::binding(request.wr_id, flags, rkey, info, MemFlags::empty()) };
    let (header, segment) = bound.map_err(|_| PostError::Segments)?;
    batch.push(header, Payload::Bind(segment))
}

/// Implements `post_recv`.
pub(super) unsafe extern "C" fn post_recv(
    qp: *mut c::ibv_qp,
    list: *mut c::ibv_recv_wr,
    bad: *mut *mut c::ibv_recv_wr,
) -> c_int {
    // SAFETY: live by libibverbs' promise.
    let Some(queues) = (unsafe { qp::own(qp) }) else { return status(Err(Errno::INVAL)) };
    let mut next = list;
    // SAFETY: the list is valid by libibverbs' promise.
    let posted = unsafe { recv_list(queues, &mut next) };
    // SAFETY: valid by libibverbs' promise.
    unsafe { answer(posted, next, bad) }
}

/// Posts requests up to the end of the list; on an error `next` is the request that was refused.
///
/// # Safety
/// `next` must be null or start a valid list.
pub(super) unsafe fn recv_list(
    queues: &QueuePair,
    next: &mut *mut c::ibv_recv_wr,
) -> Result<(), PostError> {
    let mut batch = queues.recvs()?;
    // SAFETY: the caller passes null or a valid list, of which this is the rest.
    while let Some(request) = unsafe { next.as_ref() } {
        // SAFETY: the request is part of the caller's list, which is valid: it has the given number
        // of segments.
        batch.push(request.wr_id, unsafe { segments(request.sg_list, request.num_sge) }?)?;
        *next = request.next;
    }
    Ok(())
}
