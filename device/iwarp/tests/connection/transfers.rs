//! Messages of all kinds, between two ends.
//!
//! Shows: iwarp

use proptest::collection::vec;
use proptest::prelude::*;
use vrnic_iwarp::mpa::start::Wishes;
use vrnic_iwarp::rdmap::completion::Rule;
use vrnic_iwarp::rdmap::work::{Immediate, Outcome, Work, WorkRequest};
use vrnic_iwarp::stream::{Config, Event};
use vrnic_iwarp::tcp::Then;
use vrnic_iwarp::wire::ddp::{Header, Model, Stag, Tagged};
use vrnic_iwarp::wire::rdmap::{AtomicOp, Opcode, SendKind};

use crate::host::{ALL, End, ONE_TOUCH, Ram, Received};
use crate::pipe::Pair;
use crate::raw::Raw;

fn pair(seed: u64) -> Pair {
    Pair::new(seed, Config::default(), Config::default())
}

fn at(to: u64) -> Tagged {
    Tagged { stag: ALL, to }
}

#[test]
fn one_send_and_one_write_arrive() {
    let mut pair = pair(1);
    pair.ends[1].receive(0x1_0000, 4000);
    pair.ends[0].post(Work::Send(SendKind::default()), 100, 3333);
    pair.ends[0].post(Work::Write(at(0x2_0000)), 5000, 10_001);
    pair.run();
    assert_eq!(pair.ends[0].outcomes(), [(0, Outcome::Success), (1, Outcome::Success)]);
    let [first, second] = &pair.ends;
    let received =
        Received { at: 0x1_0000, len: 3333, solicited: false, invalidated: None, immediate: None };
    assert_eq!(second.ram.received, [received]);
    assert_eq!(second.ram.octets[0x1_0000..0x1_0000 + 3333], first.ram.octets[100..3433]);
    assert_eq!(second.ram.octets[0x2_0000..0x2_0000 + 10_001], first.ram.octets[5000..15_001]);
    assert!(matches!(first.events[..], [Event::Established(_)]), "{:?}", first.events);
    assert!(matches!(second.events[..], [Event::Established(_)]), "{:?}", second.events);
    assert_eq!((first.stream.private(), second.stream.private()), (&b"welcome"[..], &b"hello"[..]));
}

#[test]
fn solicited_events_invalidation_and_immediate_data_come_with_their_message() {
    let config = Config { extensions: true, ..Config::default() };
    let mut pair = Pair::new(2, config, config);
    for nth in 0..3 {
        pair.ends[1].receive(0x1_0000 + 100 * nth, 100);
    }
    let stag = Stag(0x7777);
    let kind = SendKind { solicited: true, invalidate: Some(stag) };
    pair.ends[0].post(Work::Send(kind), 0, 0);
    let immediate = Immediate { data: [1, 2, 3, 4], solicited: true };
    pair.ends[0].post(Work::WriteImmediate(at(0x2_0000), immediate), 10, 20);
    pair.ends[0].post(Work::Send(SendKind { solicited: true, invalidate: None }), 0, 100);
    pair.run();
    let received = &pair.ends[1].ram.received;
    assert_eq!(received.len(), 3);
    assert_eq!(
        (received[0].len, received[0].solicited, received[0].invalidated),
        (0, true, Some(stag))
    );
    let immediate = Some([1, 2, 3, 4, 0, 0, 0, 0]);
    assert_eq!(
        (received[1].len, received[1].solicited, received[1].immediate),
        (20, true, immediate)
    );
    assert_eq!(
        (received[2].len, received[2].solicited, received[2].invalidated),
        (100, true, None)
    );
    assert_eq!(pair.ends[1].ram.octets[0x2_0000..0x2_0014], pair.ends[0].ram.octets[10..30]);
    assert_eq!(pair.ends[0].completions.len(), 3, "one for each work request");
}

#[test]
fn atomics_bring_the_old_value() {
    let config = Config { extensions: true, ..Config::default() };
    let mut pair = Pair::new(3, config, config);
    pair.ends[1].ram.octets[0x2_0000..0x2_0008].copy_from_slice(&41_u64.to_ne_bytes());
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
    let swap = AtomicOp::CompareSwap { compare: 42, compare_mask, swap: 7, swap_mask };
    pair.ends[0].post(Work::Atomic(at(0x2_0000), add), 0, 8);
    pair.ends[0].post(Work::Atomic(at(0x2_0000), swap), 8, 8);
    pair.run();
    let word = |end: usize, at: usize| {
        u64::from_ne_bytes(pair.ends[end].ram.octets[at..at + 8].try_into().expect("eight octets"))
    };
    assert_eq!((word(0, 0), word(0, 8), word(1, 0x2_0000)), (41, 42, 7));
    assert_eq!(pair.ends[0].outcomes(), [(0, Outcome::Success), (1, Outcome::Success)]);
}

