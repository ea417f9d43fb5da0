//! Credits of completion queues: which entries the consumer index frees, what happens when no entry
//! is free or the index is invalid, and how a queue changes its size.
//!
//! Shows: completions

use std::sync::atomic::Ordering;

use vrnic_abi::admin::{CqFlags, CreateCq, Pages, ResizeCq, Status as AdminStatus, command};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_abi::uar::{ARM_NEXT, ARM_SOLICITED};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{CompletionQueue, Endpoint};
use crate::world::Pair;

/// Returns a pair whose CQs have `1 << log` entries.
fn pair(log: u8) -> Pair {
    Pair::with(Setup { log_cqes: log, ..Setup::default() }, |_| {})
}

/// Sends the messages `ids`, and polls A's completions.
fn send(p: &mut Pair, ids: std::ops::Range<u64>) {
    for id in ids {
        p.b.post_recv(id, &[]);
        p.run(&Wr::new(Opcode::Send, &[]).id(id));
        assert_eq!(status(&p.sent().expect("sent")), Status::Success);
    }
}

/// Checks that the receives `ids` complete, and no others.
fn receive(p: &mut Pair, ids: std::ops::Range<u64>) {
    for id in ids {
        let cqe = p.received().expect("received");
        assert_eq!((cqe.wr_id.get(), status(&cqe)), (id, Status::Success));
    }
    assert!(p.received().is_none());
}

/// Stores a consumer index of B's receive CQ behind the test driver's back.
fn set_consumer(p: &Pair, ci: u32) {
    let cq = &p.b.recv_cq;
    p.gb.slot32(cq.uar, cq.slot, 0).store(ci, Ordering::Release);
}

/// The consumer index frees entries, some at a time, lap after lap.
#[test]
fn consumed_entries_are_filled_again() {
    let mut p = pair(2);
    send(&mut p, 0..4);
    for id in 4..40 {
        assert_eq!(p.received().expect("oldest").wr_id.get(), id - 4);
        send(&mut p, id..id + 1);
    }
    receive(&mut p, 36..40);
    assert_eq!(p.gb.drain_events(), []);
}

/// An overflow of a CQ moves all QPs that use the CQ to the error state, except those in Reset, and
/// no other QPs. The event of the CQ comes first.
///
/// Shows: completions: a CQ that would overflow stops all that fill it
#[test]
fn overflow_stops_all_feeders_after_the_event() {
    let mut p = pair(2);
    let feeder = || {
        p.b.beside(|params| {
            params.send_cqn = p.b.recv_cq.cqn.into();
            params.recv_cqn = p.b.send_cq.cqn.into();
        })
    };
    let (idle, mut other) = (feeder(), feeder());
    let mac = p.ga.mac();
    let bystander = Endpoint::new(&p.gb, Setup::default());
    bystander.connect(mac, 0x1234, |_| {});
    other.connect(mac, 0x1234, |_| {});
    other.post_recv(77, &[]);
    send(&mut p, 0..4);
    assert_eq!(p.gb.drain_events(), []);
    p.b.post_recv(4, &[]);
    assert_eq!(status(&p.complete(&Wr::new(Opcode::Send, &[]))), Status::RemOpErr);
    let events = p.gb.drain_events();
    assert_eq!(events[0], (Kind::CqError, p.b.recv_cq.cqn));
    let mut failed = events[1..].to_vec();
    failed.sort_by_key(|(_, id)| *id);
    let mut expected = vec![(Kind::QpFatal, p.b.qpn), (Kind::QpFatal, other.qpn)];
    expected.sort_by_key(|(_, id)| *id);
    assert_eq!(failed, expected, "a QP in Reset cannot fail");
    assert_eq!(idle.state(), State::Reset);
    assert_eq!(other.state(), State::Err);
    assert_eq!(bystander.state(), State::Rts);
    // The flushed receive is reported on the other CQ, which still works.
    let cqe = p.b.send_cq.poll().expect("flushed receive");
    assert_eq!((cqe.wr_id.get(), status(&cqe)), (77, Status::WrFlushErr));
    receive(&mut p, 0..4);
    // The CQ stays in error when the program polls entries.
    p.world.advance(1 << 32);
    p.settle();
    assert!(p.received().is_none());
    assert_eq!(p.gb.drain_events(), []);
    assert_eq!(p.gb.stats().cq_overflows.get(), 1);
}

