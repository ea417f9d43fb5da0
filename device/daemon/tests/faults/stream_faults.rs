//! Fault injection in iWARP connections: rules are applied to TCP segments.
//!
//! Shows: faults

use vrnic_abi::admin::Stats;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::vfio::Endpoint;
use vrnic_testdriver::wr::Wr;
use vrnic_testdriver::{stream, wait};

use crate::common::world::World;
use crate::common::{Span, pattern, write_and_read};

/// Returns endpoints with a connection between them.
fn connected(world: &World) -> [Endpoint; 2] {
    let [a, b] = world.guests.each_ref().map(|guest| Endpoint::new(guest, Setup::default()));
    stream::connect_pair(&a, &b);
    [a, b]
}

/// Returns the changes of a counter of both functions.
fn changes(world: &World, before: &[Stats; 2], field: impl Fn(&Stats) -> u64) -> [u64; 2] {
    let after = world.stats();
    [0, 1].map(|end| field(&after[end]) - field(&before[end]))
}

/// Checks that a WRITE and a READ of many segments, an atomic and a SEND move the right data.
#[track_caller]
fn data_is_right([a, b]: &mut [Endpoint; 2], seed: usize) {
    write_and_read(a, b, Span { len: 60_000, from: 3, to: 5 });
    b.fill(64, &40u64.to_le_bytes());
    let add = Wr::new(Opcode::FetchAdd, &[a.sge(8, 8)]).atomic(2, 0).to(b.buffer + 64, b.key);
    a.run_expecting(&add, Status::Success);
    let words = [a.bytes(8, 8), b.bytes(64, 8)];
    assert_eq!(words, [40u64, 42].map(|word| word.to_le_bytes().to_vec()));
    let data = pattern(20_000, seed);
    a.fill(0, &data);
    b.post_recv(1, &[b.sge(1, 20_000)]);
    a.run_expecting(&Wr::new(Opcode::Send, &[a.sge(0, 20_000)]), Status::Success);
    assert_eq!(wait::until("the receive", || b.recv_cq.poll()).byte_len.get(), 20_000);
    assert!(b.bytes(1, 20_000) == data, "SEND");
}

fn losses_and_reordering(world: World) {
    let mut ends = connected(&world);
    let before = world.stats();
    // Rules apply where a function sends, so each daemon needs them.
    world.said_by_all("fault add drop prob=0.01 seed=11");
    world.said_by_all("fault add reorder behind=3 prob=0.05 seed=12");
    for round in 0..30 {
        data_is_right(&mut ends, round);
        ends.reverse();
    }
    let dropped = world.first("hit");
    assert!(dropped > 10, "{dropped}");
    let resent = changes(&world, &before, |stats| stats.tcp_retrans_segs.get());
    let [segments, _] = changes(&world, &before, |stats| stats.tx_pkts.get());
    assert!(resent.iter().all(|resent| (1..segments / 4).contains(resent)), "{resent:?}");
    assert_eq!(changes(&world, &before, |stats| stats.mpa_crc_errors.get()), [0, 0]);
    assert_eq!(changes(&world, &before, |stats| stats.tx_terminates.get()), [0, 0]);
    world.said_by_all("fault clear");
    data_is_right(&mut ends, 99);
    world.check();
}

#[test]
fn lost_and_reordered_segments_change_nothing_in_one_daemon() {
    losses_and_reordering(World::one());
}

#[test]
fn lost_and_reordered_segments_change_nothing_between_two_daemons() {
    losses_and_reordering(World::two());
}

#[test]
fn rules_select_segments_by_function_qp_and_message() {
    let world = World::one();
    let mut ends = connected(&world);
    data_is_right(&mut ends, 1);
    // A lost response was an acknowledgement, too, so its requester may also send again.
    for (of, end) in [
        ("function=f0 opcode=iwarp-write nth=3", 0),
        ("function=f1 opcode=iwarp-read-response nth=7", 1),
        ("function=f0 opcode=iwarp-read-request nth=1", 0),
        ("function=f0 opcode=iwarp-atomic-request nth=1", 0),
        ("function=f1 opcode=iwarp-atomic-response nth=1", 1),
        (&format!("function=f0 qp={} opcode=iwarp-send nth=2", ends[0].qpn), 0),
    ] {
        let before = world.stats();
        world.rule(&format!("drop {of}"));
        data_is_right(&mut ends, 2);
        assert_eq!(world.first("hit"), 1, "{of}");
        let resent = changes(&world, &before, |stats| stats.tcp_retrans_segs.get());
        assert!(resent[end] > 0, "{of}: {resent:?}");
    }
    for none in ["qp=0xffff", "opcode=rc-write-only", "psn=3", "function=f1 opcode=iwarp-send"] {
        world.rule(&format!("drop {none}"));
        data_is_right(&mut ends, 3);
        assert_eq!(world.first("seen"), 0, "{none}");
    }
    world.check();
}

#[test]
fn doubled_and_delayed_segments_change_nothing() {
    let world = World::one();
    let mut ends = connected(&world);
    for rule in ["duplicate prob=0.3", "delay by=2ms prob=0.2", "delay by=300us"] {
        world.rule(rule);
        for round in 0..3 {
            data_is_right(&mut ends, round);
        }
        assert!(world.first("hit") > 0, "{rule}");
    }
    world.check();
}

#[test]
fn corrupt_segments_are_found_by_the_check_that_fails() {
    let world = World::one();
    let mut ends = connected(&world);
    data_is_right(&mut ends, 1);
    for (checks, crc_errors) in [("wrong", 0), ("checksum", 1)] {
        let before = world.stats();
        world.rule(&format!("corrupt crc={checks} function=f0 opcode=iwarp-write nth=5"));
        data_is_right(&mut ends, 2);
        assert_eq!(world.first("hit"), 1);
        let [resent, _] = changes(&world, &before, |stats| stats.tcp_retrans_segs.get());
        let errors = changes(&world, &before, |stats| stats.mpa_crc_errors.get());
        assert!(resent > 0 && errors == [0, crc_errors], "{checks}: {resent}, {errors:?}");
    }
    // No check finds this fault. The seed chooses a bit of the payload.
    let [a, b] = &mut ends;
    world.rule("corrupt crc=right function=f0 opcode=iwarp-write nth=1");
    let data = pattern(1000, 7);
    a.fill(0, &data);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 1000)]).to(b.buffer, b.key);
    a.run_expecting(&write, Status::Success);
    let wrong: u32 = b.bytes(0, 1000).iter().zip(&data).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!((world.first("hit"), wrong), (1, 1));
    world.check();
}

#[test]
fn a_lost_terminate_is_sent_again() {
    let world = World::one();
    let [mut a, b] = connected(&world);
    let before = world.stats();
    world.rule("drop function=f1 opcode=iwarp-terminate times=1");
    // A WRITE may complete before its refusal arrives.
    let beyond = Wr::new(Opcode::Read, &[a.sge(0, 8)]).to(b.buffer, b.key ^ 0x55);
    a.run_expecting(&beyond, Status::RemAccessErr);
    assert_eq!(world.first("hit"), 1);
    assert_eq!((a.state(), b.state()), (State::Err, State::Err));
    assert_eq!(changes(&world, &before, |stats| stats.tx_terminates.get()), [0, 1]);
    assert_eq!(changes(&world, &before, |stats| stats.rx_terminates.get()), [1, 0]);
    world.check();
}
