// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Work requests, and how they are written into ring entries.

use std::sync::atomic::AtomicU64;

use vrnic_abi as abi;
use zerocopy::transmute;

use abi::rq::RqWqe;
use abi::sq::{
    AtomicSeg, BindMwSeg, CommandSeg, DatagramSeg, Flags, HEADER_LEN, Opcode, Sge, SqWqe, XrcSeg,
};

use crate::ring;

/// Words of a send queue entry's header.
pub(crate) const SEND_HEADER_WORDS: usize = HEADER_LEN as usize / 8;
const RECV_HEADER_WORDS: usize = abi::rq::HEADER_LEN as usize / 8;
const ATOMIC_WORDS: usize = size_of::<AtomicSeg>() / 8;
const BIND_WORDS: usize = size_of::<BindMwSeg>() / 8;
const COMMAND_WORDS: usize = size_of::<CommandSeg>() / 8;
const DATAGRAM_WORDS: usize = size_of::<DatagramSeg>() / 8;
const XRC_WORDS: usize = size_of::<XrcSeg>() / 8;
const SGE_WORDS: usize = size_of::<Sge>() / 8;

/// Why a work request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// All entries of the queue are in use.
    #[error("the queue is full")]
    Full,
    /// The queue pair has no such queue.
    #[error("the queue pair has no such queue")]
    NoQueue,
    /// Posting is not allowed in this state (IBTA volume 1, 10.3.1).
    #[error("the queue pair is in a state that takes no such request")]
    State,
    /// More segments than the queue was made for, or not the one of an atomic.
    #[error("wrong number of segments")]
    Segments,
    /// More inline data than the queue was made for, or for an operation that has none.
    #[error("inline data too long or not allowed")]
    Inline,
    /// A datagram without an address handle.
    #[error("no address handle")]
    Address,
    /// Not an operation of this adapter.
    #[error("operation not supported")]
    Unsupported,
    /// Not an operation at all.
    #[error("no such operation")]
    Opcode,
}

/// What every request to the send queue has.
#[derive(Clone, Copy, Debug)]
pub struct SendHeader {
    /// Opaque; comes back with the completion.
    pub wr_id: u64,
    /// What to do.
    pub opcode: Opcode,
    /// How; [`Flags::INLINE`] follows from the payload.
    pub flags: Flags,
    /// Immediate data, as the peer shall see it.
    pub imm: [u8; 4],
    /// Remote address of WRITE, READ and atomics; first address of what BIND_MW binds.
    pub raddr: u64,
    /// Remote key of WRITE, READ, atomics and SEND_INV; the key that LOCAL_INV and BIND_MW are about.
    pub rkey: u32,
}

/// What follows a request's header.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Where the data lies, or goes.
    Segments(&'a [Sge]),
    /// The data itself, in pieces; not needed any more once the request is posted.
    Inline(&'a [&'a [u8]]),
    /// An atomic's operands, and where the old value goes.
    Atomic(AtomicSeg, &'a [Sge]),
    /// What a window is bound to.
    Bind(BindMwSeg),
    /// Where a datagram goes, and its data.
    Datagram(DatagramSeg, DatagramData<'a>),
    /// Whom a request of an XRC initiator is for, and its data.
    Xrc(XrcSeg, XrcData<'a>),
    /// A command: what the peer is let to, the data, and the message.
    Command(CommandSeg, &'a [Sge], CommandMessage<'a>),
}

/// The data of a request of an XRC initiator.
#[derive(Clone, Copy, Debug)]
pub enum XrcData<'a> {
    /// Where it lies, or goes.
    Segments(&'a [Sge]),
    /// The data itself, in pieces.
    Inline(&'a [&'a [u8]]),
    /// An atomic's operands, and where the old value goes.
    Atomic(AtomicSeg, &'a [Sge]),
}

impl XrcData<'_> {
    fn count(&self, opcode: Opcode, limits: SendLimits) -> Result<u16, PostError> {
        match self {
            Self::Segments(segments) => segment_count(segments, limits.max_sge),
            Self::Inline(pieces) => inline_count(pieces, opcode, limits.max_inline),
            Self::Atomic(_, segments) => atomic_count(segments, limits.max_sge),
        }
    }

    fn write(&self, body: &[AtomicU64]) {
        match self {
            Self::Segments(segments) => write_segments(body, segments),
            Self::Inline(pieces) => write_inline(body, pieces),
            Self::Atomic(operands, segments) => write_atomic(body, operands, segments),
        }
    }
}

/// The data of a datagram.
#[derive(Clone, Copy, Debug)]
pub enum DatagramData<'a> {
    /// Where it lies.
    Segments(&'a [Sge]),
    /// The data itself, in pieces.
    Inline(&'a [&'a [u8]]),
}

