// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Posting raw packets.

use std::ffi::c_void;
use std::slice;

use vrnic_abi::sq::{MAX_SGE, Opcode};
use vrnic_queues::qp::QueuePair;
use vrnic_queues::request::{Data, Payload, PostError};

use super::request::{check_raw_flags, inline_pieces, plain_header, segments};
use crate::ffi::bindings as c;

/// Posts requests up to the end of the list; on an error `next` is the request that was refused.
///
/// # Safety
/// `next` must be null or start a valid list.
pub(in crate::ffi) unsafe fn send_list(
    queues: &QueuePair,
    next: &mut *mut c::ibv_send_wr,
) -> Result<(), PostError> {
    let mut batch = queues.sends()?;
    // SAFETY: the caller passes null or a valid list, of which this is the rest.
    while let Some(request) = unsafe { next.as_ref() } {
        check_raw_flags(request.send_flags)?;
        // SAFETY: the request is part of the caller's list, which is valid: it has the given number
        // of segments.
        let segments = unsafe { segments(request.sg_list, request.num_sge) }?;
        let inline = request.send_flags & c::IBV_SEND_INLINE != 0;
        match request.opcode {
            c::IBV_WR_SEND if !inline => {
                let payload = Payload::Plain(Data::Segments(segments));
                batch.push(plain_header(request, Opcode::Send), payload)?;
            }
            c::IBV_WR_SEND => {
                let mut pieces: [&[u8]; MAX_SGE as usize] = [&[]; MAX_SGE as usize];
                // SAFETY: inline segments name readable memory of the caller.
                let pieces = unsafe { inline_pieces(segments, &mut pieces) }?;
                let payload = Payload::Plain(Data::Inline(pieces));
                batch.push(plain_header(request, Opcode::Send), payload)?;
            }
            c::IBV_WR_TSO if inline => return Err(PostError::Inline),
            c::IBV_WR_TSO => {
                // SAFETY: the caller passes requests in which the fields that the opcode calls for
                // are set.
                let tso = unsafe { request.__bindgen_anon_2.tso };
                // SAFETY: the caller passes headers of this length, which live during the call.
                let headers = unsafe { headers(tso.hdr, tso.hdr_sz) };
                let payload = Payload::Segment { mss: tso.mss, headers, data: segments };
                batch.push(plain_header(request, Opcode::Segment), payload)?;
            }
            _ => return Err(PostError::Opcode),
        }
        *next = request.next;
    }
    Ok(())
}

/// Returns the headers of a large TCP segment.
///
/// # Safety
/// `start` must be null, or readable memory of `length` bytes that lives for `'a`, and that no code
/// writes meanwhile.
pub(in crate::ffi) unsafe fn headers<'a>(start: *mut c_void, length: u16) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: the caller passes readable memory of this length.
    unsafe { slice::from_raw_parts(start.cast_const().cast(), length.into()) }
}
