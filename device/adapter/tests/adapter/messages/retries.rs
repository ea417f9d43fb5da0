//! Requests that are tried again, because the receiver is not ready or the peer does not answer.
//!
//! Shows: data

use std::sync::atomic::Ordering;

use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::messages::errors::{MS, write};
use crate::world::{Pair, by_packets};

/// RNR timer code 14.
const RNR_14: u64 = 1_280_000;

/// If a receive is posted while the RNR timer runs, the requester finds it before the end of the
/// timer, so that one retry is enough. Uses memory copies, because over packets the requester waits
/// until the end.
#[test]
fn receiver_not_ready_is_waited_for() {
    let mut p = Pair::local(Setup::default(), |attr| {
        (attr.min_rnr_timer, attr.rnr_retry) = (14, 1);
    });
    p.run(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)]));
    let mut polls = 0;
    while p.world.clock.load(Ordering::Relaxed) < RNR_14 / 2 {
        let deadline = p.ga.adapter.poll(0).deadline.expect("a deadline");
        p.world.clock.store(deadline.0, Ordering::Relaxed);
        polls += 1;
    }
    assert!(polls < 12, "the pauses between polls do not grow");
    assert!(p.sent().is_none());
    p.b.post_recv(1, &[p.b.sge(0, 8)]);
    p.world.clock.store(RNR_14 - 1, Ordering::Relaxed);
    p.settle();
    assert_eq!(status(&p.sent().expect("completion")), Status::Success);
    assert_eq!(status(&p.received().expect("receive")), Status::Success);
    assert_eq!(p.gb.stats().send_rnr_err.get(), 1);
    assert_eq!(p.ga.stats().rnr_nak_retry_err.get(), 1);
}

#[test]
fn rnr_retries_end() {
    for opcode in [Opcode::Send, Opcode::WriteImm] {
        let mut p = Pair::with(Setup::default(), |attr| {
            (attr.min_rnr_timer, attr.rnr_retry) = (14, 2);
        });
        p.run(&Wr::new(opcode, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key));
        for _ in 0..2 {
            assert!(p.sent().is_none());
            p.world.advance(RNR_14);
            p.settle();
        }
        assert_eq!(status(&p.sent().expect("completion")), Status::RnrRetryExcErr);
        assert_eq!(p.a.state(), State::Err);
        // The receiver reports no error.
        assert_eq!(p.b.state(), State::Rts);
        assert_eq!(p.gb.drain_events(), []);
    }
}

#[test]
fn rnr_retry_seven_never_ends() {
    let mut p = Pair::with(Setup::default(), |attr| {
        (attr.min_rnr_timer, attr.rnr_retry) = (1, 7);
    });
    p.run(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)]));
    for _ in 0..1000 {
        p.world.advance(10_000);
        p.settle();
    }
    assert!(p.sent().is_none());
    p.b.post_recv(1, &[p.b.sge(0, 8)]);
    p.world.advance(10_000);
    p.settle();
    assert_eq!(status(&p.sent().expect("completion")), Status::Success);
}

#[test]
fn a_peer_that_does_not_answer() {
    type Break = fn(&mut Pair);
    let breaks: [Break; 5] = [
        |p| p.b.set_state(State::Reset),
        |p| p.b.set_state(State::Err),
        |p| p.gb.adapter.reset(),
        |p| p.gb.adapter.set_link(false),
        |p| assert!(p.gb.on_object(vrnic_abi::admin::Opcode::DestroyQp, p.b.qpn).is_ok()),
    ];
    for (at, unplug) in breaks.iter().enumerate() {
        let mut p = Pair::with(Setup::default(), |attr| (attr.timeout, attr.retry_cnt) = (10, 3));
        p.b.post_recv(1, &[p.b.sge(0, 8)]);
        let cqe = p.complete(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)]));
        assert_eq!(status(&cqe), Status::Success);
        unplug(&mut p);
        p.run(&Wr::new(Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key));
        for _ in 0..3 {
            assert!(p.sent().is_none(), "case {at}: too early");
            p.world.advance(4096 << 10);
            p.settle();
        }
        p.world.last_timeout(&[&p.ga, &p.gb], 4096 << 10);
        let cqe = p.sent().expect("completion");
        assert_eq!(status(&cqe), Status::RetryExcErr, "case {at}");
        assert_eq!(p.a.state(), State::Err);
        assert_eq!(p.ga.stats().retry_exceeded_err.get(), 1);
    }
}

#[test]
fn a_qp_answers_its_own_peer_only() {
    // Another QP of A whose attributes name B's QP as its peer gets no answer.
    let mut p = Pair::new();
    let mut thief = Endpoint::new(&p.ga, Setup::default());
    thief.connect(p.gb.mac(), p.b.qpn, |attr| attr.retry_cnt = 0);
    p.b.post_recv(1, &[p.b.sge(0, 8)]);
    thief.post_send(&Wr::new(Opcode::Send, &[thief.sge(0, 8)]));
    p.settle();
    p.world.last_timeout(&[&p.ga, &p.gb], 1000 * MS);
    let cqe = thief.send_cq.poll().expect("completion");
    assert_eq!(status(&cqe), Status::RetryExcErr);
    // A packet contains the address of its sender, but not the sender's QP number. Here it also has
    // the right PSN, so B receives the message.
    assert_eq!(p.received().is_some(), by_packets());
}

#[test]
fn without_a_timeout_the_requester_waits_for_ever() {
    let mut p = Pair::with(Setup::default(), |attr| (attr.timeout, attr.retry_cnt) = (0, 1));
    p.gb.adapter.set_link(false);
    p.run(&write(&p).to(p.b.buffer, p.b.key));
    for _ in 0..100 {
        p.world.advance(1000 * MS);
        p.settle();
    }
    assert!(p.sent().is_none());
    p.gb.adapter.set_link(true);
    p.world.advance(1000 * MS);
    p.settle();
    // Over packets, the lost packet is not sent again.
    let expected = (!by_packets()).then_some(Status::Success);
    assert_eq!(p.sent().map(|cqe| status(&cqe)), expected);
}
