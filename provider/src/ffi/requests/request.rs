// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The parts of libibverbs' work requests, translated: headers, flags, segments and errors.

use std::ffi::c_int;
use std::{ptr, slice};

use rustix::io::Errno;
use vrnic_abi::sq::{AtomicSeg, Class, Flags, KERNEL_WR_OPCODES, MAX_SGE, Opcode, Sge};
use vrnic_queues::request::{PostError, SendHeader};

use crate::ffi::bindings as c;
use crate::ffi::status;

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
pub(in crate::ffi) fn errno(error: PostError) -> Errno {
    match error {
        PostError::Full => Errno::NOMEM,
        PostError::HandedOver => Errno::PERM,
        PostError::Unsupported => Errno::OPNOTSUPP,
        PostError::NoQueue
        | PostError::State
        | PostError::Segments
        | PostError::Inline
        | PostError::Headers
        | PostError::Address
        | PostError::Flags
        | PostError::Opcode => Errno::INVAL,
    }
}

/// Returns the result of posting a list; on an error sets `bad` to the request that was refused.
///
/// # Safety
/// `bad` must be valid.
pub(in crate::ffi) unsafe fn answer<T>(
    posted: Result<(), PostError>,
    refused: *mut T,
    bad: *mut *mut T,
) -> c_int {
    posted.map_or_else(
        |error| {
            // SAFETY: the caller passes a valid place for the refused request.
            unsafe { *bad = refused };
            status(Err(errno(error)))
        },
        |()| 0,
    )
}

/// The translation of a request for a message.
pub(in crate::ffi) struct Message {
    opcode: Opcode,
    /// True if the message carries immediate data.
    imm: bool,
    /// True if the message names memory of the peer by an address and a key.
    remote: bool,
}

/// The messages, by libibverbs' opcode. Their numbers are the first ones; other requests are rare.
pub(in crate::ffi) static MESSAGES: [Message; 5] = [
    Message::numbered(c::IBV_WR_RDMA_WRITE),
    Message::numbered(c::IBV_WR_RDMA_WRITE_WITH_IMM),
    Message::numbered(c::IBV_WR_SEND),
    Message::numbered(c::IBV_WR_SEND_WITH_IMM),
    Message::numbered(c::IBV_WR_RDMA_READ),
];

const _: () = {
    assert!(c::IBV_WR_RDMA_WRITE == 0 && c::IBV_WR_RDMA_WRITE_WITH_IMM == 1);
    assert!(c::IBV_WR_SEND == 2 && c::IBV_WR_SEND_WITH_IMM == 3);
    assert!(c::IBV_WR_RDMA_READ == 4);
};

impl Message {
    const fn numbered(number: u32) -> Self {
        match Opcode::from_wr_opcode(number) {
            Some(opcode) => Self::new(opcode),
            None => panic!("not an operation of the adapter"),
        }
    }

    const fn new(opcode: Opcode) -> Self {
        let info = opcode.info();
        let remote = matches!(info.class, Class::Write | Class::Read | Class::AtomicWrite);
        Self { opcode, imm: info.immediate, remote }
    }

