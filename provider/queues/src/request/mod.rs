// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Work requests, and their encoding in ring entries.

mod data;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicU64;

use vrnic_abi as abi;
use zerocopy::transmute;

use abi::rq::RqWqe;
use abi::sq::{
    BindMwSeg, CommandSeg, DatagramSeg, Flags, HEADER_LEN, Opcode, SegmentSeg, Sge, SqWqe, XrcSeg,
};

pub use self::data::Data;
use self::data::{SGE_WORDS, segment_count, write_inline, write_segments};
use crate::ring;

/// Words of a send queue entry's header.
pub(crate) const SEND_HEADER_WORDS: usize = HEADER_LEN as usize / 8;
const RECV_HEADER_WORDS: usize = abi::rq::HEADER_LEN as usize / 8;
const BIND_WORDS: usize = size_of::<BindMwSeg>() / 8;
const COMMAND_WORDS: usize = size_of::<CommandSeg>() / 8;
const DATAGRAM_WORDS: usize = size_of::<DatagramSeg>() / 8;
const XRC_WORDS: usize = size_of::<XrcSeg>() / 8;
const SEGMENT_WORDS: usize = size_of::<SegmentSeg>() / 8;

/// The reason for which a work request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// All entries of the queue are in use.
    #[error("the queue is full")]
    Full,
    /// Another poster has the queue.
    #[error("the queue was handed over to another poster")]
    HandedOver,
    /// The queue pair has no such queue.
    #[error("the queue pair has no such queue")]
    NoQueue,
    /// Posting is not allowed in this state (IBTA volume 1, 10.3.1).
    #[error("the queue pair does not accept such requests in its present state")]
    State,
    /// There are more segments than the queue was created for, or an atomic does not have exactly
    /// one.
    #[error("the number of segments is wrong")]
    Segments,
    /// There is more inline data than the queue was created for, or the operation cannot have any.
    #[error("the inline data is too long or not allowed")]
    Inline,
    /// The headers of a SEGMENT are missing, or longer than the queue was created for.
    #[error("the length of the headers is wrong")]
    Headers,
    /// A datagram has no address handle.
    #[error("the address handle is missing")]
    Address,
    /// The adapter does not have this operation.
    #[error("the operation is not supported")]
    Unsupported,
    /// No operation of this adapter has this flag.
    #[error("a flag is not known")]
    Flags,
    /// The operation does not exist.
    #[error("the operation does not exist")]
    Opcode,
}

impl PostError {
    /// Returns the error of a queue that has no free entry. `room` is the number of entries that
    /// may be outstanding.
    #[cold]
    pub(crate) fn without_entry(room: u32) -> Self {
        if room == 0 { Self::HandedOver } else { Self::Full }
    }
}

/// The fields that every request to the send queue has.
#[derive(Clone, Copy, Debug)]
pub struct SendHeader {
    /// An opaque value that comes back with the completion.
    pub wr_id: u64,
    /// The operation.
    pub opcode: Opcode,
    /// Flags; [`Flags::INLINE`] follows from the payload.
    pub flags: Flags,
    /// Immediate data, in the byte order of the peer's completion.
    pub imm: [u8; 4],
    /// Remote address of WRITE, READ and atomics; first address of the memory that BIND_MW binds.
    pub raddr: u64,
    /// Remote key of WRITE, READ, atomics and SEND_INV; the key that LOCAL_INV invalidates or
    /// BIND_MW assigns.
    pub rkey: u32,
}

/// The limits of a send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// Maximum number of segments of a request.
    pub max_sge: u32,
    /// Maximum number of bytes of inline data.
    pub max_inline: u32,
    /// Maximum number of data segments of a command; zero if the queue has no commands.
    pub max_command_sge: u32,
    /// Maximum number of bytes of a SEGMENT's headers; zero if the queue has no SEGMENTs.
    pub max_headers: u32,
}

