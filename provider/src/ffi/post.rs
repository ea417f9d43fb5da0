// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Posting work requests: from libibverbs' lists to ours.

use std::ffi::c_int;
use std::{ptr, slice};

use rustix::io::Errno;
use vrnic_abi::sq::{AtomicSeg, Flags, MAX_SGE, Opcode, Sge};
use vrnic_queues::qp::QueuePair;
use vrnic_queues::request::{Payload, PostError, SendRequest};

use super::bindings as c;
use super::{qp, status};

/// Segments are handed through as they are.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Sge>() == size_of::<c::ibv_sge>());
    assert!(align_of::<Sge>() <= align_of::<c::ibv_sge>());
    assert!(offset_of!(Sge, addr) == offset_of!(c::ibv_sge, addr));
    assert!(offset_of!(Sge, length) == offset_of!(c::ibv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(c::ibv_sge, lkey));
    assert!(cfg!(target_endian = "little"));
};

/// The number that libibverbs wants for each reason.
fn errno(error: PostError) -> Errno {
    match error {
        PostError::Full => Errno::NOMEM,
        PostError::Unsupported => Errno::OPNOTSUPP,
        PostError::NoQueue
        | PostError::State
        | PostError::Segments
        | PostError::Inline
        | PostError::Opcode => Errno::INVAL,
    }
}

/// `post_send`.
pub(super) unsafe extern "C" fn post_send(
    qp: *mut c::ibv_qp,
    list: *mut c::ibv_send_wr,
    bad: *mut *mut c::ibv_send_wr,
) -> c_int {
    // SAFETY: live by libibverbs' promise.
    let Some(queues) = (unsafe { qp::own(qp) }) else { return status(Err(Errno::INVAL)) };
    let mut next = list;
    // SAFETY: the list is valid by libibverbs' promise.
    let posted = unsafe { send_list(queues, &mut next) };
    posted.map_or_else(
        |error| {
            // SAFETY: valid by libibverbs' promise.
            unsafe { *bad = next };
            status(Err(errno(error)))
        },
        |()| 0,
    )
}

/// Posts requests up to the end of the list; on an error `next` is the one that was refused.
///
/// # Safety
/// `next` must be null or start a valid list.
unsafe fn send_list(queues: &QueuePair, next: &mut *mut c::ibv_send_wr) -> Result<(), PostError> {
    let mut batch = queues.sends()?;
    // SAFETY: by the caller's promise.
    while let Some(request) = unsafe { next.as_ref() } {
        // SAFETY: by the caller's promise.
        let segments = unsafe { segments(request.sg_list, request.num_sge) }?;
        // SAFETY: by the caller's promise the fields that the opcode calls for are set.
        let mut send = unsafe { translate(request) }?;
        if request.send_flags & c::IBV_SEND_INLINE == 0 {
            send.payload = Payload::Segments(segments);
            batch.push(send)?;
        } else {
            let mut pieces: [&[u8]; MAX_SGE as usize] = [&[]; MAX_SGE as usize];
            // SAFETY: inline segments name readable memory of the caller.
            let pieces = unsafe { inline_pieces(segments, &mut pieces) }?;
            send.payload = Payload::Inline(pieces);
            batch.push(send)?;
        }
        *next = request.next;
    }
    Ok(())
}

/// All of a request but its data.
///
/// # Safety
/// The union fields that the opcode calls for must be set.
#[inline]
unsafe fn translate<'a>(request: &c::ibv_send_wr) -> Result<SendRequest<'a>, PostError> {
    let opcode = opcode(request.opcode)?;
    let mut flags = Flags::empty();
    flags.set(Flags::SIGNALED, request.send_flags & c::IBV_SEND_SIGNALED != 0);
    flags.set(Flags::SOLICITED, request.send_flags & c::IBV_SEND_SOLICITED != 0);
    flags.set(Flags::FENCE, request.send_flags & c::IBV_SEND_FENCE != 0);
    let mut send = SendRequest {
        wr_id: request.wr_id,
        opcode,
        flags,
        imm: [0; 4],
        raddr: 0,
        rkey: 0,
        operands: AtomicSeg::default(),
        payload: Payload::Segments(&[]),
    };
    if matches!(opcode, Opcode::SendImm | Opcode::WriteImm) {
        // SAFETY: set, by the caller's promise. In network order, which we keep.
        send.imm = unsafe { request.__bindgen_anon_1.imm_data }.to_ne_bytes();
    }
    match opcode {
        Opcode::Send | Opcode::SendImm => {}
        Opcode::Write | Opcode::WriteImm | Opcode::Read => {
            // SAFETY: set, by the caller's promise.
            let rdma = unsafe { request.wr.rdma };
            (send.raddr, send.rkey) = (rdma.remote_addr, rdma.rkey);
        }
        Opcode::CmpSwp | Opcode::FetchAdd => {
            // SAFETY: set, by the caller's promise.
            let atomic = unsafe { request.wr.atomic };
            (send.raddr, send.rkey) = (atomic.remote_addr, atomic.rkey);
            send.operands = if opcode == Opcode::CmpSwp {
                AtomicSeg { swap_add: atomic.swap.into(), compare: atomic.compare_add.into() }
            } else {
                AtomicSeg { swap_add: atomic.compare_add.into(), compare: 0.into() }
            };
        }
    }
    Ok(send)
}