/// The message of a command.
#[derive(Clone, Copy, Debug)]
pub enum CommandMessage<'a> {
    /// Where it lies.
    Segments(&'a [Sge]),
    /// The message itself.
    Inline(&'a [u8]),
}

/// What a send queue was made for.
#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// Segments of a request.
    pub max_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
    /// Data segments of a command; zero where there are none.
    pub max_command_sge: u32,
}

impl Payload<'_> {
    /// Checks the payload of a request against what the queue was made for; returns the header's count.
    #[inline(always)]
    pub(crate) fn count(&self, opcode: Opcode, limits: SendLimits) -> Result<u16, PostError> {
        match self {
            Self::Segments(segments) => segment_count(segments, limits.max_sge),
            Self::Atomic(_, segments) => atomic_count(segments, limits.max_sge),
            Self::Inline(pieces) => inline_count(pieces, opcode, limits.max_inline),
            Self::Bind(_) => Ok(0),
            Self::Datagram(_, DatagramData::Segments(data)) => segment_count(data, limits.max_sge),
            Self::Datagram(_, DatagramData::Inline(pieces)) => {
                inline_count(pieces, opcode, limits.max_inline)
            }
            Self::Xrc(_, data) => data.count(opcode, limits),
            Self::Command(_, data, message) => command_count(data, message, limits),
        }
    }

    /// Writes all that follows the header into the rest of an entry.
    #[inline(always)]
    pub(crate) fn write(&self, body: &[AtomicU64]) {
        match self {
            Self::Segments(segments) => write_segments(body, segments),
            Self::Atomic(operands, segments) => {
                write_atomic(body, operands, segments);
            }
            Self::Inline(pieces) => write_inline(body, pieces),
            Self::Bind(segment) => {
                let words: [u64; BIND_WORDS] = transmute!(*segment);
                ring::store(body, &words);
            }
            Self::Datagram(destination, data) => {
                let words: [u64; DATAGRAM_WORDS] = transmute!(*destination);
                ring::store(body, &words);
                let body = body.get(DATAGRAM_WORDS..).unwrap_or_default();
                match data {
                    DatagramData::Segments(segments) => write_segments(body, segments),
                    DatagramData::Inline(pieces) => write_inline(body, pieces),
                }
            }
            Self::Xrc(segment, data) => {
                let words: [u64; XRC_WORDS] = transmute!(*segment);
                ring::store(body, &words);
                data.write(body.get(XRC_WORDS..).unwrap_or_default());
            }
            Self::Command(segment, data, message) => write_command(body, segment, data, message),
        }
    }

    /// The header of a request with this payload; the last word holds key and stamp.
    #[inline(always)]
    pub(crate) fn header(
        &self,
        header: &SendHeader,
        count: u16,
        stamp: u32,
    ) -> [u64; SEND_HEADER_WORDS] {
        let flags = match self {
            Self::Inline(_)
            | Self::Datagram(_, DatagramData::Inline(_))
            | Self::Xrc(_, XrcData::Inline(_))
            | Self::Command(_, _, CommandMessage::Inline(_)) => header.flags | Flags::INLINE,
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

#[inline(always)]
fn segment_count(segments: &[Sge], max: u32) -> Result<u16, PostError> {
    if segments.len() > max as usize {
        return Err(PostError::Segments);
    }
    u16::try_from(segments.len()).map_err(|_| PostError::Segments)
}

/// An atomic has one segment.
fn atomic_count(segments: &[Sge], max: u32) -> Result<u16, PostError> {
    segment_count(segments, max.min(1))
        .and_then(|count| if count == 1 { Ok(count) } else { Err(PostError::Segments) })
}

fn inline_count(pieces: &[&[u8]], opcode: Opcode, max: u32) -> Result<u16, PostError> {
    if opcode == Opcode::Read {
        return Err(PostError::Inline);
    }
    let length = pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.len()));
    let fits = length.filter(|length| *length <= max as usize);
    fits.and_then(|length| u16::try_from(length).ok()).ok_or(PostError::Inline)
}

