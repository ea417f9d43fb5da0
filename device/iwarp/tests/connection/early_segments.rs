//! Early octets, which arrive before the octets in front of them. The test offers them itself.
//!
//! Shows: iwarp

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use vrnic_iwarp::rdmap::work::Work;
use vrnic_iwarp::stream::close::{Happening, State};
use vrnic_iwarp::stream::{Config, Early, Event, Stream};
use vrnic_iwarp::tcp::{Offered, StreamPos, Then};
use vrnic_iwarp::wire::ddp::{Header, Model, Msn, Stag, Tagged};
use vrnic_iwarp::wire::rdmap::{Opcode, ReadRequest};
use vrnic_iwarp::wire::terminate::Cause;
use vrnic_packet::Nanos;
use vrnic_tcp::connection::Connection;
use vrnic_tcp::wire::{Flags, Header as TcpHeader, Segment};
use vrnic_tcp::{Params, SeqNum};

use crate::context::context;
use crate::host::{ALL, End, ONE_TOUCH, READ_ONLY};
use crate::raw::Raw;

/// A tagged offset of WRITEs.
const TO: u64 = 0x2_0000;

fn tagged(opcode: Opcode, stag: Stag, to: u64, last: bool) -> Header {
    Header { last, control: opcode.control(), model: Model::Tagged(Tagged { stag, to }) }
}

fn write(stag: Stag, to: u64) -> Header {
    tagged(Opcode::Write, stag, to, true)
}

fn untagged(opcode: Opcode, msn: u32, mo: u32, last: bool) -> Header {
    let queue = opcode.queue().expect("it is untagged");
    let model = Model::Untagged { invalidate: Stag(9), queue, msn: Msn(msn), mo };
    Header { last, control: opcode.control(), model }
}

fn octets(raw: &Raw, at: u64, len: usize) -> &[u8] {
    let at = usize::try_from(at).expect("small");
    &raw.pair.ends[1].ram.octets[at..at + len]
}

#[test]
fn octets_are_there_at_once_and_effects_in_their_turn() {
    let mut raw = Raw::new(true);
    raw.pair.ends[1].receive(0x1_0000, 100);
    raw.pair.ends[1].receive(0x1_1000, 100);
    let first = raw.fpdu(untagged(Opcode::Send, 1, 0, true), &[1; 50]);
    let second = raw.fpdu(untagged(Opcode::SendSolicited, 2, 0, false), &[2; 30]);
    let third = raw.fpdu(untagged(Opcode::SendSolicited, 2, 30, true), &[3; 30]);
    let early = [&second[..], &third[..]].concat();
    assert_eq!(raw.offer(first.len(), &early), Offered::Placed);
    assert_eq!(octets(&raw, 0x1_1000, 60), [[2; 30], [3; 30]].concat());
    assert!(raw.pair.ends[1].ram.received.is_empty());
    assert_eq!(raw.deliver(&first), Then::Acknowledge);
    assert_eq!(raw.pair.ends[1].ram.received.len(), 1);
    let placed = raw.pair.ends[1].ram.placed;
    assert_eq!(raw.filled(early.len()), Then::Acknowledge);
    let end = &raw.pair.ends[1];
    assert_eq!((end.ram.placed, placed), (3, 3), "nothing is placed a second time");
    assert_eq!((end.ram.received[1].len, end.ram.received[1].solicited), (60, true));
    let counters = end.stream.counters();
    assert_eq!((counters.placed_ahead, counters.fpdus_received), (2, 3));
    // The stream goes on after these octets.
    let next = raw.fpdu(write(ALL, TO), &[4; 9]);
    assert_eq!(raw.deliver(&next), Then::Acknowledge);
    assert_eq!(octets(&raw, TO, 9), [4; 9]);
}

/// Offers an FPDU after a missing one. Returns what was done with it, and delivers the missing
/// one.
fn offer_behind_a_gap(raw: &mut Raw) -> Offered {
    let (first, second) = (raw.fpdu(write(ALL, TO), &[1; 8]), raw.fpdu(write(ALL, TO), &[2; 8]));
    let offered = raw.offer(first.len(), &second);
    raw.deliver(&first);
    match offered {
        Offered::Placed => raw.filled(second.len()),
        _ => raw.deliver_stored(&second).1,
    };
    offered
}

