//! Indices that make no sense, and users that are told and never look: the result is defined, it is
//! their own, and the guest's other queues go on. (Of completion queues: `completions`; of shared
//! receive queues: `srq`.)

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

/// A message of 8 bytes that lands in B's receive `id`.
fn message(p: &mut Pair, id: u64) {
    p.b.post_recv(id, &[p.b.sge(0, 8)]);
    let wr = Wr::new(Opcode::Send, &[p.a.sge(0, 8)]);
    assert_eq!(status(&p.complete(&wr)), Status::Success);
    assert_eq!(status(&p.received().expect("received")), Status::Success);
}

/// Stores a producer index, of the send (0) or receive queue (1), behind the test driver's back,
/// and rings.
fn produce(guest: &Guest, e: &Endpoint, queue: u32, index: u32) {
    guest.slot32(e.uar, e.slot, 4 * queue).store(index, Ordering::Release);
    guest.ring(e.uar, e.slot);
}

/// Another pair of the same guests moves data.
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

/// An index behind the entries that were executed is as one far ahead.
#[test]
fn a_send_index_that_goes_backwards_is_a_fault_of_its_qp() {
    let mut p = Pair::new();
    (0..3).for_each(|id| message(&mut p, id));
    // The same index once more does no harm.
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

/// Entries that were skipped are executed as they lie there.
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

/// A receive that was skipped is one of no segments.
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

/// A CQ of an endpoint is armed and gets an entry.
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

/// An event queue whose index is beyond what was written, or went back by more than the queue is
/// long, counts as full: events wait until it makes sense. Other event queues do not.
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
        // One step back is a queue with an entry in it; anything else has no room.
        let room = index == u32::MAX;
        seen.store(0, Ordering::Release);
        assert_eq!(guest.adapter.poll(0).busy, !room, "index {index:#x}");
        p.settle();
        assert_eq!(drain(&mut victims[0].events), [cqn], "index {index:#x}");
        event(guest, &p, &mut victims[1]);
        assert_eq!(drain(&mut victims[1].events), [victims[1].recv_cq.cqn]);
    }
}

/// A user that arms, is told, and takes nothing is told once; another CQ of the same event queue is
/// told each time.
#[test]
fn a_user_that_never_polls_is_told_once() {
    let mut p = Pair::new();
    let (idle, busy) = (p.b.recv_cq.cqn, p.b.send_cq.cqn);
    p.b.recv_cq.arm(ARM_NEXT);
    p.settle();
    let mut told = Vec::new();
    for id in 0..40 {
        p.b.post_recv(id, &[]);
        let wr = Wr::new(Opcode::Send, &[]);
        assert_eq!(status(&p.complete(&wr)), Status::Success);
        p.b.send_cq.arm(ARM_NEXT);
        p.settle();
        p.b.post_send(&Wr::new(Opcode::Read, &[]));
        p.settle();
        assert!(p.b.send_cq.poll().is_some());
        told.extend(drain(&mut p.b.events));
    }
    assert_eq!(told.iter().filter(|cqn| **cqn == idle).count(), 1);
    assert_eq!(told.iter().filter(|cqn| **cqn == busy).count(), 40);
    assert_eq!(p.gb.drain_events(), [], "64 entries hold 40");
}

/// However many events come while a vector's queue is not emptied, its interrupt comes once.
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
        let mut told = drain(&mut p.b.events);
        told.sort_unstable();
        let mut both = [p.b.send_cq.cqn, p.b.recv_cq.cqn];
        both.sort_unstable();
        assert_eq!(told, both);
    }
}