    /// Returns the header of a request for such a message.
    ///
    /// # Safety
    /// The union fields that the opcode calls for must be set.
    #[inline(always)]
    pub(in crate::ffi) unsafe fn header(&self, request: &c::ibv_send_wr) -> SendHeader {
        let mut header = plain_header(request, self.opcode);
        if self.imm {
            // SAFETY: the caller passes a request in which the fields that its opcode calls for are
            // set. Immediate data is in network order, and stays so.
            header.imm = unsafe { request.__bindgen_anon_1.imm_data }.to_ne_bytes();
        }
        if self.remote {
            // SAFETY: the caller passes a request in which the fields that its opcode calls for are
            // set.
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
pub(in crate::ffi) unsafe fn message_header(request: &c::ibv_send_wr) -> Option<SendHeader> {
    // SAFETY: the caller has set the fields of the union that the opcode calls for.
    MESSAGES.get(request.opcode as usize).map(|message| unsafe { message.header(request) })
}

/// Returns a header with the fields that all requests have.
#[inline(always)]
pub(in crate::ffi) fn plain_header(request: &c::ibv_send_wr, opcode: Opcode) -> SendHeader {
    let flags = send_flags(request.send_flags);
    SendHeader { wr_id: request.wr_id, opcode, flags, imm: [0; 4], raddr: 0, rkey: 0 }
}

/// The flags of requests, of all types of queue pairs.
const KNOWN_FLAGS: u32 =
    c::IBV_SEND_SIGNALED | c::IBV_SEND_SOLICITED | c::IBV_SEND_FENCE | c::IBV_SEND_INLINE;

/// Refuses flags that the adapter does not know, and the flag for checksums, which only raw packets
/// have. A program must not believe that they have an effect.
#[inline(always)]
pub(in crate::ffi) fn check_flags(given: u32) -> Result<(), PostError> {
    if given & !KNOWN_FLAGS == 0 { Ok(()) } else { Err(PostError::Flags) }
}

/// Refuses flags that raw packets do not have.
#[inline]
pub(in crate::ffi) fn check_raw_flags(given: u32) -> Result<(), PostError> {
    check_flags(given & !c::IBV_SEND_IP_CSUM)
}

/// Translates libibverbs' flags of a request, except the flag for inline data.
#[inline(always)]
pub(in crate::ffi) fn send_flags(given: u32) -> Flags {
    let mut flags = Flags::empty();
    flags.set(Flags::SIGNALED, given & c::IBV_SEND_SIGNALED != 0);
    flags.set(Flags::SOLICITED, given & c::IBV_SEND_SOLICITED != 0);
    flags.set(Flags::FENCE, given & c::IBV_SEND_FENCE != 0);
    flags.set(Flags::IP_CSUM, given & c::IBV_SEND_IP_CSUM != 0);
    flags
}

/// Returns the header of a request for any operation but BIND_MW, and an atomic's operands.
///
/// # Errors
/// [`PostError::Unsupported`] for an operation of libibverbs that this adapter lacks;
/// [`PostError::Opcode`] for a number that no operation for programs has.
///
/// # Safety
/// The union fields that the opcode calls for must be set.
pub(in crate::ffi) unsafe fn translate(
    request: &c::ibv_send_wr,
) -> Result<(SendHeader, Option<AtomicSeg>), PostError> {
    let opcode = match request.opcode {
        // A request of this interface has no place for the operands of a FLUSH.
        c::IBV_WR_TSO | c::IBV_WR_DRIVER1 | c::IBV_WR_FLUSH => {
            return Err(PostError::Unsupported);
        }
        KERNEL_WR_OPCODES.. => None,
        number => Opcode::from_wr_opcode(number),
    };
    let opcode = opcode.ok_or(PostError::Opcode)?;
    // SAFETY: the caller has set the fields of the union that the opcode calls for.
    let mut header = unsafe { Message::new(opcode).header(request) };
    let info = opcode.info();
    if info.invalidate || info.class == Class::Local {
        // SAFETY: both fields of the union are plain numbers, of which any value is valid.
        header.rkey = unsafe { request.__bindgen_anon_1.invalidate_rkey };
    }
    if info.class != Class::Atomic {
        return Ok((header, None));
    }
    // SAFETY: the caller passes a request in which the fields that its opcode calls for are set.
    let atomic = unsafe { request.wr.atomic };
    (header.raddr, header.rkey) = (atomic.remote_addr, atomic.rkey);
    let (swap_add, compare) = match opcode {
        Opcode::CmpSwp => (atomic.swap, atomic.compare_add),
        _ => (atomic.compare_add, 0),
    };
    Ok((header, Some(AtomicSeg { swap_add: swap_add.into(), compare: compare.into() })))
}

/// Returns the segments of a request.
///
/// # Safety
/// `list` must hold `count` segments that live for `'a`, unless `count` is not positive.
#[inline]
pub(in crate::ffi) unsafe fn segments<'a>(
    list: *mut c::ibv_sge,
    count: c_int,
) -> Result<&'a [Sge], PostError> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        // SAFETY: the caller passes a list of this many segments, and both types have the same
        // layout, which this file asserts.
        Ok(count) => Ok(unsafe { slice::from_raw_parts(list.cast(), count) }),
        Err(_) => Err(PostError::Segments),
    }
}

/// Returns the data that segments name.
///
/// # Safety
/// Each segment must name readable memory that lives for `'a` and that no code writes meanwhile.
pub(in crate::ffi) unsafe fn inline_pieces<'a, 'b>(
    segments: &[Sge],
    pieces: &'b mut [&'a [u8]; MAX_SGE as usize],
) -> Result<&'b [&'a [u8]], PostError> {
    let used = pieces.get_mut(..segments.len()).ok_or(PostError::Segments)?;
    for (piece, segment) in used.iter_mut().zip(segments) {
        // SAFETY: the caller passes segments that name readable memory, which no code writes
        // meanwhile.
        *piece = unsafe { inline_piece(segment) };
    }
    Ok(used)
}

/// Returns the data that a segment names.
///
/// # Safety
/// It must be readable memory that lives for `'a` and that no code writes meanwhile.
pub(in crate::ffi) unsafe fn inline_piece<'a>(segment: &Sge) -> &'a [u8] {
    let length = segment.length.get() as usize;
    if length == 0 {
        return &[];
    }
    let start = ptr::with_exposed_provenance(segment.addr.get() as usize);
    // SAFETY: the caller passes a segment that names readable memory, which no code writes
    // meanwhile.
    unsafe { slice::from_raw_parts(start, length) }
}
