//! Tests invalid ring indices, and programs that arm a CQ and never poll it. The result is defined
//! and affects only the objects of that program, and the guest's other queues still work.
//! (`completions` tests the indices of completion queues, and `srq` the indices of shared receive
//! queues.)
//!
//! Shows: hostile

use std::sync::atomic::Ordering;

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::ARM_NEXT;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::eq::EventQueue;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::world::Pair;

/// Sends a message of 8 bytes to receive `id` of B.
fn message(p: &mut Pair, id: u64) {
    p.b.post_recv(id, &[p.b.sge(0, 8)]);
    let wr = Wr::new(Opcode::Send, &[p.a.sge(0, 8)]);
    assert_eq!(status(&p.complete(&wr)), Status::Success);
    assert_eq!(status(&p.received().expect("received")), Status::Success);
}

/// Stores a producer index of the send queue (0) or the receive queue (1) without the test driver's
/// knowledge, and rings the doorbell.
fn produce(guest: &Guest, e: &Endpoint, queue: u32, index: u32) {
    guest.slot32(e.uar, e.slot, 4 * queue).store(index, Ordering::Release);
    guest.ring(e.uar, e.slot);
}

/// Checks that another pair of the same guests can exchange messages.
fn others_go_on(p: &Pair) {
    let (mut c, mut d) =
        (Endpoint::new(&p.ga, Setup::default()), Endpoint::new(&p.gb, Setup::default()));
    Endpoint::connect_pair(&c, &d);
    d.post_recv(1, &[d.sge(0, 8)]);
    c.fill(0, b"go on...");
    c.post_send(&Wr::new(Opcode::Send, &[c.sge(0, 8)]));
    p.settle();
    assert_eq!(status(&c.send_cq.poll().expect("completion")), Status::Success);
    assert_eq!(d.bytes(0, 8), b"go on...");
}

/// An index behind the entries that were executed is as invalid as an index far ahead of them.
#[test]
fn a_send_index_that_goes_backwards_is_a_fault_of_its_qp() {
    let mut p = Pair::new();
    (0..3).for_each(|id| message(&mut p, id));
    // The same index again has no effect.
    produce(&p.ga, &p.a, 0, 3);
    p.settle();
    assert!(p.sent().is_none());
    assert_eq!(p.a.state(), State::Rts);
    produce(&p.ga, &p.a, 0, 2);
    p.settle();
    assert_eq!(p.ga.drain_events(), [(Kind::QpFatal, p.a.qpn)]);
    assert_eq!(p.a.state(), State::Err);
    assert_eq!((p.b.state(), p.gb.drain_events()), (State::Rts, vec![]));
    others_go_on(&p);
}

/// Entries that the driver skipped are executed with the bytes that they contain.
#[test]
fn a_send_index_that_skips_executes_what_is_there() {
    let mut p = Pair::new();
    message(&mut p, 0);
    produce(&p.ga, &p.a, 0, 3);
    p.settle();
    let outcomes = std::iter::from_fn(|| p.sent()).map(|cqe| status(&cqe)).collect::<Vec<_>>();
    assert_eq!(outcomes, [Status::LocQpOpErr, Status::WrFlushErr], "two entries of zeros");
    assert_eq!(p.b.state(), State::Rts);
    others_go_on(&p);
}

#[test]
fn a_receive_index_that_goes_backwards_is_a_fault_of_its_qp() {
    let mut p = Pair::new();
    (0..3).for_each(|id| message(&mut p, id));
    produce(&p.gb, &p.b, 1, 1);
    assert_eq!(status(&p.complete(&Wr::new(Opcode::Send, &[]))), Status::RemOpErr);
    assert_eq!(p.gb.drain_events(), [(Kind::QpFatal, p.b.qpn)]);
    assert_eq!(p.b.state(), State::Err);
    others_go_on(&p);
}

/// A receive that the driver skipped has no segments.
#[test]
fn a_receive_index_that_skips_takes_what_is_there() {
    let mut p = Pair::new();
    message(&mut p, 0);
    produce(&p.gb, &p.b, 1, 3);
    let wr = Wr::new(Opcode::Send, &[p.a.sge(0, 8)]);
    assert_eq!(status(&p.complete(&wr)), Status::RemInvReqErr);
    assert_eq!(status(&p.received().expect("too short")), Status::LocLenErr);
    others_go_on(&p);
}

