//! The order in which the bytes of messages become visible, which no program may rely on.
//!
//! Shows: faults

use std::sync::atomic::Ordering;

use vrnic_abi::admin::{CreateQp, Opcode as Admin};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Access, Attr, AttrMask, State, Type};
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup, TO_RTS, attributes};
use vrnic_testdriver::wr::Wr;

use super::{MICRO, pairs, worlds, write};
use crate::bus::Endpoint;
use crate::world::Pair;

const LEN: usize = 1000;

fn pair(rule: &str) -> Pair {
    let p = Pair::local(Setup::default(), |_| {});
    p.world.rule(rule);
    p
}

/// Moves the next part.
fn part(p: &Pair) {
    p.world.advance(20 * MICRO);
    p.settle();
}

#[test]
fn a_program_that_polls_the_last_byte_finds_a_part_of_the_message() {
    let mut found = 0;
    for seed in 1..=20 {
        let mut p = pair(&format!("disorder function=f1 seed={seed}"));
        p.a.fill(0, &[7; LEN]);
        p.run(&write(&p, LEN as u32));
        while p.b.bytes(LEN as u64 - 1, 1) != [7] {
            part(&p);
        }
        found += u32::from(p.b.bytes(0, LEN).contains(&0));
        assert!(found == 0 || p.sent().is_none() || p.b.bytes(0, LEN) == [7; LEN]);
        (0..5).for_each(|_| part(&p));
        assert_eq!(p.b.bytes(0, LEN), [7; LEN], "all is there in the end");
        assert_eq!(p.world.counts(), (1, 1));
    }
    assert!(found >= 10, "{found} of 20 seeds");
    // On a quiet adapter, the last byte comes last.
    let mut p = Pair::local(Setup::default(), |_| {});
    p.a.fill(0, &[7; LEN]);
    p.run(&write(&p, LEN as u32));
    assert_eq!(p.b.bytes(0, LEN), [7; LEN]);
}

#[test]
fn a_buffer_that_is_used_again_before_its_completion_is_sent_in_part() {
    let mut p = pair("disorder seed=3");
    p.b.post_recv(1, &[p.b.sge(0, LEN as u32)]);
    p.a.fill(0, &[7; LEN]);
    p.run(&Wr::new(Opcode::Send, &[p.a.sge(0, LEN as u32)]));
    assert!(p.sent().is_none() && p.received().is_none(), "it has not completed");
    p.a.fill(0, &[9; LEN]);
    (0..5).for_each(|_| part(&p));
    assert_eq!(p.received().map(|cqe| status(&cqe)), Some(Status::Success));
    let bytes = p.b.bytes(0, LEN);
    assert!(bytes.contains(&7) && bytes.contains(&9), "both contents");
}

#[test]
fn a_read_returns_parts_of_what_is_written_meanwhile() {
    let mut p = pair("disorder function=f1 opcode=read seed=1");
    p.b.fill(0, &[1; LEN]);
    p.run(&Wr::new(Opcode::Read, &[p.a.sge(0, LEN as u32)]).to(p.b.buffer, p.b.key));
    assert!(p.sent().is_none());
    p.b.fill(0, &[2; LEN]);
    (0..5).for_each(|_| part(&p));
    assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
    let bytes = p.a.bytes(0, LEN);
    assert!(bytes.contains(&1) && bytes.contains(&2), "both contents");
}

/// Returns a pair whose messages are packets.
fn by_packets(rule: &str) -> Pair {
    let [_, p] = pairs(|attr| (attr.min_rnr_timer, attr.rnr_retry) = (1, 7));
    p.world.rule(rule);
    p
}

#[test]
fn bytes_of_packets_become_visible_in_another_order() {
    // One packet, and several.
    for len in [LEN, 10 * LEN] {
        let mut found = 0;
        for seed in 1..=20 {
            let mut p = by_packets(&format!("disorder function=f2 seed={seed}"));
            p.a.fill(0, &vec![7; len]);
            p.run(&write(&p, len as u32));
            while p.b.bytes(len as u64 - 1, 1) != [7] {
                assert!(p.sent().is_none(), "it has not completed");
                part(&p);
            }
            let bytes = p.b.bytes(0, len);
            found += u32::from(bytes.contains(&0));
            assert!(!bytes.contains(&0) || p.sent().is_none(), "parts are missing");
            (0..50).for_each(|_| part(&p));
            assert!(p.b.bytes(0, len) == vec![7; len], "all is there in the end");
            assert_eq!(p.world.counts(), (1, 1));
        }
        assert!(found >= 10, "{found} of 20 seeds, {len} bytes");
    }
}

