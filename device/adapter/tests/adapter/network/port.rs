//! A port that the driver has closed neither sends nor receives, not even messages to itself.
//! Requests that wait go on if it is opened in time.
//!
//! Shows: network

use vrnic_abi::admin::{SetPort, Status as AdminStatus, command};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::regs;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::world::{Pair, World};

/// ACK timeout of code 10.
const TIMEOUT: u64 = 4096 << 10;

fn set_open(guest: &Guest, open: bool) {
    guest.command::<command::SetPort>(&SetPort::new(0, open)).expect("SET_PORT");
}

fn pair() -> Pair {
    Pair::with(Setup::default(), |attr| (attr.timeout, attr.retry_cnt) = (10, 3))
}

/// The side that closes its port.
type Closer = fn(&Pair) -> &Guest;

#[test]
fn a_closed_port_at_either_end_stops_a_connection() {
    let closers: [Closer; 2] = [|p| &p.ga, |p| &p.gb];
    for closer in closers {
        let mut p = pair();
        set_open(closer(&p), false);
        p.b.post_recv(1, &[p.b.sge(0, 8)]);
        p.run(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)]));
        for _ in 0..3 {
            assert!(p.sent().is_none(), "too early");
            p.world.advance(TIMEOUT);
            p.settle();
        }
        p.world.last_timeout(&[&p.ga, &p.gb], TIMEOUT);
        assert_eq!(status(&p.sent().expect("completion")), Status::RetryExcErr);
        assert!(p.received().is_none());
        assert_eq!((p.a.state(), p.b.state()), (State::Err, State::Rts));
        assert_eq!(closer(&p).stats().link_downed.get(), 1);
    }
}

#[test]
fn what_waits_goes_on_once_when_the_port_opens_in_time() {
    let closers: [Closer; 2] = [|p| &p.ga, |p| &p.gb];
    for closer in closers {
        let mut p = pair();
        p.a.fill(0, &[7; 64]);
        for n in 0..3 {
            p.b.post_recv(n, &[p.b.sge(64 * n, 64)]);
        }
        set_open(closer(&p), false);
        p.a.post_send(&Wr::new(Opcode::Send, &[p.a.sge(0, 64)]).id(10));
        p.a.post_send(&Wr::new(Opcode::Send, &[p.a.sge(0, 64)]).id(11));
        p.settle();
        p.world.advance(2 * TIMEOUT);
        p.settle();
        assert!(p.sent().is_none() && p.received().is_none());
        set_open(closer(&p), true);
        p.world.advance(TIMEOUT);
        p.settle();
        for n in 0..2 {
            let (sent, received) = (p.sent().expect("sent"), p.received().expect("received"));
            assert_eq!((status(&sent), sent.wr_id.get()), (Status::Success, 10 + n));
            assert_eq!((status(&received), received.wr_id.get()), (Status::Success, n));
        }
        assert!(p.sent().is_none() && p.received().is_none());
        assert_eq!(p.b.bytes(0, 192), [[7; 128].as_slice(), &[0; 64]].concat());
    }
}

#[test]
fn a_closed_port_is_no_way_to_oneself() {
    let world = World::default();
    let guest = world.guest(1);
    let [mut a, b] = [(); 2].map(|()| Endpoint::new(&guest, Setup::default()));
    let mac = guest.mac();
    a.connect(mac, b.qpn, |attr| attr.retry_cnt = 0);
    b.connect(mac, a.qpn, |_| {});
    set_open(&guest, false);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key));
    world.settle(&[&guest]);
    world.last_timeout(&[&guest], 1_000_000_000);
    assert_eq!(status(&a.send_cq.poll().expect("completion")), Status::RetryExcErr);
}

/// The state of the link is independent. A driver that closes the port still gets link events.
#[test]
fn a_closed_port_has_a_link() {
    let world = World::default();
    let guest = world.guest(1);
    set_open(&guest, false);
    assert!(guest.status().contains(regs::Status::LINK_UP) && !guest.adapter.core().carries());
    assert_eq!(guest.drain_events(), []);
    guest.adapter.set_link(false);
    guest.adapter.set_link(true);
    assert_eq!(guest.drain_events(), [(Kind::PortDown, 1), (Kind::PortUp, 1)]);
    assert!(!guest.adapter.core().carries());
    // The port counts as down once: closing it is not counted again when the link goes down.
    assert_eq!(guest.stats().link_downed.get(), 1);
    // After a reset, the port is open until the driver closes it.
    guest.adapter.reset();
    guest.bring_up();
    assert!(guest.adapter.core().carries());
    let odd = SetPort { closed: 2, ..SetPort::new(0, true) };
    assert_eq!(
        guest.command::<command::SetPort>(&odd).err(),
        Some(Refused(AdminStatus::BadParam, 1))
    );
}

/// If a request about a key is refused, the peer's QP fails, too, but not if one of the ports is
/// closed.
#[test]
fn a_failure_does_not_cross_a_closed_port() {
    let closers: [Closer; 2] = [|p| &p.ga, |p| &p.gb];
    for closer in closers {
        let mut p = pair();
        set_open(closer(&p), false);
        p.run(&Wr::new(Opcode::LocalInv, &[]));
        assert_eq!(status(&p.sent().expect("completion")), Status::MwBindErr);
        assert_eq!((p.a.state(), p.b.state()), (State::Err, State::Rts));
    }
}