/// The part of a request after its header.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// The data of a request over a connection.
    Plain(Data<'a>),
    /// The destination of a datagram, and its data.
    Datagram(DatagramSeg, Data<'a>),
    /// The shared receive queue of an XRC initiator's request, and its data.
    Xrc(XrcSeg, Data<'a>),
    /// The memory that a window is bound to.
    Bind(BindMwSeg),
    /// A large TCP segment for several frames.
    Segment {
        /// Maximum number of bytes of payload in a frame.
        mss: u16,
        /// The headers of each frame.
        headers: &'a [u8],
        /// The payload.
        data: &'a [Sge],
    },
    /// A command: the peer's rights, the data that it may access, and the message.
    Command(CommandSeg, &'a [Sge], Data<'a>),
}

impl Payload<'_> {
    /// Checks the payload against the limits of the queue; returns the header's count.
    #[inline(always)]
    pub(crate) fn count(&self, opcode: Opcode, limits: SendLimits) -> Result<u16, PostError> {
        match self {
            Self::Plain(data) | Self::Xrc(_, data) => data.count(opcode, limits),
            Self::Datagram(_, data) => message_count(data, opcode, limits),
            Self::Bind(_) => Ok(0),
            Self::Segment { headers, data, .. } => segment_parts(headers, data, limits),
            Self::Command(_, data, message) => command_count(data, message, limits),
        }
    }

    /// Writes the payload into an entry, after the header.
    #[inline(always)]
    pub(crate) fn write(&self, body: &[AtomicU64]) {
        match self {
            Self::Plain(data) => data.write(body),
            Self::Datagram(destination, data) => {
                let words: [u64; DATAGRAM_WORDS] = transmute!(*destination);
                data.write(behind(body, &words));
            }
            Self::Xrc(segment, data) => {
                let words: [u64; XRC_WORDS] = transmute!(*segment);
                data.write(behind(body, &words));
            }
            Self::Bind(segment) => {
                let words: [u64; BIND_WORDS] = transmute!(*segment);
                ring::store(body, &words);
            }
            Self::Segment { mss, headers, data } => write_segment(body, *mss, headers, data),
            Self::Command(segment, data, message) => write_command(body, segment, data, message),
        }
    }

    /// Returns the header of a request with this payload. The last word holds key and stamp.
    #[inline(always)]
    pub(crate) fn header(
        &self,
        header: &SendHeader,
        count: u16,
        stamp: u32,
    ) -> [u64; SEND_HEADER_WORDS] {
        let flags = match self {
            Self::Plain(Data::Inline(_))
            | Self::Datagram(_, Data::Inline(_))
            | Self::Xrc(_, Data::Inline(_))
            | Self::Command(_, _, Data::Inline(_)) => header.flags | Flags::INLINE,
            _ => header.flags - Flags::INLINE,
        };
        transmute!(SqWqe {
            wr_id: header.wr_id.into(),
            opcode: header.opcode as u8,
            flags: flags.bits(),
            count: count.into(),
            imm: header.imm,
            raddr: header.raddr.into(),
            rkey: header.rkey.into(),
            stamp: stamp.into(),
        })
    }
}

/// Writes the first words of an entry's body; returns the rest.
#[inline(always)]
fn behind<'a, const N: usize>(body: &'a [AtomicU64], words: &[u64; N]) -> &'a [AtomicU64] {
    ring::store(body, words);
    body.get(N..).unwrap_or_default()
}

/// Refuses atomics, and otherwise performs the same check as [`Data::count`].
fn message_count(data: &Data<'_>, opcode: Opcode, limits: SendLimits) -> Result<u16, PostError> {
    match data {
        Data::Atomic(..) => Err(PostError::Unsupported),
        data => data.count(opcode, limits),
    }
}

/// Returns the number of segments of a SEGMENT.
fn segment_parts(headers: &[u8], data: &[Sge], limits: SendLimits) -> Result<u16, PostError> {
    if limits.max_headers == 0 {
        return Err(PostError::Unsupported);
    }
    if headers.is_empty() || headers.len() > limits.max_headers as usize {
        return Err(PostError::Headers);
    }
    segment_count(data, limits.max_sge)
}

/// Writes a SEGMENT, whose headers fill up whole segments.
fn write_segment(body: &[AtomicU64], mss: u16, headers: &[u8], data: &[Sge]) {
    // The length was checked.
    let length = u16::try_from(headers.len()).unwrap_or(u16::MAX);
    let segment =
        SegmentSeg { mss: mss.into(), header_len: length.into(), ..SegmentSeg::default() };
    let words: [u64; SEGMENT_WORDS] = transmute!(segment);
    let body = behind(body, &words);
    write_inline(body, &[headers]);
    let words = headers.len().div_ceil(size_of::<Sge>()) * SGE_WORDS;
    write_segments(body.get(words..).unwrap_or_default(), data);
}

fn command_count(data: &[Sge], message: &Data<'_>, limits: SendLimits) -> Result<u16, PostError> {
    if limits.max_command_sge == 0 {
        return Err(PostError::Unsupported);
    }
    if data.is_empty() {
        return Err(PostError::Segments);
    }
    segment_count(data, limits.max_command_sge)?;
    message_count(message, Opcode::SendCmd, limits)
}

fn write_command(body: &[AtomicU64], segment: &CommandSeg, data: &[Sge], message: &Data<'_>) {
    let words: [u64; COMMAND_WORDS] = transmute!(*segment);
    let body = behind(body, &words);
    write_segments(body, data);
    message.write(body.get(data.len() * SGE_WORDS..).unwrap_or_default());
}

/// Writes a receive queue entry.
///
/// # Errors
/// [`PostError::Segments`] if there are more than `max_sge`.
#[inline]
pub fn write_recv(
    entry: &[AtomicU64],
    wr_id: u64,
    segments: &[Sge],
    max_sge: u32,
) -> Result<(), PostError> {
    let count = segment_count(segments, max_sge)?;
    let header: [u64; RECV_HEADER_WORDS] = transmute!(RqWqe::new(wr_id, count));
    write_segments(behind(entry, &header), segments);
    Ok(())
}