/// A peer whose TCP cuts FPDUs may send a segment whose payload looks like FPDUs with right CRCs.
#[test]
fn crcs_show_a_boundary_only_of_peers_that_send_whole_fpdus() {
    let mut raw = Raw::with(true, Early::default());
    for _ in 0..2 {
        assert_eq!(offer_behind_a_gap(&mut raw), Offered::Buffer, "of an unknown peer");
        for _ in 0..64 {
            let whole = raw.fpdu(write(ALL, TO), &[1; 8]);
            raw.deliver(&whole);
        }
        assert_eq!(offer_behind_a_gap(&mut raw), Offered::Placed);
        let cut = raw.fpdu(write(ALL, TO), &[3; 80]);
        raw.deliver(&cut[..40]);
        raw.deliver(&cut[40..]);
    }
}

/// Returns octets that are whole FPDUs, but must not be placed.
fn refused(raw: &mut Raw) -> Vec<Vec<u8>> {
    let source = Tagged { stag: ALL, to: 0 };
    let request = ReadRequest { sink: source, size: 8, source }.octets();
    let right = raw.fpdu(write(ALL, TO), &[7; 40]);
    let mut wrong = right.clone();
    wrong[30] ^= 1;
    let headers = [
        write(Stag(0xbad), TO),
        write(READ_ONLY, TO),
        write(ALL, 1 << 18),
        write(ALL, u64::MAX),
        tagged(Opcode::ReadResponse, Stag(1), 0, true),
        tagged(Opcode::Send, ALL, TO, true),
        untagged(Opcode::SendInvalidate, 2, 0, true),
        untagged(Opcode::Send, 3, 0, true),
        untagged(Opcode::Send, 17, 0, true),
        untagged(Opcode::Send, 0, 0, true),
        untagged(Opcode::Send, 2, u32::MAX, true),
        untagged(Opcode::Immediate, 2, 0, true),
    ];
    let mut all: Vec<_> = headers.iter().map(|header| raw.fpdu(*header, &[7; 40])).collect();
    all.push(raw.fpdu(untagged(Opcode::ReadRequest, 1, 0, true), request.octets()));
    all.push(raw.fpdu(untagged(Opcode::Terminate, 1, 0, true), &[0x11, 0, 0, 0]));
    // These octets begin with a whole, valid FPDU. After it comes a part of an FPDU, or a wrong
    // one.
    all.push([&right[..], &right[..20]].concat());
    all.push([&right[..], &wrong[..]].concat());
    all.extend([wrong, right[1..].to_vec(), right[..right.len() - 1].to_vec(), vec![0; 64]]);
    all
}

#[test]
fn whatever_fails_a_check_is_stored() {
    let mut raw = Raw::new(true);
    raw.pair.ends[1].receive(0x1_0000, 100);
    raw.pair.ends[1].receive(0x1_1000, 100);
    let before = raw.pair.ends[1].ram.octets.clone();
    for (nth, octets) in refused(&mut raw).iter().enumerate() {
        assert_eq!(raw.offer(400, octets), Offered::Buffer, "{nth}");
    }
    let right = raw.fpdu(write(ALL, TO), &[7; 40]);
    assert_eq!(raw.offer(401, &right), Offered::Buffer, "no FPDU starts there");
    let end = &raw.pair.ends[1];
    assert_eq!((end.stream.counters().placed_ahead, end.ram.placed), (0, 0));
    assert!(end.ram.octets == before && end.stream.state() == State::Rts);
    assert_eq!(raw.offer(400, &right), Offered::Placed, "the same, right");
}