fn command_count(
    data: &[Sge],
    message: &CommandMessage<'_>,
    limits: SendLimits,
) -> Result<u16, PostError> {
    if limits.max_command_sge == 0 {
        return Err(PostError::Unsupported);
    }
    if data.is_empty() {
        return Err(PostError::Segments);
    }
    segment_count(data, limits.max_command_sge)?;
    match message {
        CommandMessage::Segments(segments) => segment_count(segments, limits.max_sge),
        CommandMessage::Inline(bytes) => inline_count(&[bytes], Opcode::SendCmd, limits.max_inline),
    }
}

fn write_command(
    body: &[AtomicU64],
    segment: &CommandSeg,
    data: &[Sge],
    message: &CommandMessage<'_>,
) {
    let words: [u64; COMMAND_WORDS] = transmute!(*segment);
    ring::store(body, &words);
    let body = body.get(COMMAND_WORDS..).unwrap_or_default();
    write_segments(body, data);
    let body = body.get(data.len() * SGE_WORDS..).unwrap_or_default();
    match message {
        CommandMessage::Segments(segments) => write_segments(body, segments),
        CommandMessage::Inline(bytes) => write_inline(body, &[bytes]),
    }
}

fn write_atomic(body: &[AtomicU64], operands: &AtomicSeg, segments: &[Sge]) {
    let operands: [u64; ATOMIC_WORDS] = transmute!(*operands);
    ring::store(body, &operands);
    write_segments(body.get(ATOMIC_WORDS..).unwrap_or_default(), segments);
}

fn write_inline(body: &[AtomicU64], pieces: &[&[u8]]) {
    let mut writer = BytesWriter::new(body);
    for piece in pieces {
        writer.write(piece);
    }
    writer.finish();
}

/// Writes a receive queue entry.
#[inline]
pub(crate) fn write_recv(
    entry: &[AtomicU64],
    wr_id: u64,
    segments: &[Sge],
    max_sge: u32,
) -> Result<(), PostError> {
    let count = segment_count(segments, max_sge)?;
    let header: [u64; RECV_HEADER_WORDS] = transmute!(RqWqe::new(wr_id, count));
    ring::store(entry, &header);
    write_segments(entry.get(RECV_HEADER_WORDS..).unwrap_or_default(), segments);
    Ok(())
}

#[inline]
fn write_segments(entry: &[AtomicU64], segments: &[Sge]) {
    for (to, from) in entry.chunks_exact(SGE_WORDS).zip(segments) {
        let words: [u64; SGE_WORDS] = transmute!(*from);
        ring::store(to, &words);
    }
}

/// Packs pieces of bytes into words without gaps.
struct BytesWriter<'a> {
    words: std::slice::Iter<'a, AtomicU64>,
    partial: [u8; 8],
    filled: usize,
}

impl<'a> BytesWriter<'a> {
    fn new(words: &'a [AtomicU64]) -> Self {
        Self { words: words.iter(), partial: [0; 8], filled: 0 }
    }

    fn write(&mut self, mut bytes: &[u8]) {
        while self.filled != 0 {
            let Some((first, rest)) = bytes.split_first() else { return };
            self.push(*first);
            bytes = rest;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.emit(*word);
        }
        for byte in rest {
            self.push(*byte);
        }
    }