#[test]
fn bytes_that_a_read_brings_in_packets_become_visible_in_another_order() {
    // One packet, several, and more than are kept.
    for (len, parts) in [(LEN, 50), (10 * LEN, 100), (80 * LEN, 1000)] {
        let mut found = 0;
        for seed in 1..=20 {
            let mut p = by_packets(&format!("disorder function=f1 opcode=read seed={seed}"));
            p.b.fill(0, &vec![7; len]);
            p.run(&Wr::new(Opcode::Read, &[p.a.sge(0, len as u32)]).to(p.b.buffer, p.b.key));
            while p.a.bytes(len as u64 - 1, 1) != [7] {
                assert!(p.sent().is_none(), "it has not completed");
                part(&p);
            }
            let bytes = p.a.bytes(0, len);
            found += u32::from(bytes.contains(&0));
            assert!(!bytes.contains(&0) || p.sent().is_none(), "parts are missing");
            (0..parts).for_each(|_| part(&p));
            assert!(p.a.bytes(0, len) == vec![7; len], "all is there in the end");
            assert_eq!(p.world.counts(), (1, 1));
        }
        assert!(found >= 10, "{found} of 20 seeds, {len} bytes");
    }
}

#[test]
fn unreliable_messages_in_packets_become_visible_in_another_order() {
    let mut found = 0;
    for seed in 1..=20 {
        let [_, world] = worlds();
        let mut p = Pair::connected(world, Setup { kind: Type::Uc, ..Setup::default() }, |_| {});
        p.world.rule(&format!("disorder function=f2 seed={seed}"));
        let len = 10 * LEN;
        for (nth, opcode) in [Opcode::Write, Opcode::Send].into_iter().enumerate() {
            let value = 7 + nth as u8;
            p.a.fill(0, &vec![value; len]);
            p.b.post_recv(1, &[p.b.sge(0, len as u32)]);
            let wr = Wr::new(opcode, &[p.a.sge(0, len as u32)]);
            p.run(&wr.to(p.b.buffer, p.b.key));
            while p.b.bytes(len as u64 - 1, 1) != [value] {
                assert!(p.received().is_none(), "it has not ended");
                part(&p);
            }
            found += u32::from(p.b.bytes(0, len).iter().any(|byte| *byte != value));
            (0..50).for_each(|_| part(&p));
            assert!(p.b.bytes(0, len) == vec![value; len], "all is there in the end");
        }
        assert_eq!(p.received().map(|cqe| status(&cqe)), Some(Status::Success), "the SEND");
        assert_eq!(p.world.counts(), (2, 2));
    }
    assert!(found >= 20, "{found} of 40 messages");
}

#[test]
fn requests_behind_a_message_find_all_of_its_bytes() {
    let mut p = by_packets("disorder function=f2 seed=4");
    let len = 3 * LEN;
    p.a.fill(0, &vec![7; len]);
    p.a.fill(len as u64, &vec![9; len]);
    p.a.post_send(&write(&p, len as u32));
    let (from, sink) = (p.a.sge(len as u64, len as u32), p.a.sge(2 * len as u64, len as u32));
    p.a.post_send(&Wr::new(Opcode::Write, &[from]).to(p.b.buffer, p.b.key));
    p.a.post_send(&Wr::new(Opcode::Read, &[sink]).to(p.b.buffer, p.b.key));
    p.settle();
    (0..100).for_each(|_| part(&p));
    for _ in 0..3 {
        assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
    }
    assert!(p.a.bytes(2 * len as u64, len) == vec![9; len], "the READ");
    assert!(p.b.bytes(0, len) == vec![9; len], "the second WRITE");
}