#[test]
fn responses_are_placed_if_there_is_no_doubt_to_which_read_they_belong() {
    let mut raw = Raw::new(true);
    let first = raw.fpdu(write(ALL, TO), &[]);
    raw.deliver(&first);
    let end = &mut raw.pair.ends[1];
    for nth in 0..2 {
        let sink = Tagged { stag: Stag(nth), to: 10 };
        let source = Tagged { stag: ALL, to: 0 };
        end.post(Work::Read { sink, source }, 0x3_0000 + 100 * nth as usize, 60);
    }
    end.stream.fill(&mut end.ram);
    let mut offer = |stag, to, last| {
        let header = tagged(Opcode::ReadResponse, Stag(stag), to, last);
        let fpdu = raw.fpdu(header, &[7; 20]);
        let offered = raw.offer(400, &fpdu);
        (offered, octets(&raw, 0x3_0000 + 64, 200).iter().filter(|octet| **octet == 7).count())
    };
    let before = offer(0, 9, false).1;
    for (stag, to, last) in [(0, 31, true), (0, 50, false), (0, 51, true), (2, 10, false)] {
        assert_eq!(offer(stag, to, last), (Offered::Buffer, before), "{stag} {to} {last}");
    }
    assert_eq!(offer(1, 50, true).0, Offered::Placed);
    assert_eq!(octets(&raw, 0x3_0000 + 140, 20), [7; 20]);
    // Two READs with equal sinks.
    let mut raw = Raw::new(true);
    raw.deliver(&first);
    let end = &mut raw.pair.ends[1];
    let place = Tagged { stag: ALL, to: 0 };
    end.post(Work::Read { sink: place, source: place }, 0x3_0000, 60);
    end.post(Work::Read { sink: place, source: place }, 0x3_1000, 60);
    end.stream.fill(&mut end.ram);
    let response = raw.fpdu(tagged(Opcode::ReadResponse, ALL, 40, true), &[7; 20]);
    assert_eq!(raw.offer(400, &response), Offered::Buffer);
}

#[test]
fn without_crcs_nothing_shows_a_boundary() {
    let mut raw = Raw::new(false);
    let right = raw.fpdu(write(ALL, TO), &[7; 40]);
    assert_eq!(raw.offer(400, &right), Offered::Buffer);
}

#[test]
fn octets_that_turn_out_to_be_no_fpdus_end_the_stream() {
    let mut raw = Raw::new(true);
    let inner = raw.fpdu(write(ALL, TO), &[7; 40]);
    let outer = raw.fpdu(write(ALL, TO + 0x1000), &[&[1; 30][..], &inner].concat());
    let start = 2 + 14 + 30;
    assert_eq!(outer[start..start + inner.len()], inner);
    // The position has to be a multiple of four.
    let outer = raw.fpdu(write(ALL, TO + 0x1000), &[&[1; 32][..], &inner].concat());
    let start = start + 2;
    assert_eq!(raw.offer(start, &outer[start..start + inner.len()]), Offered::Placed);
    assert_eq!(raw.deliver(&outer[..start]), Then::Continue);
    raw.filled(inner.len());
    assert_eq!(raw.cause(), Cause::MarkerOrLength);
    assert_eq!(raw.pair.ends[1].stream.state(), State::Terminate);
    assert_eq!(raw.pair.ends[1].stream.counters().discarded, inner.len() as u64);
}

#[test]
fn a_number_that_is_wrong_in_its_turn_ends_the_stream() {
    let mut raw = Raw::new(true);
    for nth in 0..3 {
        raw.pair.ends[1].receive(0x1_0000 + 100 * nth, 100);
    }
    let first = raw.fpdu(write(ALL, TO), &[1; 20]);
    let second = raw.fpdu(untagged(Opcode::Send, 2, 0, true), &[2; 20]);
    assert_eq!(raw.offer(first.len(), &second), Offered::Placed);
    raw.deliver(&first);
    raw.filled(second.len());
    assert_eq!(raw.cause(), Cause::MsnRange);
    assert!(raw.pair.ends[1].ram.received.is_empty());
}