#[test]
fn a_send_waits_for_its_receive() {
    let mut pair = pair(4);
    pair.resumes = false;
    pair.ends[0].post(Work::Send(SendKind::default()), 0, 50);
    pair.ends[0].post(Work::Write(at(0x2_0000)), 0, 50);
    pair.run();
    assert!(pair.ends[1].stream.waits_for_receive());
    assert_eq!(
        pair.ends[1].ram.octets[0x2_0000..0x2_0032],
        Ram::new(!4, 1 << 18).octets[0x2_0000..0x2_0032]
    );
    pair.ends[1].receive(0x1_0000, 50);
    pair.resumes = true;
    pair.run();
    assert!(!pair.ends[1].stream.waits_for_receive());
    assert_eq!(pair.ends[1].ram.received.len(), 1);
    assert_eq!(pair.ends[0].completions.len(), 2);
}

#[test]
fn a_message_that_ends_later_holds_up_those_behind_it() {
    let mut pair = pair(5);
    pair.ends[1].ram.later = true;
    pair.ends[1].receive(0x1_0000, 50);
    pair.ends[1].receive(0x1_1000, 50);
    pair.resumes = false;
    pair.ends[0].post(Work::Send(SendKind::default()), 0, 50);
    pair.ends[0].post(Work::Send(SendKind::default()), 0, 50);
    pair.run();
    assert_eq!(pair.ends[1].ram.received.len(), 1);
    pair.resumes = true;
    pair.run();
    assert_eq!(pair.ends[1].ram.received.len(), 2);
}

/// Shows: iwarp
#[test]
fn the_responder_is_silent_until_the_initiator_has_spoken() {
    let wishes = Wishes { peer_to_peer: false, ..Wishes::default() };
    let mut pair = Pair::new(6, Config { wishes, ..Config::default() }, Config::default());
    pair.ends[1].post(Work::Write(at(0)), 0, 10);
    pair.run();
    assert!(pair.ends[1].completions.is_empty());
    assert_eq!(pair.ways[1].shadow.len(), 20 + 4 + 7, "only the reply");
    pair.ends[0].post(Work::Write(at(0)), 0, 0);
    pair.run();
    assert_eq!(pair.ends[1].completions.len(), 1);
}

#[test]
fn a_key_for_one_message_ends_when_the_answer_of_its_read_is_acknowledged() {
    for seed in 0..20 {
        let mut pair = pair(seed);
        let source = Tagged { stag: ONE_TOUCH, to: 0x2_0000 };
        let sink = Tagged { stag: Stag(7), to: 0 };
        pair.ends[0].post(Work::Read { sink, source }, 0x1_0000, 20_000);
        while pair.ends[0].completions.is_empty() {
            pair.step();
        }
        // Until the answer is acknowledged, the pair builds parts of it again.
        pair.run();
        assert_eq!(pair.ends[0].outcomes(), [(0, Outcome::Success)]);
        assert_eq!(pair.ends[1].ram.invalid, [ONE_TOUCH]);
        let octets = |end: usize, at: usize| pair.ends[end].ram.octets[at..at + 20_000].to_vec();
        assert_eq!(octets(0, 0x1_0000), octets(1, 0x2_0000));
    }
}

#[test]
fn both_parts_of_an_fpdu_that_is_cut_are_of_one_moment() {
    let mut pair = pair(7);
    (pair.compares, pair.segment) = (false, 600);
    let (source, sink) = (at(0x2_0000), Tagged { stag: Stag(7), to: 0 });
    pair.ends[0].post(Work::Read { sink, source }, 0x1_0000, 20_000);
    while pair.ends[0].completions.is_empty() {
        pair.step();
        // A program of the peer writes to the memory of the READ.
        pair.ends[1].ram.octets[0x2_0000..0x2_0000 + 20_000].iter_mut().for_each(|at| *at ^= 1);
    }
    assert_eq!(pair.ends[0].outcomes(), [(0, Outcome::Success)]);
    assert_eq!(pair.ends[0].stream.counters().crc_errors, 0);
}