/// Arms the receive CQ of an endpoint, which then gets an entry.
fn event(guest: &Guest, p: &Pair, e: &mut Endpoint) {
    e.recv_cq.arm(ARM_NEXT);
    p.settle();
    e.set_state(State::Reset);
    e.connect(guest.mac(), e.qpn, |_| {});
    e.post_recv(1, &[]);
    e.set_state(State::Err);
    p.settle();
    let flushed = std::iter::from_fn(|| e.recv_cq.poll()).last().expect("flushed");
    assert_eq!(status(&flushed), Status::WrFlushErr);
}

/// Returns the entries of an event queue.
fn drain(eq: &mut EventQueue) -> Vec<u32> {
    std::iter::from_fn(|| eq.poll()).map(|(_, id)| id).collect()
}

/// An event queue counts as full if its consumer index is beyond what was written, or went back by
/// more than the length of the queue. Its events wait until the index is valid. Other event queues
/// are not affected.
#[test]
fn nonsense_in_the_index_of_an_event_queue_holds_its_events_back() {
    for index in [1, 100, 1 << 31, u32::MAX, u32::MAX - 100] {
        let p = Pair::new();
        let guest = &p.ga;
        let mut victims: Vec<_> = (0..2).map(|_| Endpoint::new(guest, Setup::default())).collect();
        let mut bystander = Endpoint::new(guest, Setup::default());
        let seen = guest.slot32(0, victims[0].events.slot, 0);
        seen.store(index, Ordering::Release);
        event(guest, &p, &mut victims[0]);
        event(guest, &p, &mut bystander);
        let cqn = victims[0].recv_cq.cqn;
        assert_eq!(drain(&mut bystander.events), [bystander.recv_cq.cqn]);
        // After one step back, the queue has an entry in it. With any other index it has no room.
        let room = index == u32::MAX;
        seen.store(0, Ordering::Release);
        assert_eq!(guest.adapter.poll(0).busy, !room, "index {index:#x}");
        p.settle();
        assert_eq!(drain(&mut victims[0].events), [cqn], "index {index:#x}");
        event(guest, &p, &mut victims[1]);
        assert_eq!(drain(&mut victims[1].events), [victims[1].recv_cq.cqn]);
    }
}

/// A program that arms a CQ, gets the event and polls no entry gets no further event. Another CQ of
/// the same event queue gets each of its events.
#[test]
fn a_user_that_never_polls_is_told_once() {
    let mut p = Pair::new();
    let (idle, busy) = (p.b.recv_cq.cqn, p.b.send_cq.cqn);
    p.b.recv_cq.arm(ARM_NEXT);
    p.settle();
    let mut events = Vec::new();
    for id in 0..40 {
        p.b.post_recv(id, &[]);
        let wr = Wr::new(Opcode::Send, &[]);
        assert_eq!(status(&p.complete(&wr)), Status::Success);
        p.b.send_cq.arm(ARM_NEXT);
        p.settle();
        p.b.post_send(&Wr::new(Opcode::Read, &[]));
        p.settle();
        assert!(p.b.send_cq.poll().is_some());
        events.extend(drain(&mut p.b.events));
    }
    assert_eq!(events.iter().filter(|cqn| **cqn == idle).count(), 1);
    assert_eq!(events.iter().filter(|cqn| **cqn == busy).count(), 40);
    assert_eq!(p.gb.drain_events(), [], "a queue of 64 entries does not overflow by 40");
}

/// A vector raises one interrupt until its queue has been emptied, however many events are written.
///
/// Shows: hostile: an interrupt storm: one interrupt for each emptying of a queue
#[test]
fn a_storm_interrupts_once_for_each_emptying() {
    let mut p = Pair::new();
    for _ in 0..3 {
        for _ in 0..100 {
            p.b.send_cq.arm(ARM_NEXT);
            p.b.recv_cq.arm(ARM_NEXT);
            p.settle();
            p.b.post_send(&Wr::new(Opcode::Read, &[]));
            message(&mut p, 1);
            assert!(p.b.send_cq.poll().is_some());
        }
        assert_eq!(p.gb.host.interrupts(1), 1);
        let mut events = drain(&mut p.b.events);
        events.sort_unstable();
        let mut both = [p.b.send_cq.cqn, p.b.recv_cq.cqn];
        both.sort_unstable();
        assert_eq!(events, both);
    }
}