#[test]
fn a_segment_that_is_placed_in_part_is_not_placed_again() {
    let mut raw = Raw::new(true);
    let first = raw.fpdu(write(ALL, TO), &[1; 20]);
    let second = raw.fpdu(write(ALL, TO + 100), &[2; 20]);
    let third = raw.fpdu(write(Stag(0xbad), TO + 200), &[3; 20]);
    let early = [&second[..], &third[..]].concat();
    assert_eq!(raw.offer(first.len(), &early), Offered::Buffer);
    assert_eq!(raw.offer(first.len(), &early), Offered::Buffer, "TCP had no room for it");
    assert_eq!(raw.pair.ends[1].stream.counters().placed_ahead, 1);
    // Another segment that overlaps that one.
    assert_eq!(raw.offer(first.len() + 4, &second), Offered::Buffer);
    assert_eq!(octets(&raw, TO + 100, 20), [2; 20]);
    raw.deliver(&first);
    // TCP may deliver stored octets in pieces.
    raw.deliver(&early[..10]);
    raw.deliver(&early[10..]);
    assert_eq!(raw.cause(), Cause::TaggedInvalidStag, "the fault is found in its turn");
    assert_eq!(raw.pair.ends[1].ram.placed, 2);
}

#[test]
fn a_message_that_ends_later_holds_up_those_that_are_placed() {
    let mut raw = Raw::new(true);
    for nth in 0..3 {
        raw.pair.ends[1].receive(0x1_0000 + 100 * nth, 100);
    }
    let fpdus: Vec<_> = (1..=3)
        .map(|msn| raw.fpdu(untagged(Opcode::Send, msn, 0, true), &[msn as u8; 20]))
        .collect();
    assert_eq!(raw.offer(fpdus[0].len(), &fpdus[1..].concat()), Offered::Placed);
    raw.deliver(&fpdus[0]);
    raw.pair.ends[1].ram.later = true;
    assert_eq!(raw.filled(2 * fpdus[1].len()), Then::Hold);
    let end = &mut raw.pair.ends[1];
    assert_eq!(end.ram.received.len(), 2);
    // The end of the stream waits, too.
    end.stream.happened(Happening::PeerFinished);
    assert_eq!(end.stream.state(), State::Rts);
    assert!(end.stream.resume(&mut end.ram));
    assert_eq!(end.ram.received.len(), 3);
    assert_ne!(end.stream.state(), State::Rts);
}

#[test]
fn a_key_for_one_message_ends_when_the_stream_has_come_to_its_last_segment() {
    let mut raw = Raw::new(true);
    let first = raw.fpdu(tagged(Opcode::Write, ONE_TOUCH, TO, false), &[1; 20]);
    let second = raw.fpdu(write(ONE_TOUCH, TO + 20), &[2; 20]);
    assert_eq!(raw.offer(first.len(), &second), Offered::Placed);
    assert!(!raw.pair.ends[1].ram.invalid.contains(&ONE_TOUCH));
    // Another early last segment is stored.
    assert_eq!(raw.offer(2 * first.len(), &second), Offered::Buffer);
    // The segments before the last one still arrive.
    raw.deliver(&first);
    assert_eq!(raw.filled(second.len()), Then::Acknowledge);
    assert_eq!(octets(&raw, TO, 40), [[1; 20], [2; 20]].concat());
    assert!(raw.pair.ends[1].ram.invalid.contains(&ONE_TOUCH));
    raw.deliver(&second);
    assert_eq!(raw.cause(), Cause::TaggedInvalidStag);
}

#[test]
fn an_empty_last_segment_ends_the_key_of_its_message() {
    let mut raw = Raw::new(true);
    let first = raw.fpdu(Header { last: false, ..write(ONE_TOUCH, 0x2_0000) }, &[7; 8]);
    assert_eq!(raw.deliver(&first), Then::Continue);
    let last = raw.fpdu(write(Stag(0), 0), &[]);
    assert_eq!(raw.deliver(&last), Then::Acknowledge);
    assert_eq!(raw.pair.ends[1].ram.invalid, [ONE_TOUCH]);
}

