// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Posting work requests: translates libibverbs' lists.

use std::ffi::c_int;
use std::{ptr, slice};

use rustix::io::Errno;
use vrnic_abi::sq::{AtomicSeg, Flags, MAX_SGE, MemFlags, Opcode, Sge};
use vrnic_queues::layout::WqeHeader;
use vrnic_queues::qp::{QueuePair, SendBatch};
use vrnic_queues::request::{Data, Payload, PostError, SendHeader};

use super::bindings as c;
use super::{datagram, mw, qp, status, xrc};

/// Segments have one layout in libibverbs and in the adapter, so they are not translated.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Sge>() == size_of::<c::ibv_sge>());
    assert!(align_of::<Sge>() <= align_of::<c::ibv_sge>());
    assert!(offset_of!(Sge, addr) == offset_of!(c::ibv_sge, addr));
    assert!(offset_of!(Sge, length) == offset_of!(c::ibv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(c::ibv_sge, lkey));
    assert!(cfg!(target_endian = "little"));
};

/// Returns libibverbs' errno for an error.
pub(super) fn errno(error: PostError) -> Errno {
    match error {
        PostError::Full => Errno::NOMEM,
        PostError::Unsupported => Errno::OPNOTSUPP,
        PostError::NoQueue
        | PostError::State
        | PostError::Segments
        | PostError::Inline
        | PostError::Address
        | PostError::Flags
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
    let posted = match queues.wqe_header() {
        // SAFETY: the list is valid by libibverbs' promise.
        WqeHeader::Connected => unsafe { send_list(queues, &mut next) },
        // SAFETY: the list is valid by libibverbs' promise, and so are its address handles.
        WqeHeader::Datagram => unsafe { datagram::send_list(queues, &mut next) },
        // SAFETY: the list is valid by libibverbs' promise.
        WqeHeader::Xrc => unsafe { xrc::send_list(queues, &mut next) },
    };
    // SAFETY: valid by libibverbs' promise.
    unsafe { answer(posted, next, bad) }
}

/// Returns the result of posting a list; on an error sets `bad` to the request that was refused.
///
/// # Safety
/// `bad` must be valid.
pub(super) unsafe fn answer<T>(
    posted: Result<(), PostError>,
    refused: *mut T,
    bad: *mut *mut T,
) -> c_int {
    posted.map_or_else(
        |error| {
            // SAFETY: by the caller's promise.
            unsafe { *bad = refused };
            status(Err(errno(error)))
        },
        |()| 0,
    )
}

/// Posts requests up to the end of the list; on an error `next` is the request that was refused.
///
/// # Safety
/// `next` must be null or start a valid list.
unsafe fn send_list(queues: &QueuePair, next: &mut *mut c::ibv_send_wr) -> Result<(), PostError> {
    let mut batch = queues.sends()?;
    // SAFETY: by the caller's promise.
    while let Some(request) = unsafe { next.as_ref() } {
        check_flags(request.send_flags)?;
        // SAFETY: by the caller's promise.
        let segments = unsafe { segments(request.sg_list, request.num_sge) }?;
        let inline = request.send_flags & c::IBV_SEND_INLINE != 0;
        match MESSAGES.get(request.opcode as usize) {
            Some(message) if !inline => {
                // SAFETY: by the caller's promise the fields that the opcode calls for are set.
                let header = unsafe { message.header(request) };
                batch.push(header, Payload::Plain(Data::Segments(segments)))?;
            }
            // SAFETY: by the caller's promise.
            _ => unsafe { push_rare(&mut batch, request, segments) }?,
        }
        *next = request.next;
    }
    Ok(())
}

/// The translation of a request for a message.
struct Message {
    opcode: Opcode,
    imm: bool,
    remote: bool,
}

/// The messages, by libibverbs' opcode. Their numbers are the first ones; other requests are rare.
static MESSAGES: [Message; 5] = [
    Message::new(Opcode::Write),
    Message::new(Opcode::WriteImm),
    Message::new(Opcode::Send),
    Message::new(Opcode::SendImm),
    Message::new(Opcode::Read),
];

const _: () = {
    assert!(c::IBV_WR_RDMA_WRITE == 0 && c::IBV_WR_RDMA_WRITE_WITH_IMM == 1);
    assert!(c::IBV_WR_SEND == 2 && c::IBV_WR_SEND_WITH_IMM == 3);
    assert!(c::IBV_WR_RDMA_READ == 4);
};

impl Message {
    const fn new(opcode: Opcode) -> Self {
        let info = opcode.info();
        Self { opcode, imm: info.immediate, remote: info.has_remote() }
    }

    /// Returns the header of a request for such a message.
    ///
    /// # Safety
    /// The union fields that the opcode calls for must be set.
    #[inline(always)]
    unsafe fn header(&self, request: &c::ibv_send_wr) -> SendHeader {
        let mut header = plain_header(request, self.opcode);
        if self.imm {
            // SAFETY: set, by the caller's promise. In network order, which we keep.
            header.imm = unsafe { request.__bindgen_anon_1.imm_data }.to_ne_bytes();
        }
        if self.remote {
            // SAFETY: set, by the caller's promise.
            let rdma = unsafe { request.wr.rdma };
            (header.raddr, header.rkey) = (rdma.remote_addr, rdma.rkey);
        }
        header
    }
}

/// Returns the header of a request for a message; `None` for another request.
///
/// # Safety
/// The union fields that the opcode calls for must be set.
pub(super) unsafe fn message_header(request: &c::ibv_send_wr) -> Option<SendHeader> {
    // SAFETY: by the caller's promise.
    MESSAGES.get(request.opcode as usize).map(|message| unsafe { message.header(request) })
}

/// Returns a header with the fields that all requests have.
#[inline(always)]
pub(super) fn plain_header(request: &c::ibv_send_wr, opcode: Opcode) -> SendHeader {
    let flags = send_flags(request.send_flags);
    SendHeader { wr_id: request.wr_id, opcode, flags, imm: [0; 4], raddr: 0, rkey: 0 }
}

/// Refuses flags that the adapter does not know, such as those for checksums. A program must not
/// believe that they have an effect.
#[inline(always)]
pub(super) fn check_flags(given: u32) -> Result<(), PostError> {
    const KNOWN: u32 =
        c::IBV_SEND_SIGNALED | c::IBV_SEND_SOLICITED | c::IBV_SEND_FENCE | c::IBV_SEND_INLINE;
    if given & !KNOWN == 0 { Ok(()) } else { Err(PostError::Flags) }
}

/// Translates libibverbs' flags of a request, except the flag for inline data.
#[inline(always)]
pub(super) fn send_flags(given: u32) -> Flags {
    let mut flags = Flags::empty();
    flags.set(Flags::SIGNALED, given & c::IBV_SEND_SIGNALED != 0);
    flags.set(Flags::SOLICITED, given & c::IBV_SEND_SOLICITED != 0);
    flags.set(Flags::FENCE, given & c::IBV_SEND_FENCE != 0);
    flags
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
    let inline = request.send_flags & c::IBV_SEND_INLINE != 0;
    let header = match (MESSAGES.get(request.opcode as usize), request.opcode) {
        // SAFETY: by the caller's promise.
        (Some(message), _) => unsafe { message.header(request) },
        (None, c::IBV_WR_SEND_WITH_INV) => keyed_header(request, Opcode::SendInv),
        // SAFETY: by the caller's promise.
        _ => return unsafe { push_operation(batch, request, segments) },
    };
    if !inline {
        return batch.push(header, Payload::Plain(Data::Segments(segments)));
    }
    let mut pieces: [&[u8]; MAX_SGE as usize] = [&[]; MAX_SGE as usize];
    // SAFETY: inline segments name readable memory of the caller.
    let pieces = unsafe { inline_pieces(segments, &mut pieces) }?;
    batch.push(header, Payload::Plain(Data::Inline(pieces)))
}

/// Returns the header of a request about the key in `invalidate_rkey`.
fn keyed_header(request: &c::ibv_send_wr, opcode: Opcode) -> SendHeader {
    // SAFETY: both fields of the union are plain numbers, of which any value is valid.
    let rkey = unsafe { request.__bindgen_anon_1.invalidate_rkey };
    SendHeader { rkey, ..plain_header(request, opcode) }
}

/// Posts an atomic or a memory operation.
///
/// # Safety
/// The requirements of [`send_list`] apply.
unsafe fn push_operation(
    batch: &mut SendBatch<'_>,
    request: &c::ibv_send_wr,
    segments: &[Sge],
) -> Result<(), PostError> {
    if request.send_flags & c::IBV_SEND_INLINE != 0 {
        return Err(PostError::Inline);
    }
    // SAFETY: by the caller's promise.
    if let Some((header, operands)) = unsafe { atomic(request) } {
        return batch.push(header, Payload::Plain(Data::Atomic(operands, segments)));
    }
    match request.opcode {
        c::IBV_WR_LOCAL_INV => {
            batch.push(keyed_header(request, Opcode::LocalInv), Payload::Plain(Data::Segments(&[])))
        }
        c::IBV_WR_BIND_MW => {
            // SAFETY: set, by the caller's promise.
            let wanted = unsafe { request.__bindgen_anon_2.bind_mw };
            let (flags, info) = (send_flags(request.send_flags), &wanted.bind_info);
            // SAFETY: by the caller's promise the region is live.
            let bound =
                unsafe { mw::binding(request.wr_id, flags, wanted.rkey, info, MemFlags::empty()) };
            let (header, segment) = bound.map_err(|_| PostError::Segments)?;
            batch.push(header, Payload::Bind(segment))
        }
        c::IBV_WR_TSO | c::IBV_WR_DRIVER1 | c::IBV_WR_FLUSH | c::IBV_WR_ATOMIC_WRITE => {
            Err(PostError::Unsupported)
        }
        _ => Err(PostError::Opcode),
    }
}

/// Returns header and operands of an atomic; `None` for another request.
///
/// # Safety
/// The union fields that the opcode calls for must be set.
pub(super) unsafe fn atomic(request: &c::ibv_send_wr) -> Option<(SendHeader, AtomicSeg)> {
    let opcode = match request.opcode {
        c::IBV_WR_ATOMIC_CMP_AND_SWP => Opcode::CmpSwp,
        c::IBV_WR_ATOMIC_FETCH_AND_ADD => Opcode::FetchAdd,
        _ => return None,
    };
    // SAFETY: set, by the caller's promise.
    let atomic = unsafe { request.wr.atomic };
    let (swap_add, compare) = match opcode {
        Opcode::CmpSwp => (atomic.swap, atomic.compare_add),
        _ => (atomic.compare_add, 0),
    };
    let operands = AtomicSeg { swap_add: swap_add.into(), compare: compare.into() };
    let header = SendHeader {
        raddr: atomic.remote_addr,
        rkey: atomic.rkey,
        ..plain_header(request, opcode)
    };
    Some((header, operands))
}

/// Returns the segments of a request.
///
/// # Safety
/// `list` must hold `count` segments that live for `'a`, unless `count` is not positive.
#[inline]
pub(super) unsafe fn segments<'a>(
    list: *mut c::ibv_sge,
    count: c_int,
) -> Result<&'a [Sge], PostError> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        // SAFETY: by the caller's promise; both types have the same layout (see above).
        Ok(count) => Ok(unsafe { slice::from_raw_parts(list.cast(), count) }),
        Err(_) => Err(PostError::Segments),
    }
}