#[test]
fn packets_that_find_no_receive_are_counted_once() {
    let mut p = by_packets("disorder function=f2 nth=1");
    p.a.fill(0, &[7; 100]);
    p.run(&Wr::new(Opcode::Send, &[p.a.sge(0, 100)]));
    for _ in 0..3 {
        p.world.advance(100 * MICRO);
        p.settle();
    }
    assert_eq!(p.world.counts(), (0, 0), "its memory is not known");
    p.b.post_recv(1, &[p.b.sge(0, 100)]);
    (0..50).for_each(|_| part(&p));
    assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
    assert_eq!(p.b.bytes(0, 100), [7; 100]);
    p.run(&write(&p, 100));
    assert_eq!(p.world.counts(), (2, 1));
}

/// Shows: faults
#[test]
fn a_rule_may_concern_regions_of_relaxed_order_alone() {
    for mut p in pairs(|_| {}) {
        p.world.rule("disorder seed=2 relaxed=yes");
        let access = ALL | Access::RELAXED_ORDERING.bits();
        let relaxed = p.gb.reg_flat(p.b.pdn, access, p.b.buffer, 1 << 16).expect("a region");
        p.a.fill(0, &[7; LEN]);
        p.run(&write(&p, LEN as u32));
        assert!(p.sent().is_some() && p.b.bytes(0, LEN) == [7; LEN], "at once");
        assert_eq!(p.world.counts(), (0, 0));
        p.a.fill(0, &[9; LEN]);
        let source = p.a.sge(0, LEN as u32);
        p.run(&Wr::new(Opcode::Write, &[source]).to(p.b.buffer, relaxed));
        assert!(p.sent().is_none() && p.b.bytes(0, LEN).contains(&7), "not all of it");
        (0..5).for_each(|_| part(&p));
        assert!(p.sent().is_some() && p.b.bytes(0, LEN) == [9; LEN]);
        assert_eq!(p.world.counts(), (1, 1));
    }
}

#[test]
fn messages_of_any_length_and_opcode_are_whole_when_they_complete() {
    [pair("disorder"), by_packets("disorder")].into_iter().for_each(whole);
}

fn whole(mut p: Pair) {
    let bytes: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
    for (nth, length) in [0, 1, 8, 64, 65, 300, 4096, 20_000].into_iter().enumerate() {
        for opcode in [Opcode::Write, Opcode::Read, Opcode::Send, Opcode::FetchAdd] {
            let length = if opcode == Opcode::FetchAdd { 8 } else { length };
            p.a.fill(0, &bytes);
            p.b.fill(0, &vec![0; bytes.len()]);
            if opcode == Opcode::Read {
                p.b.fill(0, &bytes);
                p.a.fill(0, &vec![0; bytes.len()]);
            }
            if opcode == Opcode::Send {
                p.b.post_recv(1, &[p.b.sge(0, 20_000)]);
            }
            let wr = Wr::new(opcode, &[p.a.sge(0, length)]).to(p.b.buffer, p.b.key);
            let wr = if opcode == Opcode::FetchAdd { wr.atomic(1, 0) } else { wr };
            p.run(&wr.id(nth as u64));
            // A turn of a QP with other work may take several parts, and each takes four blocks.
            (0..100).for_each(|_| part(&p));
            let end = p.sent().expect("completion");
            assert_eq!(status(&end), Status::Success, "{opcode:?} {length}");
            if opcode != Opcode::FetchAdd {
                let length = length as usize;
                let end = if opcode == Opcode::Read { &p.a } else { &p.b };
                assert!(end.bytes(0, length) == bytes[..length], "{opcode:?} {length}");
                let behind = end.bytes(length as u64, 100);
                assert_eq!(behind, [0; 100], "{opcode:?} {length}");
            }
            let _received = p.received();
        }
    }
}

/// A rule concerns the messages that begin after it, and not the rest of one that is under way.
#[test]
fn a_message_that_has_begun_is_moved_in_the_usual_order() {
    let len = 3 << 20;
    let mut p = Pair::local(Setup::default(), |_| {});
    p.a.fill(0, &vec![7; len]);
    p.a.post_send(&write(&p, len as u32));
    // The slice of a worker is too short for all of it.
    p.take_time();
    p.ga.adapter.poll(0);
    let there = [0, len as u64 - 1].map(|at| p.b.bytes(at, 1)[0]);
    assert_eq!(there, [7, 0], "a part of it");
    p.world.rule("disorder seed=3");
    p.settle();
    assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
    assert!(p.b.bytes(0, len) == vec![7; len]);
}