#[test]
fn a_fence_waits_for_reads() {
    let mut pair = pair(7);
    let sink = Tagged { stag: Stag(5), to: 0 };
    pair.ends[0].post(Work::Read { sink, source: at(0x2_0000) }, 0x3_0000, 5000);
    pair.ends[0].ram.work.insert(99, 0x3_0000);
    let (work, signaled, fence) = (Work::Write(at(0x1_0000)), true, true);
    let request = WorkRequest { id: 99, work, length: 5000, signaled, fence };
    pair.ends[0].stream.push(request).expect("room");
    pair.compares = false;
    pair.run();
    // The WRITE sends the octets that the READ has brought.
    let octets = &pair.ends[1].ram.octets;
    assert_eq!(octets[0x1_0000..0x1_0000 + 5000], octets[0x2_0000..0x2_0000 + 5000]);
}

/// A message of a random schedule.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    Write,
    Read,
}

fn kinds() -> impl Strategy<Value = Vec<(Kind, u32)>> {
    let kind = prop_oneof![Just(Kind::Send), Just(Kind::Write), Just(Kind::Read)];
    let length = prop_oneof![Just(0), 1..20_u32, 1420..1430_u32, 0..2500_u32];
    vec((kind, length), 1..12)
}

fn configs() -> impl Strategy<Value = Config> {
    let wishes = (any::<bool>(), any::<bool>(), 1..4_u16, 1..4_u16, any::<bool>()).prop_map(
        |(crc, markers, ird, ord, peer_to_peer)| Wishes {
            crc,
            markers,
            ird,
            ord,
            peer_to_peer,
            ..Wishes::default()
        },
    );
    let rule = prop_oneof![Just(Rule::Sequence), Just(Rule::QueueLength)];
    (wishes, 100..4000_u32, prop_oneof![Just(0), Just(1000_u32)], rule, 1..20_000_u32).prop_map(
        |(wishes, emss, early_completion, rule, ahead)| Config {
            wishes,
            emss,
            early_completion,
            copies: 3000,
            rule,
            ahead,
            ..Config::default()
        },
    )
}

/// Areas of an end's memory: sent octets, memory that the peer reads, receives, targets of WRITEs,
/// sinks of READs.
const SENT: usize = 0;
const READ: usize = 0x8000;
const RECEIVED: usize = 0x1_0000;
const WRITTEN: usize = 0x2_0000;
const SUNK: usize = 0x3_0000;

/// Posts a schedule. Returns the ranges that must be equal at the end: the end, the offset, the
/// octets.
fn post(pair: &mut Pair, end: usize, schedule: &[(Kind, u32)]) -> Vec<(usize, usize, Vec<u8>)> {
    let (mut expected, mut offset) = (Vec::new(), 0);
    for (nth, (kind, length)) in schedule.iter().enumerate() {
        let len = *length as usize;
        let part = |end: usize, from: usize| pair.ends[end].ram.octets[from..from + len].to_vec();
        let to = |area: usize| (area + offset) as u64;
        let (from, work, result) = match kind {
            Kind::Send => {
                let result = (1 - end, RECEIVED + offset, part(end, SENT + offset));
                pair.ends[1 - end].receive(RECEIVED + offset, len);
                (SENT, Work::Send(SendKind::default()), result)
            }
            Kind::Write => {
                let result = (1 - end, WRITTEN + offset, part(end, SENT + offset));
                (SENT, Work::Write(at(to(WRITTEN))), result)
            }
            Kind::Read => {
                let result = (end, SUNK + offset, part(1 - end, READ + offset));
                let sink = Tagged { stag: Stag(nth as u32), to: to(SUNK) };
                (SUNK, Work::Read { sink, source: at(to(READ)) }, result)
            }
        };
        pair.ends[end].post(work, from + offset, *length);
        expected.push(result);
        offset += len;
    }
    expected
}