/// Returns the data that segments name.
///
/// # Safety
/// Each segment must name readable memory that lives for `'a` and that nobody writes meanwhile.
pub(super) unsafe fn inline_pieces<'a, 'b>(
    segments: &[Sge],
    pieces: &'b mut [&'a [u8]; MAX_SGE as usize],
) -> Result<&'b [&'a [u8]], PostError> {
    let used = pieces.get_mut(..segments.len()).ok_or(PostError::Segments)?;
    for (piece, segment) in used.iter_mut().zip(segments) {
        // SAFETY: by the caller's promise.
        *piece = unsafe { inline_piece(segment) };
    }
    Ok(used)
}

/// Returns the data that a segment names.
///
/// # Safety
/// It must be readable memory that lives for `'a` and that nobody writes meanwhile.
pub(super) unsafe fn inline_piece<'a>(segment: &Sge) -> &'a [u8] {
    let length = segment.length.get() as usize;
    if length == 0 {
        return &[];
    }
    let start = ptr::with_exposed_provenance(segment.addr.get() as usize);
    // SAFETY: by the caller's promise.
    unsafe { slice::from_raw_parts(start, length) }
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
    // SAFETY: valid by libibverbs' promise.
    unsafe { answer(posted, next, bad) }
}

/// Posts requests up to the end of the list; on an error `next` is the request that was refused.
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
