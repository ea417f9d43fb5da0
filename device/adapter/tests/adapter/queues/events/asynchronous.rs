//! Asynchronous events: of completion queues, queue pairs and the port.
//!
//! Shows: completions

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Attr, AttrMask, State};
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{Setup, TO_RTS, attributes};
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::world::{Pair, World};

#[test]
fn first_message_in_rtr_establishes() {
    let world = World::default();
    let (ga, gb) = (world.guest(1), world.guest(2));
    let (mut a, mut b) =
        (Endpoint::new(&ga, Setup::default()), Endpoint::new(&gb, Setup::default()));
    a.connect(gb.mac(), b.qpn, |_| {});
    gb.take_through(b.qpn, attributes(ga.mac(), a.qpn), &TO_RTS[..2]);
    for n in 0..2 {
        b.post_recv(n, &[]);
        a.post_send(&Wr::new(Opcode::Send, &[]));
        world.settle(&[&ga, &gb]);
        assert!(b.recv_cq.poll().is_some());
    }
    assert_eq!(gb.drain_events(), [(Kind::CommEstablished, b.qpn)]);
}

/// Shows: network: the port and its MTU follow the network interface
#[test]
fn port_events_follow_the_link() {
    let world = World::default();
    let guest = world.guest(1);
    guest.adapter.set_link(true);
    assert_eq!(guest.drain_events(), [], "no change");
    guest.adapter.set_link(false);
    guest.adapter.set_link(true);
    assert_eq!(guest.drain_events(), [(Kind::PortDown, 1), (Kind::PortUp, 1)]);
}

#[test]
fn a_full_asynchronous_queue_loses_nothing() {
    let world = World::default();
    let guest = world.guest(1);
    for _ in 0..20 {
        guest.adapter.set_link(false);
        guest.adapter.set_link(true);
    }
    let mut events = guest.drain_events();
    while guest.adapter.poll(0).busy {
        events.extend(guest.drain_events());
    }
    assert_eq!(events.len(), 40);
    assert!(events.chunks(2).all(|pair| pair == [(Kind::PortDown, 1), (Kind::PortUp, 1)]));
    assert!(guest.host.interrupts(0) > 0);
}

#[test]
fn a_drained_send_queue_tells() {
    for notify in [0, 1] {
        let mut p =
            Pair::with(Setup::default(), |attr| (attr.min_rnr_timer, attr.rnr_retry) = (14, 7));
        p.run(&Wr::new(Opcode::Send, &[]).id(1));
        let attr = Attr { state: State::Sqd as u8, en_sqd_async_notify: notify, ..Attr::default() };
        let mask = AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY;
        p.ga.modify_qp(p.a.qpn, mask, &attr).expect("to SQD");
        p.run(&Wr::new(Opcode::Write, &[]).id(2));
        assert_eq!(p.ga.query_qp(p.a.qpn).expect("QUERY_QP").sq_draining, 1);
        p.b.post_recv(1, &[]);
        p.world.advance(2_000_000);
        p.settle();
        assert_eq!(p.sent().expect("the request that had begun").wr_id.get(), 1);
        assert!(p.sent().is_none(), "no new request begins");
        let expected: &[_] = if notify == 1 { &[(Kind::SqDrained, p.a.qpn)] } else { &[] };
        assert_eq!(p.ga.drain_events(), expected);
        assert_eq!(p.ga.query_qp(p.a.qpn).expect("QUERY_QP").sq_draining, 0);
        p.a.set_state(State::Rts);
        p.settle();
        assert_eq!(p.sent().expect("the request behind").wr_id.get(), 2);
    }
}

#[test]
fn a_full_cq_overflows() {
    let mut p = Pair::with(Setup { log_cqes: 2, ..Setup::default() }, |_| {});
    for n in 0..6 {
        p.b.post_recv(n, &[]);
    }
    for n in 0..4 {
        p.run(&Wr::new(Opcode::Send, &[]).id(n));
        assert!(p.sent().is_some());
    }
    assert_eq!(p.gb.drain_events(), []);
    p.run(&Wr::new(Opcode::Send, &[]).id(4));
    assert_eq!(status(&p.sent().expect("sent")), Status::RemOpErr);
    let events = p.gb.drain_events();
    let expected = [(Kind::CqError, p.b.recv_cq.cqn), (Kind::QpFatal, p.b.qpn)];
    assert_eq!(events, expected);
    assert_eq!(p.b.state(), State::Err);
    // The first four entries are valid, and no further ones are written.
    for n in 0..4 {
        assert_eq!(p.received().expect("entry").wr_id.get(), n);
    }
    p.world.advance(1 << 32);
    p.settle();
    assert!(p.received().is_none());
    assert_eq!(p.gb.stats().cq_overflows.get(), 1);
}

#[test]
fn a_cq_whose_memory_is_gone_fails() {
    let mut p = Pair::new();
    p.b.post_recv(1, &[]);
    let ring = p.b.recv_cq.addr;
    p.gb.host.restrict(ring, 4096, crate::host::Bar::ReadOnly);
    p.run(&Wr::new(Opcode::Send, &[]));
    assert_eq!(status(&p.sent().expect("sent")), Status::RemOpErr);
    assert_eq!(p.gb.event(), Some((Kind::CqError, p.b.recv_cq.cqn)));
}
