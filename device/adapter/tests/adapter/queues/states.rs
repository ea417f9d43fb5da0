//! MODIFY_QP and QUERY_QP of single attributes; `transitions` has the state machine.
//!
//! Shows: queues

use vrnic_abi::admin::Status;
use vrnic_abi::qp::{Attr, AttrMask, State};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{INIT, RTR, RTS, Setup, TO_RTS, attributes};
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::world::{Pair, World};

/// Moves a new QP to `state`. The state must not be SQE, which an RC QP never has.
fn qp_in(guest: &Guest, state: State) -> Endpoint {
    let mut endpoint = Endpoint::new(guest, Setup { kernel: true, ..Setup::default() });
    let steps = match state {
        State::Reset => 0,
        State::Init => 1,
        State::Rtr => 2,
        _ => 3,
    };
    guest.take_through(endpoint.qpn, attributes(guest.mac(), endpoint.qpn), &TO_RTS[..steps]);
    if matches!(state, State::Sqd | State::Err) {
        endpoint.set_state(state);
    }
    assert_eq!(endpoint.state(), state);
    endpoint
}

#[test]
fn the_callers_belief_must_be_right() {
    let world = World::default();
    let guest = world.guest(1);
    let endpoint = qp_in(&guest, State::Rts);
    let mut attr = attributes(guest.mac(), endpoint.qpn);
    (attr.state, attr.cur_state) = (State::Rts as u8, State::Sqd as u8);
    let mask = AttrMask::STATE | AttrMask::CUR_STATE;
    assert_eq!(guest.modify_qp(endpoint.qpn, mask, &attr), Err(Refused(Status::BadState, 0)));
}

#[test]
fn attributes_out_of_range() {
    let world = World::default();
    let guest = world.guest(1);
    type Spoil = fn(&mut Attr);
    let cases: [(State, Spoil, usize); 15] = [
        (State::Init, |attr| attr.port = 2, std::mem::offset_of!(Attr, port)),
        (State::Init, |attr| attr.port = 0, std::mem::offset_of!(Attr, port)),
        (State::Init, |attr| attr.pkey_index = 1.into(), std::mem::offset_of!(Attr, pkey_index)),
        (State::Init, |attr| attr.state = 9, std::mem::offset_of!(Attr, state)),
        (State::Init, |attr| attr.reserved = 1, std::mem::offset_of!(Attr, reserved)),
        (State::Rtr, |attr| attr.av.reserved[1] = 1, std::mem::offset_of!(Attr, av.reserved) + 1),
        (State::Rtr, |attr| attr.av.reserved2 = 1.into(), std::mem::offset_of!(Attr, av.reserved2)),
        (State::Rtr, |attr| attr.path_mtu = 0, std::mem::offset_of!(Attr, path_mtu)),
        (State::Rtr, |attr| attr.path_mtu = 6, std::mem::offset_of!(Attr, path_mtu)),
        (State::Rtr, |attr| attr.dest_qpn = (1 << 24).into(), std::mem::offset_of!(Attr, dest_qpn)),
        (State::Rtr, |attr| attr.min_rnr_timer = 32, std::mem::offset_of!(Attr, min_rnr_timer)),
        (
            State::Rtr,
            |attr| attr.max_dest_rd_atomic = 129,
            std::mem::offset_of!(Attr, max_dest_rd_atomic),
        ),
        (State::Rts, |attr| attr.timeout = 32, std::mem::offset_of!(Attr, timeout)),
        (State::Rts, |attr| attr.retry_cnt = 8, std::mem::offset_of!(Attr, retry_cnt)),
        (State::Rts, |attr| attr.rnr_retry = 8, std::mem::offset_of!(Attr, rnr_retry)),
    ];
    for (to, spoil, offset) in cases {
        let (from, mask) = match to {
            State::Init => (State::Reset, INIT),
            State::Rtr => (State::Init, RTR),
            _ => (State::Rtr, RTS),
        };
        let endpoint = qp_in(&guest, from);
        let mut attr = attributes(guest.mac(), endpoint.qpn);
        attr.state = to as u8;
        spoil(&mut attr);
        let result = guest.modify_qp(endpoint.qpn, mask, &attr);
        assert_eq!(
            result,
            Err(Refused(Status::BadParam, offset as u32)),
            "to {to:?}, offset {offset}"
        );
        assert_eq!(endpoint.state(), from);
    }
}

#[test]
fn query_gives_back_what_modify_set() {
    let world = World::default();
    let guest = world.guest(1);
    let endpoint = qp_in(&guest, State::Rts);
    let mut expected = attributes(guest.mac(), endpoint.qpn);
    (expected.state, expected.cur_state) = (State::Rts as u8, State::Rts as u8);
    let got = guest.query_qp(endpoint.qpn).expect("QUERY_QP");
    assert_eq!(zerocopy::IntoBytes::as_bytes(&got), zerocopy::IntoBytes::as_bytes(&expected));
}

#[test]
fn reset_forgets_silently_and_the_qp_works_again() {
    for in_device in [false, true] {
        let setup = Setup { in_device, ..Setup::default() };
        let mut p = Pair::with(setup, |attr| (attr.min_rnr_timer, attr.rnr_retry) = (14, 7));
        for round in 0..3 {
            // One request waits for a receive, and three wait behind it. B also has a send.
            for n in 0..4 {
                p.a.post_send(&Wr::new(vrnic_abi::sq::Opcode::Send, &[]).id(n));
            }
            p.settle();
            p.a.set_state(State::Reset);
            p.b.set_state(State::Reset);
            p.world.advance(1 << 40);
            p.settle();
            assert!(p.sent().is_none() && p.received().is_none());
            assert_eq!((p.ga.drain_events(), p.gb.drain_events()), (vec![], vec![]));
            p.a.connect(p.gb.mac(), p.b.qpn, |attr| attr.rnr_retry = 7);
            p.b.connect(p.ga.mac(), p.a.qpn, |_| {});
            p.b.post_recv(50, &[p.b.sge(0, 8)]);
            let wr = Wr::new(vrnic_abi::sq::Opcode::Send, &[p.a.sge(0, 8)]).id(100 + round);
            let cqe = p.complete(&wr);
            assert_eq!((cqe.wr_id.get(), cqe.wqe_index.get()), (100 + round, 0));
            assert_eq!(status(&cqe), vrnic_abi::cq::Status::Success);
            assert_eq!(p.received().expect("received").wr_id.get(), 50);
            assert!(p.sent().is_none() && p.received().is_none());
        }
    }
}

#[test]
fn requests_posted_early_run_in_rts() {
    let world = World::default();
    let guest = world.guest(1);
    let mut endpoint = qp_in(&guest, State::Rtr);
    endpoint.post_send(&Wr::new(vrnic_abi::sq::Opcode::Write, &[]));
    world.settle(&[&guest]);
    assert!(endpoint.send_cq.poll().is_none());
    let mut attr = attributes(guest.mac(), endpoint.qpn);
    attr.state = State::Rts as u8;
    guest.modify_qp(endpoint.qpn, RTS, &attr).expect("to RTS");
    world.settle(&[&guest]);
    assert!(endpoint.send_cq.poll().is_some());
}