#[test]
fn messages_that_no_rule_hits_leave_room_for_the_order_of_later_ones() {
    let mut p = pair("disorder function=f1 nth=5000");
    p.a.fill(0, &[7; LEN]);
    for _ in 1..5000 {
        p.run(&write(&p, LEN as u32));
        assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
    }
    p.run(&write(&p, LEN as u32));
    assert!(p.sent().is_none(), "the 5000th message is moved in parts");
    (0..5).for_each(|_| part(&p));
    assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
    assert_eq!(p.world.counts(), (5000, 1));
}

#[test]
fn a_message_that_finds_no_receive_at_first_is_counted_once() {
    let mut p = Pair::local(Setup::default(), |attr| {
        (attr.min_rnr_timer, attr.rnr_retry) = (1, 7);
    });
    p.world.rule("disorder function=f1 nth=1");
    p.run(&Wr::new(Opcode::Send, &[p.a.sge(0, 100)]));
    for _ in 0..3 {
        p.world.advance(100 * MICRO);
        p.settle();
    }
    assert_eq!(p.world.counts(), (0, 0), "its memory is not known");
    p.b.post_recv(1, &[p.b.sge(0, 100)]);
    p.world.advance(100 * MICRO);
    p.settle();
    assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
    p.run(&write(&p, 100));
    assert_eq!(p.world.counts(), (2, 1));
}

/// Messages of a function at most that have an order of their own.
const MOST: u32 = 4096;

/// QPs of A that are connected to QPs of B, each with its UAR and slot.
fn many(ends: [&Endpoint; 2], count: u32) -> Vec<[u32; 3]> {
    let params = ends.map(Endpoint::params);
    // All QPs of A have the same request.
    let wr = Wr::new(Opcode::Write, &[ends[0].sge(0, LEN as u32)]).to(ends[1].buffer, ends[1].key);
    ends[0].guest.ram().write(params[0].sq_table.get(), &wr.encode());
    let mut uars = [0; 2];
    let mut made = Vec::new();
    for nth in 0..count {
        let made_now = [0, 1].map(|end| {
            let Endpoint { guest, context, .. } = ends[end];
            if nth % uar::SLOTS == 0 {
                uars[end] = guest.on_object(Admin::AllocUar, *context).expect("UAR");
            }
            let params = CreateQp { uar: uars[end].into(), ..params[end] };
            let (id, slot, _) = guest.create_qp(&params).expect("QP");
            [id, uars[end], slot]
        });
        for (end, peer) in [(0, 1), (1, 0)] {
            let attr = attributes(ends[peer].guest.mac(), made_now[peer][0]);
            ends[end].guest.take_through(made_now[end][0], attr, &TO_RTS);
        }
        made.push(made_now[0]);
    }
    made
}

/// So many messages may wait in an order of their own. Those of queue pairs that fail make room for
/// others.
#[test]
fn messages_of_queue_pairs_that_fail_make_room() {
    let mut p = pair("disorder function=f1 seed=5");
    let setup = Setup { ignore_overrun: true, ..Setup::default() };
    let ends = [Endpoint::new(&p.ga, setup), Endpoint::new(&p.gb, setup)];
    let qps = many([&ends[0], &ends[1]], MOST);
    for [_, uar, slot] in &qps {
        p.ga.slot32(*uar, *slot, 0).store(1, Ordering::Release);
        p.ga.ring(*uar, *slot);
    }
    p.settle();
    assert!(ends[0].send_cq.peek().is_none(), "a message has completed in one part");
    p.run(&write(&p, LEN as u32));
    assert!(p.sent().is_some(), "there is room for one more");
    for [id, ..] in &qps {
        let attr = Attr { state: State::Err as u8, ..Attr::default() };
        p.ga.modify_qp(*id, AttrMask::STATE, &attr).expect("MODIFY_QP");
    }
    p.settle();
    p.run(&write(&p, LEN as u32));
    assert!(p.sent().is_none(), "there is no room yet");
    (0..5).for_each(|_| part(&p));
    assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
}