/// A CQ that ignores overruns loses the entries for which it has no room, and nothing else happens.
/// A bad consumer index still makes it fail.
///
/// Shows: completions
#[test]
fn a_queue_that_ignores_overruns_loses_entries() {
    let setup = Setup { log_cqes: 2, ignore_overrun: true, ..Setup::default() };
    let mut p = Pair::with(setup, |_| {});
    for lap in 0..3 {
        send(&mut p, lap * 10..lap * 10 + 7);
        receive(&mut p, lap * 10..lap * 10 + 4);
    }
    assert_eq!(p.gb.drain_events(), []);
    assert_eq!(p.gb.stats().cq_overflows.get(), 0);
    set_consumer(&p, 99);
    p.b.post_recv(0, &[]);
    (0..5).for_each(|_| p.b.post_recv(0, &[]));
    for _ in 0..5 {
        p.run(&Wr::new(Opcode::Send, &[]));
    }
    assert_eq!(p.gb.drain_events()[0], (Kind::CqError, p.b.recv_cq.cqn));
}

#[test]
fn a_queue_cannot_both_lose_and_hold_entries() {
    let p = pair(2);
    let both = |params: CreateCq| CreateCq { flags: CqFlags::all().bits(), ..params };
    let refused = CompletionQueue::create_with(&p.ga, p.a.uar, p.a.eqn, 2, both).err();
    assert_eq!(refused, Some(Refused(AdminStatus::BadParam, 25)));
}

/// A consumer index beyond what was written, or behind its former value, makes the CQ fail when the
/// adapter reads the index.
///
/// Shows: hostile: consumer indices beyond the producer, or behind where they were
#[test]
fn nonsense_in_the_consumer_index_is_an_error_of_its_cq() {
    for index in [7, 8, 1 << 31, u32::MAX, 1, 0] {
        let mut p = pair(2);
        send(&mut p, 0..2);
        receive(&mut p, 0..2);
        send(&mut p, 2..4);
        // The adapter reads the index once, as 2, when it writes the fifth entry.
        send(&mut p, 4..5);
        send(&mut p, 5..6);
        set_consumer(&p, index);
        p.b.post_recv(6, &[]);
        assert_eq!(status(&p.complete(&Wr::new(Opcode::Send, &[]))), Status::RemOpErr, "{index}");
        let expected = [(Kind::CqError, p.b.recv_cq.cqn), (Kind::QpFatal, p.b.qpn)];
        assert_eq!(p.gb.drain_events(), expected);
        p.b.recv_cq.ci = 2;
        receive(&mut p, 2..6);
    }
}

/// A consumer may add more than 1 to its index.
#[test]
fn a_consumer_index_may_skip() {
    let mut p = pair(2);
    for round in 0..20 {
        send(&mut p, round * 4..round * 4 + 4);
        assert_eq!(p.b.recv_cq.peek().expect("entry").wr_id.get(), round * 4);
        p.b.recv_cq.ci += 4;
        set_consumer(&p, p.b.recv_cq.ci);
    }
    assert_eq!(p.gb.drain_events(), []);
}

/// Entries written before the resize stay where they are. Later entries are in the new ring.
///
/// Shows: queues
#[test]
fn a_cq_grows_and_shrinks() {
    let mut p = pair(2);
    send(&mut p, 0..4);
    let rings: Vec<u64> = (0..2).map(|_| p.gb.ram().alloc(64 << 5)).collect();
    assert_eq!(p.b.recv_cq.resize(rings[0], 4), Ok(()));
    // The guest may use the old ring again.
    send(&mut p, 4..16);
    receive(&mut p, 0..16);
    for (round, log) in [1, 5, 0, 3, 4, 2].into_iter().enumerate() {
        let start = 16 + round as u64;
        send(&mut p, start..start + 1);
        assert_eq!(p.b.recv_cq.resize(rings[(round + 1) % 2], log), Ok(()));
        receive(&mut p, start..start + 1);
    }
    assert_eq!(p.gb.drain_events(), []);
}