#[test]
fn an_empty_last_segment_waits_for_the_octets_before_it() {
    let mut raw = Raw::new(true);
    let first = raw.fpdu(Header { last: false, ..write(ONE_TOUCH, TO) }, &[7; 8]);
    assert_eq!(raw.deliver(&first), Then::Continue);
    let last = raw.fpdu(write(Stag(0), 0), &[]);
    raw.pair.ends[1].ram.moving = true;
    assert_eq!(raw.deliver(&last), Then::Hold);
    assert!(raw.pair.ends[1].stream.waits_for_memory());
    raw.pair.ends[1].ram.moving = false;
    assert_eq!(raw.deliver_stored(&last), (last.len(), Then::Acknowledge));
    assert_eq!(raw.pair.ends[1].ram.invalid, [ONE_TOUCH]);
}

#[test]
fn an_empty_last_segment_behind_a_gap_binds_the_key_of_its_message_if_that_is_known() {
    // An empty segment need not name the STag of its message, and one that is alone has none.
    for (key, is_known) in [(Stag(0), true), (ONE_TOUCH, false)] {
        let mut raw = Raw::new(true);
        let gap = raw.fpdu(write(ALL, TO + 100), &[1; 20]);
        let first = raw.fpdu(tagged(Opcode::Write, ONE_TOUCH, TO, !is_known), &[2; 20]);
        let last = raw.fpdu(write(key, 0), &[]);
        let other = raw.fpdu(write(ONE_TOUCH, TO + 40), &[3; 20]);
        let ahead = gap.len() + first.len();
        if is_known {
            assert_eq!(raw.offer(gap.len(), &first), Offered::Placed);
        }
        assert_eq!(raw.offer(ahead, &last), Offered::Placed);
        let expected = if is_known { Offered::Buffer } else { Offered::Placed };
        assert_eq!(raw.offer(ahead + last.len(), &other), expected);
        if is_known {
            raw.deliver(&gap);
            assert_eq!(raw.filled(first.len() + last.len()), Then::Acknowledge);
            assert_eq!(raw.pair.ends[1].ram.invalid, [ONE_TOUCH]);
        }
    }
}

#[test]
fn a_second_message_for_that_key_in_the_hole_is_refused() {
    let mut raw = Raw::new(true);
    let fpdu = raw.fpdu(write(ONE_TOUCH, TO), &[1; 20]);
    assert_eq!(raw.offer(fpdu.len(), &fpdu), Offered::Placed);
    raw.deliver(&fpdu);
    assert_eq!(raw.cause(), Cause::Rights, "two accesses");
}

/// A TCP segment with FPDUs, at a position near the next one.
#[derive(Clone, Debug)]
struct Arriving {
    at: u32,
    fpdus: Vec<(u8, u8, Vec<u8>)>,
    cut: usize,
    /// True if the end of the next SEND is delayed.
    later: bool,
    /// True if the caller resumes.
    resume: bool,
}

fn arriving() -> impl Strategy<Value = Arriving> {
    let octets = || vec(prop_oneof![3 => Just(0), 1 => 0..4_u8, 1 => any::<u8>()], 16..40);
    let send = (1..5_u8, octets()).prop_map(|(msn, mut octets)| {
        octets[4..16].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, msn, 0, 0, 0, 0]);
        octets
    });
    let fpdu = prop_oneof![
        12 => (Just(0xc0), Just(0), octets()),
        4 => (Just(0xc0), Just(2), octets()),
        6 => (Just(0x40), Just(3), send),
        1 => (any::<u8>(), 0..12_u8, octets()),
    ];
    let cut = prop_oneof![12 => Just(0), 1 => 0..40_usize];
    let places = prop_oneof![Just(0), 20..60_u32];
    (places, vec(fpdu, 1..4), cut, any::<[bool; 2]>()).prop_map(
        |(at, fpdus, cut, [later, resume])| Arriving { at: at * 4, fpdus, cut, later, resume },
    )
}