/// Overwrites the memory of messages that have been sent and completed, as a program may.
fn overwrite(pair: &mut Pair, end: usize, schedule: &[(Kind, u32)], seen: &mut usize) {
    let End { completions, ram, .. } = &mut pair.ends[end];
    for done in completions.iter().skip(*seen) {
        let (kind, length) = schedule[done.id as usize];
        if !matches!(kind, Kind::Read) {
            let start = ram.work[&done.id];
            ram.octets[start..start + length as usize].fill(0xee);
        }
    }
    *seen = completions.len();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Ranges without acknowledgement are built again at random all the time, and compared.
    #[test]
    fn every_message_arrives_once_and_unchanged_though_buffers_are_used_again(
        seed: u64,
        first in kinds(),
        second in kinds(),
        configs in (configs(), configs()),
    ) {
        let schedules = [first, second];
        let mut pair = Pair::new(seed, configs.0, configs.1);
        let mut expected = post(&mut pair, 0, &schedules[0]);
        expected.extend(post(&mut pair, 1, &schedules[1]));
        let mut seen = [0, 0];
        for _ in 0..20_000 {
            pair.step();
            for end in 0..2 {
                overwrite(&mut pair, end, &schedules[end], &mut seen[end]);
            }
        }
        for end in 0..2 {
            let count = schedules[end].len();
            let outcomes: Vec<_> = (0..count as u64).map(|id| (id, Outcome::Success)).collect();
            prop_assert_eq!(pair.ends[end].outcomes(), outcomes);
            let sends = schedules[1 - end].iter().filter(|(kind, _)| matches!(kind, Kind::Send));
            let lengths: Vec<_> = sends.map(|(_, length)| *length as usize).collect();
            let received = pair.ends[end].ram.received.iter().map(|done| done.len);
            prop_assert_eq!(received.collect::<Vec<_>>(), lengths);
        }
        for (end, start, octets) in expected {
            prop_assert_eq!(&pair.ends[end].ram.octets[start..start + octets.len()], &octets[..]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// With both rules, the same work requests complete at the same time: when their own octets are
    /// acknowledged, not before, and not with later octets.
    ///
    /// Shows: iwarp
    #[test]
    fn both_rules_complete_the_same_at_the_same_moments(
        seed: u64,
        schedule in kinds(),
        config in configs(),
    ) {
        let with = |rule| {
            let config = Config { rule, ..config };
            let mut pair = Pair::new(seed, config, config);
            post(&mut pair, 0, &schedule);
            pair
        };
        let mut pairs = [Rule::Sequence, Rule::QueueLength].map(with);
        for _ in 0..5000 {
            pairs.iter_mut().for_each(|pair| {
                pair.step();
            });
            prop_assert_eq!(pairs[0].ends[0].outcomes(), pairs[1].ends[0].outcomes());
        }
        prop_assert_eq!(pairs[0].ends[0].outcomes().len(), schedule.len());
    }
}

/// Returns the header of a WRITE.
fn write() -> Header {
    let model = Model::Tagged(Tagged { stag: ALL, to: 0x2_0000 });
    Header { last: true, control: Opcode::Write.control(), model }
}

/// A peer may have sent a whole window while a SEND waited for its receive.
#[test]
fn what_was_stored_is_taken_as_far_as_the_turn_goes() {
    let mut raw = Raw::new(true);
    let fpdu = raw.fpdu(write(), &[7; 40]);
    let stored = fpdu.repeat(3);
    raw.pair.ends[1].ram.over = true;
    assert_eq!(raw.deliver_stored(&stored), (fpdu.len(), Then::Hold));
    assert!(raw.pair.ends[1].stream.waits_for_turn());
    // New octets are taken completely: TCP does not keep them.
    assert_eq!(raw.deliver(&fpdu), Then::Acknowledge);
    raw.pair.ends[1].ram.over = false;
    assert_eq!(raw.deliver_stored(&stored), (stored.len(), Then::Acknowledge));
    assert!(!raw.pair.ends[1].stream.waits_for_turn());
    assert_eq!(raw.pair.ends[1].stream.counters().fpdus_received, 5);
}

/// Without this, the next turn would be due at once, again and again, until the peer sends the rest
/// of the FPDU.
#[test]
fn a_part_of_an_fpdu_waits_for_no_turn() {
    let mut raw = Raw::new(true);
    let fpdu = raw.fpdu(write(), &[1; 100]);
    let stored = [&fpdu[..], &fpdu[..30]].concat();
    raw.pair.ends[1].ram.over = true;
    assert_eq!(raw.deliver_stored(&stored), (fpdu.len(), Then::Hold));
    assert!(raw.pair.ends[1].stream.waits_for_turn());
    raw.pair.ends[1].ram.over = false;
    assert_eq!(raw.deliver_stored(&stored[fpdu.len()..]), (30, Then::Continue));
    assert!(!raw.pair.ends[1].stream.waits_for_turn());
}

/// Octets that fill a gap are delivered with all octets that are stored after the gap, which can be
/// a whole window of short FPDUs.
#[test]
fn octets_that_are_not_acknowledged_wait_for_turns_too() {
    let mut raw = Raw::new(true);
    let fpdu = raw.fpdu(write(), &[]);
    let octets = fpdu.repeat(100);
    raw.pair.ends[1].ram.over = true;
    assert_eq!(raw.deliver(&octets), Then::Hold);
    assert!((1..100 * fpdu.len() as u64).contains(&raw.start), "{} were taken", raw.start);
    assert!(raw.pair.ends[1].stream.waits_for_turn());
}
