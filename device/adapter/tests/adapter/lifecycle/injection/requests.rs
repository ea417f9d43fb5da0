//! Work requests and messages that rules hold back, lose or fail.
//!
//! Shows: faults

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use super::{MICRO, MILLI, pairs, pass, write};
use crate::bus::Endpoint;
use crate::messages::datagrams::datagram;
use crate::world::{Pair, World};

/// ACK timeout of code 10, and what the division by ten steps loses.
const TIMEOUT: u64 = (4096 << 10) + 10;

#[test]
fn a_failed_request_is_not_executed_and_those_behind_it_are_flushed() {
    for mut p in pairs(|_| {}) {
        p.world.rule(&format!("fail-request status=rem-op-err function=f1 qp={} nth=2", p.a.qpn));
        p.a.fill(0, &[7; 8]);
        let first = p.complete(&write(&p, 8).id(1));
        assert_eq!((status(&first), p.b.bytes(0, 8)), (Status::Success, vec![7; 8]));
        p.a.fill(0, &[9; 8]);
        let second = p.complete(&write(&p, 8).id(2).flags(Flags::empty()));
        assert_eq!((status(&second), second.wr_id.get()), (Status::RemOpErr, 2));
        assert_eq!(p.b.bytes(0, 8), [7; 8], "it was not executed");
        assert_eq!(p.a.state(), State::Err);
        let third = p.complete(&write(&p, 8).id(3));
        assert_eq!((status(&third), third.wr_id.get()), (Status::WrFlushErr, 3));
        assert_eq!(p.world.counts(), (2, 1));
    }
}

#[test]
fn retries_are_used_up_at_once() {
    for mut p in pairs(|attr| (attr.timeout, attr.retry_cnt) = (10, 7)) {
        p.world.rule("fail-request status=retry-exc-err function=f1 opcode=read");
        assert_eq!(status(&p.complete(&write(&p, 8))), Status::Success);
        let read = Wr::new(Opcode::Read, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key);
        assert_eq!(status(&p.complete(&read)), Status::RetryExcErr);
        assert_eq!(p.ga.stats().retry_exceeded_err.get(), 1);
        assert_eq!(p.world.counts(), (1, 1), "the WRITE was not selected");
    }
}

/// Without the rule, requests of four QPs complete as they were posted.
#[test]
fn requests_of_different_qps_complete_in_an_order_that_the_seed_chooses() {
    let order = |rule: Option<&str>| {
        let world = World::copying();
        let (ga, gb) = (world.guest(1), world.guest(2));
        let mut a: Vec<_> = (0..4).map(|_| Endpoint::new(&ga, Setup::default())).collect();
        let b: Vec<_> = (0..4).map(|_| Endpoint::new(&gb, Setup::default())).collect();
        for (a, b) in a.iter().zip(&b) {
            a.connect(gb.mac(), b.qpn, |_| {});
            b.connect(ga.mac(), a.qpn, |_| {});
        }
        if let Some(rule) = rule {
            world.rule(rule);
        }
        let mut done = Vec::new();
        for (nth, (a, b)) in a.iter_mut().zip(&b).enumerate() {
            let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
            a.post_send(&write.id(nth as u64));
        }
        for _ in 0..20 {
            world.settle(&[&ga, &gb]);
            let polled = a.iter_mut().filter_map(|a| a.send_cq.poll());
            done.extend(polled.map(|cqe| cqe.wr_id.get()));
            world.advance(MICRO * 100);
        }
        done
    };
    assert_eq!(order(None), [0, 1, 2, 3]);
    let held = |seed| {
        let done = order(Some(&format!("hold-request by=500us function=f1 prob=0.5 seed={seed}")));
        assert_eq!(done.len(), 4);
        done
    };
    let changes = (1..9).find(|seed| held(*seed) != [0, 1, 2, 3]).expect("another order");
    assert_eq!(held(changes), held(changes), "the same each time");
}

#[test]
fn requests_wait_for_a_time_and_in_proportion_to_their_bytes() {
    let rules = ["hold-request by=1ms function=f1 every=2", "slow-memory rate=1M function=f1"];
    for (rule, waits) in rules.into_iter().zip([[false, true], [true, true]]) {
        for mut p in pairs(|_| {}) {
            p.world.rule(rule);
            for (nth, waits) in (1..).zip(waits) {
                p.run(&write(&p, 1000).id(nth));
                if waits {
                    pass(&p, 999 * MICRO);
                    assert!(p.sent().is_none(), "{rule}: too early");
                    pass(&p, 10 * MICRO);
                }
                assert_eq!(p.sent().map(|cqe| cqe.wr_id.get()), Some(nth), "{rule}");
            }
            let hits = waits.iter().filter(|waits| **waits).count() as u64;
            assert_eq!(p.world.counts(), (2, hits), "{rule}: each was counted once");
        }
    }
}