#[inline]
fn opcode(opcode: c::ibv_wr_opcode) -> Result<Opcode, PostError> {
    Ok(match opcode {
        c::IBV_WR_SEND => Opcode::Send,
        c::IBV_WR_SEND_WITH_IMM => Opcode::SendImm,
        c::IBV_WR_RDMA_WRITE => Opcode::Write,
        c::IBV_WR_RDMA_WRITE_WITH_IMM => Opcode::WriteImm,
        c::IBV_WR_RDMA_READ => Opcode::Read,
        c::IBV_WR_ATOMIC_CMP_AND_SWP => Opcode::CmpSwp,
        c::IBV_WR_ATOMIC_FETCH_AND_ADD => Opcode::FetchAdd,
        c::IBV_WR_LOCAL_INV
        | c::IBV_WR_BIND_MW
        | c::IBV_WR_SEND_WITH_INV
        | c::IBV_WR_TSO
        | c::IBV_WR_DRIVER1
        | c::IBV_WR_FLUSH
        | c::IBV_WR_ATOMIC_WRITE => return Err(PostError::Unsupported),
        _ => return Err(PostError::Opcode),
    })
}

/// The segments of a request.
///
/// # Safety
/// `list` must hold `count` segments that live for `'a`, unless `count` is not positive.
#[inline]
unsafe fn segments<'a>(list: *mut c::ibv_sge, count: c_int) -> Result<&'a [Sge], PostError> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        // SAFETY: by the caller's promise; both types have the same layout (see above).
        Ok(count) => Ok(unsafe { slice::from_raw_parts(list.cast(), count) }),
        Err(_) => Err(PostError::Segments),
    }
}

/// The data that segments name.
///
/// # Safety
/// Each segment must name readable memory that lives for `'a` and that nobody writes meanwhile.
unsafe fn inline_pieces<'a, 'b>(
    segments: &[Sge],
    pieces: &'b mut [&'a [u8]; MAX_SGE as usize],
) -> Result<&'b [&'a [u8]], PostError> {
    let used = pieces.get_mut(..segments.len()).ok_or(PostError::Segments)?;
    for (piece, segment) in used.iter_mut().zip(segments) {
        let length = segment.length.get() as usize;
        if length != 0 {
            let start = ptr::with_exposed_provenance(segment.addr.get() as usize);
            // SAFETY: by the caller's promise.
            *piece = unsafe { slice::from_raw_parts(start, length) };
        }
    }
    Ok(used)
}

/// `post_recv`.
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
    posted.map_or_else(
        |error| {
            // SAFETY: valid by libibverbs' promise.
            unsafe { *bad = next };
            status(Err(errno(error)))
        },
        |()| 0,
    )
}

/// Posts requests up to the end of the list; on an error `next` is the one that was refused.
///
/// # Safety
/// `next` must be null or start a valid list.
unsafe fn recv_list(queues: &QueuePair, next: &mut *mut c::ibv_recv_wr) -> Result<(), PostError> {
    let mut batch = queues.recvs()?;
    // SAFETY: by the caller's promise.
    while let Some(request) = unsafe { next.as_ref() } {
        // SAFETY: by the caller's promise.
        batch.push(request.wr_id, unsafe { segments(request.sg_list, request.num_sge) }?)?;
        *next = request.next;
    }
    Ok(())
}
