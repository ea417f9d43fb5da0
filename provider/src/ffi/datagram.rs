// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Posting datagrams.

use vrnic_abi::sq::{DatagramSeg, MAX_SGE, Opcode};
use vrnic_queues::qp::QueuePair;
use vrnic_queues::request::{Data, Payload, PostError};

use super::ah;
use super::bindings as c;
use super::requests::request::{check_flags, inline_pieces, plain_header, segments};

/// Posts requests up to the end of the list; on an error `next` is the request that was refused.
///
/// # Safety
/// `next` must be null or start a valid list, whose address handles are live.
pub(super) unsafe fn send_list(
    queues: &QueuePair,
    next: &mut *mut c::ibv_send_wr,
) -> Result<(), PostError> {
    let mut batch = queues.sends()?;
    // SAFETY: the caller passes null or a valid list, of which this is the rest.
    while let Some(request) = unsafe { next.as_ref() } {
        check_flags(request.send_flags)?;
        let mut header = match request.opcode {
            c::IBV_WR_SEND => plain_header(request, Opcode::Send),
            c::IBV_WR_SEND_WITH_IMM => plain_header(request, Opcode::SendImm),
            _ => return Err(PostError::Opcode),
        };
        if header.opcode == Opcode::SendImm {
            // SAFETY: set for this opcode. In network order, which we keep.
            header.imm = unsafe { request.__bindgen_anon_1.imm_data }.to_ne_bytes();
        }
        // SAFETY: the caller passes requests to datagram queue pairs, in which this field of the
        // union is set.
        let to = unsafe { request.wr.ud };
        // SAFETY: the caller passes requests whose address handles are live.
        let av = unsafe { ah::path(to.ah) }.ok_or(PostError::Address)?;
        let to =
            DatagramSeg { av: *av, dest_qpn: to.remote_qpn.into(), qkey: to.remote_qkey.into() };
        // SAFETY: the request is part of the caller's list, which is valid: it has the given number
        // of segments.
        let segments = unsafe { segments(request.sg_list, request.num_sge) }?;
        if request.send_flags & c::IBV_SEND_INLINE == 0 {
            batch.push(header, Payload::Datagram(to, Data::Segments(segments)))?;
        } else {
            let mut pieces: [&[u8]; MAX_SGE as usize] = [&[]; MAX_SGE as usize];
            // SAFETY: inline segments name readable memory of the caller.
            let pieces = unsafe { inline_pieces(segments, &mut pieces) }?;
            batch.push(header, Payload::Datagram(to, Data::Inline(pieces)))?;
        }
        *next = request.next;
    }
    Ok(())
}