/// Returns the octets of a segment: FPDUs with right CRCs, from which some octets are cut off.
fn payload(raw: &Arriving) -> Vec<u8> {
    let mut stream = Vec::new();
    for (flags, opcode, octets) in &raw.fpdus {
        let mut fpdu = (octets.len() as u16 + 2).to_be_bytes().to_vec();
        fpdu.extend([flags & 0xc0 | 1, 0x40 | opcode]);
        // The STag of all memory, or 0 as in SENDs.
        fpdu.extend(if flags & 0x80 != 0 { ALL.0.to_be_bytes() } else { [0; 4] });
        // WRITEs reach the first 65,536 octets.
        fpdu.extend(if flags & 0x80 != 0 { &[0; 6] } else { &octets[4..10] });
        fpdu.extend(&octets[10..]);
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        fpdu.extend(vrnic_iwarp::crc::octets(&fpdu));
        stream.extend(fpdu);
    }
    stream.truncate(stream.len().saturating_sub(raw.cut));
    stream
}

fn connection() -> Connection {
    let context = context(SeqNum(0), SeqNum(u32::MAX - 100));
    Connection::adopt(Nanos(0), &context, &Params { buffer: 300, ..Params::default() })
}

/// Gives a segment to an end.
fn receive(end: &mut End, tcp: &mut Connection, at: u32, payload: &[u8]) {
    let seq = SeqNum((u32::MAX - 100).wrapping_add(at));
    let header = TcpHeader { seq, flags: Flags::ACK, window: 500, ..TcpHeader::default() };
    tcp.receive(Nanos(1), &Segment { header, payload }, &mut end.stream.sink(&mut end.ram));
    tcp.check();
    end.collect();
}

/// Number of FPDUs that were placed early in all runs.
static PLACED: AtomicU64 = AtomicU64::new(0);

/// Shows: iwarp
#[test]
fn any_segments_in_any_order() {
    any_segments();
    assert!(PLACED.load(Ordering::Relaxed) > 200, "{PLACED:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    fn any_segments(
        receives in 0..4_usize,
        reads in 0..3_usize,
        segments in vec(arriving(), 1..40),
        small_limit in any::<bool>(),
    ) {
        let mut config = Config { extensions: true, ..Config::default() };
        config.wishes.peer_to_peer = false;
        config.early = Early { fpdus: if small_limit { 3 } else { 256 }, by_crc: Some(0) };
        let mut tcp = connection();
        let mut end = End::new(Stream::initiate(config, &[]), 1);
        end.stream.progress(&mut end.ram, StreamPos(24), StreamPos(24));
        let reply = b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x10\x00\x10";
        let mut next = 0;
        receive(&mut end, &mut tcp, 0, reply);
        prop_assert_eq!(end.stream.state(), State::Rts);
        for nth in 0..receives {
            end.receive(0x1_0000 + 100 * nth, 100);
        }
        for nth in 0..reads {
            let sink = Tagged { stag: ALL, to: 30 * nth as u64 };
            let source = Tagged { stag: ALL, to: 0 };
            end.post(Work::Read { sink, source }, 0x3_0000 + 100 * nth, 60);
        }
        end.stream.fill(&mut end.ram);
        let before = end.ram.octets.clone();
        for arriving in &segments {
            let octets = payload(arriving);
            // Some of them are the next ones in order.
            let ahead = arriving.at.saturating_sub(80);
            end.ram.later = arriving.later;
            receive(&mut end, &mut tcp, reply.len() as u32 + next + ahead, &octets);
            if arriving.resume && end.stream.resume(&mut end.ram) {
                tcp.resume(Nanos(1), &mut end.stream.sink(&mut end.ram));
            }
            next += if ahead == 0 { octets.len() as u32 } else { 0 };
        }
        let ram = &end.ram;
        prop_assert!(ram.received.len() <= receives);
        let rest = 0x1_0000 + 100 * (receives + 1)..0x3_0000;
        prop_assert!(ram.octets[rest.clone()] == before[rest]);
        PLACED.fetch_add(end.stream.counters().placed_ahead, Ordering::Relaxed);
        end.stream.happened(Happening::Lost);
        end.collect();
        prop_assert_eq!(end.completions.len(), reads);
        let ended = end.events.iter().any(|event| matches!(event, Event::AbortiveDisconnect));
        prop_assert!(ended || end.stream.state() == State::Error || end.stream.state() == State::Idle);
    }
}