    fn push(&mut self, byte: u8) {
        if let Some(to) = self.partial.get_mut(self.filled) {
            *to = byte;
        }
        self.filled += 1;
        if self.filled == self.partial.len() {
            self.emit(self.partial);
            self.filled = 0;
        }
    }

    fn emit(&mut self, word: [u8; 8]) {
        if let Some(to) = self.words.next() {
            to.store(u64::from_ne_bytes(word), std::sync::atomic::Ordering::Relaxed);
        }
    }

    fn finish(mut self) {
        if self.filled != 0 {
            self.partial.iter_mut().skip(self.filled).for_each(|byte| *byte = 0);
            self.emit(self.partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use proptest::prelude::*;

    use super::*;

    fn entry(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(u64::MAX)).collect()
    }

    fn bytes(words: &[AtomicU64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect()
    }

    const HEADER: SendHeader = SendHeader {
        wr_id: 0x1122_3344_5566_7788,
        opcode: Opcode::WriteImm,
        flags: Flags::SIGNALED,
        imm: [1, 2, 3, 4],
        raddr: 0x8877_6655_4433_2211,
        rkey: 0xaabb_ccdd,
    };

    fn operands() -> AtomicSeg {
        AtomicSeg { swap_add: 5.into(), compare: 6.into() }
    }

    fn limits(max_sge: u32, max_inline: u32) -> SendLimits {
        SendLimits { max_sge, max_inline, max_command_sge: 0 }
    }

    fn sge(addr: u64) -> Sge {
        Sge { addr: addr.into(), length: 8.into(), lkey: 7.into() }
    }

    #[test]
    fn the_header_lies_as_the_data_sheet_says() {
        let words = Payload::Segments(&[]).header(&HEADER, 3, 0x0102_0304);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes[..8], 0x1122_3344_5566_7788u64.to_le_bytes());
        assert_eq!(bytes[8..12], [4, 1, 3, 0]);
        assert_eq!(bytes[12..16], [1, 2, 3, 4]);
        assert_eq!(bytes[16..24], 0x8877_6655_4433_2211u64.to_le_bytes());
        assert_eq!(bytes[24..28], 0xaabb_ccddu32.to_le_bytes());
        assert_eq!(bytes[28..], 0x0102_0304u32.to_le_bytes());
    }

    #[test]
    fn an_atomic_has_operands_then_one_segment() {
        let segments = [sge(0x1000)];
        let payload = Payload::Atomic(operands(), &segments);
        assert_eq!(payload.count(Opcode::CmpSwp, limits(16, 0)), Ok(1));
        let entry = entry(8);
        payload.write(&entry[4..]);
        let bytes = bytes(&entry[4..]);
        assert_eq!(bytes[..16], [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..24], 0x1000u64.to_le_bytes());
        assert_eq!(bytes[24..], [8, 0, 0, 0, 7, 0, 0, 0]);
    }

    #[test]
    fn counts_are_checked() {
        let two = [sge(0), sge(1)];
        let pieces: [&[u8]; 2] = [&[0; 10], &[0; 11]];
        let segments = Payload::Segments(&two);
        let inline = Payload::Inline(&pieces);
        let atomic = |segments| Payload::Atomic(operands(), segments);
        let count = |payload: Payload<'_>, opcode, max_sge, max_inline| {
            payload.count(opcode, limits(max_sge, max_inline))
        };
        assert_eq!(count(segments, Opcode::Send, 2, 0), Ok(2));
        assert_eq!(count(segments, Opcode::Send, 1, 0), Err(PostError::Segments));
        assert_eq!(count(atomic(&two), Opcode::FetchAdd, 2, 0), Err(PostError::Segments));
        assert_eq!(count(atomic(&[]), Opcode::FetchAdd, 2, 0), Err(PostError::Segments));
        assert_eq!(count(inline, Opcode::Write, 2, 21), Ok(21));
        assert_eq!(count(inline, Opcode::Write, 2, 20), Err(PostError::Inline));
        assert_eq!(count(inline, Opcode::Read, 2, 21), Err(PostError::Inline));
    }

    #[test]
    fn a_bind_lies_as_the_data_sheet_says() {
        let segment = BindMwSeg {
            length: 4096.into(),
            lkey: 0x501.into(),
            access: 6.into(),
            flags: 1,
            ..BindMwSeg::default()
        };
        let payload = Payload::Bind(segment);
        assert_eq!(payload.count(Opcode::BindMw, limits(1, 0)), Ok(0));
        let entry = entry(8);
        payload.write(&entry[4..]);
        let bytes = bytes(&entry[4..]);
        assert_eq!(bytes[..16], [0, 16, 0, 0, 0, 0, 0, 0, 1, 5, 0, 0, 6, 0, 0, 0]);
        assert_eq!(bytes[16..], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_command_has_its_data_then_its_message() {
        let segment =
            CommandSeg { access: 2.into(), data_count: 2.into(), ..CommandSeg::default() };
        let data = [sge(1), sge(2)];
        let message = CommandMessage::Inline(b"0123456789");
        let payload = Payload::Command(segment, &data, message);
        let limits = SendLimits { max_sge: 1, max_inline: 10, max_command_sge: 2 };
        assert_eq!(payload.count(Opcode::SendCmd, limits), Ok(10));
        let entry = entry(16);
        payload.write(&entry[4..]);
        let bytes = bytes(&entry[4..]);
        assert_eq!((bytes[0], bytes[8], bytes[16], bytes[32]), (2, 2, 1, 2));
        assert_eq!(&bytes[48..64], b"0123456789\0\0\0\0\0\0");
        assert!(bytes[64..].iter().all(|byte| *byte == 0xff));
        assert_eq!((payload.header(&HEADER, 0, 0)[1] >> 8) as u8 & 8, Flags::INLINE.bits());
        let few = SendLimits { max_command_sge: 1, ..limits };
        assert_eq!(payload.count(Opcode::SendCmd, few), Err(PostError::Segments));
        let none = SendLimits { max_command_sge: 0, ..limits };
        assert_eq!(payload.count(Opcode::SendCmd, none), Err(PostError::Unsupported));
        let short = SendLimits { max_inline: 9, ..limits };
        assert_eq!(payload.count(Opcode::SendCmd, short), Err(PostError::Inline));
        let without = Payload::Command(segment, &[], message);
        assert_eq!(without.count(Opcode::SendCmd, limits), Err(PostError::Segments));
    }

    #[test]
    fn the_inline_flag_follows_the_payload() {
        let flag = |payload: Payload<'_>| (payload.header(&HEADER, 0, 0)[1] >> 8) as u8;
        assert_eq!(flag(Payload::Inline(&[])), (Flags::SIGNALED | Flags::INLINE).bits());
        assert_eq!(flag(Payload::Segments(&[])), Flags::SIGNALED.bits());
    }

    #[test]
    fn a_receive_lies_as_the_data_sheet_says() {
        let entry = entry(8);
        write_recv(&entry, 9, &[sge(1), sge(2)], 3).expect("fits");
        let bytes = bytes(&entry);
        assert_eq!(bytes[..16], [9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16], 1);
        assert_eq!(bytes[32], 2);
        assert_eq!(bytes[48..], [0xff; 16]);
        assert_eq!(write_recv(&entry, 9, &[sge(1); 4], 3), Err(PostError::Segments));
    }

    proptest! {
        #[test]
        fn inline_pieces_join_without_gaps(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)
        ) {
            let whole: Vec<u8> = pieces.concat();
            let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let payload = Payload::Inline(&slices);
            prop_assert_eq!(payload.count(Opcode::Send, limits(0, 480)), Ok(whole.len() as u16));
            let entry = entry(64);
            payload.write(&entry[4..]);
            let body = bytes(&entry[4..]);
            prop_assert_eq!(&body[..whole.len()], &whole[..]);
            // Nothing is touched behind the last word in use.
            let end = whole.len().next_multiple_of(8);
            prop_assert!(body[end..].iter().all(|byte| *byte == 0xff));
        }
    }
}