/// RESIZE_CQ to a ring that is too small for the unread entries is refused, and the old ring stays
/// in use.
#[test]
fn a_cq_does_not_shrink_below_what_it_holds() {
    let mut p = pair(3);
    send(&mut p, 0..5);
    let ring = p.gb.ram().alloc(4096);
    let refused = Err(Refused(AdminStatus::BadState, 0));
    assert_eq!(p.b.recv_cq.resize(ring, 2), refused);
    send(&mut p, 5..8);
    assert_eq!(p.received().expect("first").wr_id.get(), 0);
    assert_eq!(p.b.recv_cq.resize(ring, 2), refused);
    for id in 1..4 {
        assert_eq!(p.received().expect("entry").wr_id.get(), id);
    }
    assert_eq!(p.b.recv_cq.resize(ring, 2), Ok(()));
    receive(&mut p, 4..8);
    send(&mut p, 8..12);
    receive(&mut p, 8..12);
}

/// Each reason for which RESIZE_CQ is refused.
///
/// Shows: completions
#[test]
fn bad_resizes_are_refused() {
    let mut p = pair(2);
    let ring = p.gb.ram().alloc(4096);
    let cqn = p.b.recv_cq.cqn;
    let resize = |p: &Pair, cqn, log, pages| {
        p.gb.command::<command::ResizeCq>(&ResizeCq::new(cqn, log, pages)).map(|_| ())
    };
    let pages = Pages::new(ring, 12, 0);
    assert_eq!(resize(&p, cqn + 1000, 2, pages), Err(Refused(AdminStatus::NotFound, 0)));
    assert_eq!(resize(&p, cqn, 21, pages), Err(Refused(AdminStatus::BadParam, 20)));
    assert_eq!(
        resize(&p, cqn, 2, Pages::new(ring + 64, 12, 0)),
        Err(Refused(AdminStatus::BadParam, 0))
    );
    assert_eq!(
        resize(&p, cqn, 2, Pages::new(1 << 60, 12, 1)),
        Err(Refused(AdminStatus::BadAddress, 0))
    );
    send(&mut p, 0..4);
    set_consumer(&p, 9);
    assert_eq!(
        resize(&p, cqn, 2, pages),
        Err(Refused(AdminStatus::BadState, 0)),
        "an invalid index"
    );
    set_consumer(&p, 0);
    p.b.post_recv(4, &[]);
    p.run(&Wr::new(Opcode::Send, &[]));
    assert_eq!(p.gb.event(), Some((Kind::CqError, cqn)));
    assert_eq!(
        resize(&p, cqn, 4, pages),
        Err(Refused(AdminStatus::BadState, 0)),
        "after an overflow"
    );
}

/// A CQ that was armed stays armed across a resize: an entry that the program has not seen raises
/// an event, an entry that it has seen does not.
#[test]
fn arming_survives_a_resize() {
    let mut p = pair(2);
    let ring = p.gb.ram().alloc(4096);
    let event = |p: &mut Pair| p.b.events.poll().map(|(_, id)| id);
    let cqn = p.b.recv_cq.cqn;
    send(&mut p, 0..2);
    receive(&mut p, 0..2);
    p.b.recv_cq.arm(ARM_NEXT);
    p.settle();
    assert_eq!(p.b.recv_cq.resize(ring, 5), Ok(()));
    assert_eq!(event(&mut p), None);
    send(&mut p, 2..3);
    assert_eq!(event(&mut p), Some(cqn));
    // Arms the CQ without having polled the entry that was written after the resize.
    p.b.recv_cq.arm(ARM_SOLICITED);
    p.settle();
    assert_eq!(event(&mut p), None);
    p.b.post_recv(3, &[]);
    p.run(&Wr::new(Opcode::Send, &[]).flags(Flags::SOLICITED));
    assert_eq!(event(&mut p), Some(cqn));
}