#[test]
fn a_qp_fails_with_its_event_and_its_requests_are_flushed() {
    for mut p in pairs(|_| {}) {
        p.world.rule(&format!("fail-qp qp={} times=1", p.a.qpn));
        p.a.store_send(&write(&p, 8).id(1));
        p.run(&write(&p, 8).id(2));
        let ends: Vec<_> = std::iter::from_fn(|| p.sent()).collect();
        let ends: Vec<_> = ends.iter().map(|cqe| (cqe.wr_id.get(), status(cqe))).collect();
        assert_eq!(ends, [(1, Status::WrFlushErr), (2, Status::WrFlushErr)]);
        assert_eq!(p.ga.drain_events(), [(Kind::QpFatal, p.a.qpn)]);
        assert_eq!((p.a.state(), p.b.state()), (State::Err, State::Rts));
    }
}

#[test]
fn a_copied_message_that_is_lost_is_tried_again_until_the_retries_are_used_up() {
    let tune = |attr: &mut vrnic_abi::qp::Attr| (attr.timeout, attr.retry_cnt) = (10, 2);
    let mut p = Pair::local(Setup::default(), tune);
    p.world.rule("drop-message function=f1 times=2");
    p.run(&write(&p, 8).id(1));
    for _ in 0..2 {
        assert!(p.sent().is_none(), "too early");
        pass(&p, TIMEOUT);
    }
    assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
    assert_eq!((p.world.counts(), p.ga.stats().local_ack_timeout_err.get()), ((3, 2), 2));
    p.world.rule("drop-message function=f1");
    p.run(&write(&p, 8).id(2));
    (0..3).for_each(|_| pass(&p, TIMEOUT));
    assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::RetryExcErr));
}

#[test]
fn a_copied_message_without_acknowledgement_is_just_lost() {
    let setup = Setup { kind: Type::Uc, ..Setup::default() };
    let mut p = Pair::local(setup, |_| {});
    p.world.rule("drop-message function=f1 nth=1");
    p.a.fill(0, &[5; 8]);
    for expected in [[0; 8], [5; 8]] {
        assert_eq!(status(&p.complete(&write(&p, 8))), Status::Success);
        assert_eq!(p.b.bytes(0, 8), expected);
    }
    let setup = Setup { kind: Type::Ud, ..Setup::default() };
    let mut p = Pair::datagrams(World::copying(), setup);
    p.world.rule("drop-message function=f1 nth=1");
    p.expect(8);
    for arrives in [false, true] {
        let wr = datagram(&[p.a.sge(0, 8)], p.there());
        assert_eq!(p.send(&wr), Status::Success);
        assert_eq!(p.received().is_some(), arrives);
    }
}

#[test]
fn receives_that_are_hidden_make_the_sender_wait_or_use_up_its_tries() {
    let tune = |attr: &mut vrnic_abi::qp::Attr| {
        (attr.min_rnr_timer, attr.rnr_retry, attr.timeout) = (1, 2, 14);
    };
    for mut p in pairs(tune) {
        p.world.rule("rnr function=f2 times=2");
        p.b.post_recv(1, &[p.b.sge(0, 8)]);
        p.run(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)]));
        assert!(p.sent().is_none(), "too early");
        pass(&p, 100 * MICRO);
        assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
        assert_eq!(p.world.counts(), (3, 2));
        assert_eq!(p.ga.stats().rnr_nak_retry_err.get(), 2);
        p.world.rule("rnr");
        p.b.post_recv(2, &[p.b.sge(0, 8)]);
        p.run(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)]));
        pass(&p, MILLI);
        assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::RnrRetryExcErr));
    }
}

#[test]
fn a_rule_for_another_function_or_opcode_does_nothing() {
    for mut p in pairs(|_| {}) {
        p.world.rule("fail-request status=rem-op-err function=f9");
        p.world.rule("fail-qp opcode=fetch-add");
        p.world.rule("drop-message opcode=send");
        p.world.rule("fail-completion status=rem-op-err opcode=recv function=f1");
        assert_eq!(status(&p.complete(&write(&p, 8))), Status::Success);
        assert_eq!(p.world.counts(), (0, 0));
    }
}

/// What a rule has decided for a request does not concern the requests after a reset of the QP.
#[test]
fn a_reset_ends_what_rules_have_decided() {
    for mut p in pairs(|_| {}) {
        p.world.rule("fail-request status=rem-op-err function=f1 times=1");
        assert_eq!(status(&p.complete(&write(&p, 8).id(1))), Status::RemOpErr);
        p.a.set_state(State::Reset);
        p.b.set_state(State::Reset);
        p.a.connect(p.gb.mac(), p.b.qpn, |attr| attr.rq_psn = attr.sq_psn);
        p.b.connect(p.ga.mac(), p.a.qpn, |attr| attr.rq_psn = attr.sq_psn);
        assert_eq!(status(&p.complete(&write(&p, 8).id(1))), Status::Success);
        assert_eq!(p.world.counts().1, 1);
    }
}
