// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Shows: queues: work requests of programs: segments, inline data, raw packets

use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;

use abi::sq::AtomicSeg;

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
    SendLimits { max_sge, max_inline, max_command_sge: 0, max_headers: 0 }
}

fn sge(addr: u64) -> Sge {
    Sge { addr: addr.into(), length: 8.into(), lkey: 7.into() }
}

#[test]
fn the_header_lies_as_the_data_sheet_says() {
    let words = Payload::Plain(Data::Segments(&[])).header(&HEADER, 3, 0x0102_0304);
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
    let payload = Payload::Plain(Data::Atomic(operands(), &segments));
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
    let segments = Payload::Plain(Data::Segments(&two));
    let inline = Payload::Plain(Data::Inline(&pieces));
    let atomic = |segments| Payload::Plain(Data::Atomic(operands(), segments));
    let count = |payload: Payload<'_>, opcode, max_sge, max_inline| {
        payload.count(opcode, limits(max_sge, max_inline))
    };
    assert_eq!(count(segments, Opcode::Send, 2, 0), Ok(2));
    assert_eq!(count(segments, Opcode::Send, 1, 0), Err(PostError::Segments));
    assert_eq!(count(atomic(&two), Opcode::FetchAdd, 2, 0), Err(PostError::Segments));
    assert_eq!(count(atomic(&[]), Opcode::FetchAdd, 2, 0), Err(PostError::Segments));
    assert_eq!(count(inline, Opcode::Write, 2, 21), Ok(21));
    let datagram = Payload::Datagram(DatagramSeg::default(), Data::Atomic(operands(), &two));
    assert_eq!(count(datagram, Opcode::FetchAdd, 2, 0), Err(PostError::Unsupported));
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
    let segment = CommandSeg { access: 2.into(), data_count: 2.into(), ..CommandSeg::default() };
    let data = [sge(1), sge(2)];
    let message = Data::Inline(&[b"0123456789"]);
    let payload = Payload::Command(segment, &data, message);
    let limits = SendLimits { max_command_sge: 2, ..limits(1, 10) };
    assert_eq!(payload.count(Opcode::SendCmd, limits), Ok(10));
    let entry = entry(16);
    payload.write(&entry[4..]);
    let bytes = bytes(&entry[4..]);
    assert_eq!((bytes[0], bytes[8], bytes[16], bytes[32]), (2, 2, 1, 2));
    assert_eq!(&bytes[48..64], b"0123456789\0\0\0\0\0\0");
    assert!(bytes[64..].iter().all(|byte| *byte == 0xff));
    assert_eq!((payload.header(&HEADER, 0, 0)[1] >> 8) as u8 & 8, Flags::INLINE.bits());
    let limited = SendLimits { max_command_sge: 1, ..limits };
    assert_eq!(payload.count(Opcode::SendCmd, limited), Err(PostError::Segments));
    let none = SendLimits { max_command_sge: 0, ..limits };
    assert_eq!(payload.count(Opcode::SendCmd, none), Err(PostError::Unsupported));
    let short = SendLimits { max_inline: 9, ..limits };
    assert_eq!(payload.count(Opcode::SendCmd, short), Err(PostError::Inline));
    let without = Payload::Command(segment, &[], message);
    assert_eq!(without.count(Opcode::SendCmd, limits), Err(PostError::Segments));
}

/// Shows: raw: a large TCP segment has its headers, then its payload
#[test]
fn a_segment_has_its_headers_then_its_payload() {
    let headers: Vec<u8> = (1..=54).collect();
    let data = [sge(1), sge(2)];
    let payload = Payload::Segment { mss: 1460, headers: &headers, data: &data };
    let limits = SendLimits { max_headers: 54, ..limits(2, 0) };
    assert_eq!(payload.count(Opcode::Segment, limits), Ok(2));
    let entry = entry(20);
    payload.write(&entry[4..]);
    let bytes = bytes(&entry[4..]);
    assert_eq!(bytes[..4], [0xb4, 0x05, 54, 0], "the MSS, and the length of the headers");
    assert_eq!(bytes[4..16], [0; 12]);
    assert_eq!(bytes[16..70], headers[..]);
    assert_eq!((bytes[80], bytes[96]), (1, 2), "segments behind headers of 64 bytes");
    assert!(bytes[112..].iter().all(|byte| *byte == 0xff));
    let short = SendLimits { max_headers: 53, ..limits };
    assert_eq!(payload.count(Opcode::Segment, short), Err(PostError::Headers));
    let none = SendLimits { max_headers: 0, ..limits };
    assert_eq!(payload.count(Opcode::Segment, none), Err(PostError::Unsupported));
    let few = SendLimits { max_sge: 1, ..limits };
    assert_eq!(payload.count(Opcode::Segment, few), Err(PostError::Segments));
    let bare = Payload::Segment { mss: 1460, headers: &[], data: &data };
    assert_eq!(bare.count(Opcode::Segment, limits), Err(PostError::Headers));
}

#[test]
fn the_inline_flag_follows_the_payload() {
    let flag = |payload: Payload<'_>| (payload.header(&HEADER, 0, 0)[1] >> 8) as u8;
    assert_eq!(flag(Payload::Plain(Data::Inline(&[]))), (Flags::SIGNALED | Flags::INLINE).bits());
    assert_eq!(flag(Payload::Plain(Data::Segments(&[]))), Flags::SIGNALED.bits());
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
        let payload = Payload::Plain(Data::Inline(&slices));
        prop_assert_eq!(payload.count(Opcode::Send, limits(0, 480)), Ok(whole.len() as u16));
        let entry = entry(64);
        payload.write(&entry[4..]);
        let body = bytes(&entry[4..]);
        prop_assert_eq!(&body[..whole.len()], &whole[..]);
        // Nothing is touched after the last word in use.
        let end = whole.len().next_multiple_of(8);
        prop_assert!(body[end..].iter().all(|byte| *byte == 0xff));
    }
}

#[test]
fn an_atomic_write_always_has_room_for_its_word_and_a_flush_has_no_segments() {
    let word: [&[u8]; 1] = [&[1; 8]];
    let inline = Payload::Plain(Data::Inline(&word));
    assert_eq!(inline.count(Opcode::AtomicWrite, limits(1, 0)), Ok(8));
    assert_eq!(inline.count(Opcode::Write, limits(1, 0)), Err(PostError::Inline));
    let long: [&[u8]; 1] = [&[1; 9]];
    let long = Payload::Plain(Data::Inline(&long));
    assert_eq!(long.count(Opcode::AtomicWrite, limits(1, 0)), Err(PostError::Inline));
    let one = [sge(0)];
    let flush = |segments| Payload::Plain(Data::Atomic(operands(), segments));
    assert_eq!(flush(&[]).count(Opcode::Flush, limits(1, 0)), Ok(0));
    assert_eq!(flush(&one).count(Opcode::Flush, limits(1, 0)), Err(PostError::Segments));
    assert_eq!(flush(&[]).count(Opcode::FetchAdd, limits(1, 0)), Err(PostError::Segments));
}
