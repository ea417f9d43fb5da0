//! Completions, events and interrupts that rules change, lose or hold back.
//!
//! Shows: faults

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_abi::uar::ARM_NEXT;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::wr::Wr;

use super::{MILLI, pairs, pass, write};
use crate::world::Pair;

/// Sends an empty message to B.
fn send(p: &mut Pair) {
    p.b.post_recv(1, &[]);
    p.run(&Wr::new(Opcode::Send, &[]));
}

/// Returns the numbers of B's completion events since the last call.
fn events(p: &mut Pair) -> usize {
    std::iter::from_fn(|| p.b.events.poll()).count()
}

#[test]
fn a_completion_says_another_status_although_the_request_was_executed() {
    for flags in [Flags::SIGNALED, Flags::empty()] {
        for mut p in pairs(|_| {}) {
            p.world.rule("fail-completion status=rem-access-err function=f1 nth=1");
            p.a.fill(0, &[7; 8]);
            let end = p.complete(&write(&p, 8).flags(flags));
            assert_eq!(status(&end), Status::RemAccessErr);
            assert_eq!(p.b.bytes(0, 8), [7; 8], "it was executed");
            assert_eq!(p.a.state(), State::Err);
            assert_eq!(p.world.counts(), (1, 1));
        }
    }
}

#[test]
fn a_receive_completes_with_another_status_and_its_qp_fails() {
    for mut p in pairs(|_| {}) {
        p.world.rule("fail-completion status=loc-len-err function=f2 opcode=recv");
        send(&mut p);
        assert_eq!(p.received().map(|cqe| status(&cqe)), Some(Status::LocLenErr));
        assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
        assert_eq!(p.b.state(), State::Err);
    }
}

#[test]
fn a_cq_that_is_full_fails_with_the_qps_that_use_it() {
    for mut p in pairs(|_| {}) {
        let cqn = p.a.send_cq.cqn;
        p.world.rule(&format!("fill-cq function=f1 cq={cqn} nth=2"));
        assert_eq!(status(&p.complete(&write(&p, 8))), Status::Success);
        p.run(&write(&p, 8));
        assert!(p.sent().is_none());
        let events = p.ga.drain_events();
        assert_eq!(events, [(Kind::CqError, cqn), (Kind::QpFatal, p.a.qpn)]);
        assert_eq!(p.a.state(), State::Err);
        assert_eq!(p.world.counts(), (2, 1));
    }
}

#[test]
fn a_completion_event_is_lost_or_late() {
    for mut p in pairs(|_| {}) {
        p.world.rule(&format!("drop-event event=completion cq={} times=1", p.b.recv_cq.cqn));
        p.b.recv_cq.arm(ARM_NEXT);
        send(&mut p);
        pass(&p, MILLI);
        assert_eq!((events(&mut p), p.gb.host.interrupts(1)), (0, 0), "lost");
        assert!(p.received().is_some(), "the entry itself is there");
        p.world.rule("delay-event by=2ms function=f2 event=completion");
        p.b.recv_cq.arm(ARM_NEXT);
        send(&mut p);
        pass(&p, MILLI);
        assert_eq!(events(&mut p), 0, "too early");
        pass(&p, 2 * MILLI);
        assert_eq!((events(&mut p), p.gb.host.interrupts(1)), (1, 1));
    }
}

#[test]
fn an_asynchronous_event_is_lost_or_late() {
    for mut p in pairs(|_| {}) {
        p.world.rule("drop-event event=port-down function=f1");
        p.world.rule("delay-event by=2ms event=port-up function=f1");
        p.ga.adapter.set_link(false);
        p.ga.adapter.set_link(true);
        assert_eq!(p.ga.drain_events(), []);
        pass(&p, 3 * MILLI);
        assert_eq!(p.ga.drain_events(), [(Kind::PortUp, 1)]);
        p.run(&write(&p, 8));
        assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
    }
}

#[test]
fn an_interrupt_is_lost_or_late_and_its_event_is_there() {
    for mut p in pairs(|_| {}) {
        p.world.rule("drop-interrupt vector=1 function=f2 times=1");
        p.world.rule("delay-interrupt by=2ms vector=1 function=f2");
        p.gb.host.interrupts(1);
        for expected in [0, 1] {
            p.b.recv_cq.arm(ARM_NEXT);
            send(&mut p);
            assert_eq!((events(&mut p), p.gb.host.interrupts(1)), (1, 0));
            pass(&p, 3 * MILLI);
            assert_eq!(p.gb.host.interrupts(1), expected);
            assert!(p.received().is_some());
        }
    }
}
