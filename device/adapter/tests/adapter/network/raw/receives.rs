//! Receives, and frames that find none.
//!
//! Shows: raw

use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::cq::Status;
use vrnic_abi::flow::Kind;
use vrnic_abi::qp::{State, Type};
use vrnic_adapter::ethernet::{Frame, Offered};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::flow::rule;

use super::frames::{mac, plain};
use super::{expect, received, setup, to_mac};
use crate::bus::{Endpoint, SharedQueue};
use crate::messages::datagrams::ready;
use crate::world::{Pair, World};

#[test]
fn a_frame_without_a_receive_or_with_a_short_one_is_lost_and_counted() {
    let mut p = Pair::raw();
    p.b.add_flow(&to_mac(mac(2))).expect("CREATE_FLOW");
    let frame = plain(mac(2), 100);
    let lost = |p: &Pair| p.gb.stats().rx_raw_discards.get();
    assert_eq!(p.send_frame(&frame), Status::Success);
    assert_eq!(lost(&p), 1, "no receive");
    expect(&mut p.b, 0, 99);
    assert_eq!(p.send_frame(&frame), Status::Success);
    assert_eq!(lost(&p), 2, "too short a receive, which stays posted");
    assert!(p.received().is_none());
    assert_eq!(p.send_frame(&frame[..99]), Status::Success);
    assert_eq!(received(&mut p.b).expect("received").0, frame[..99]);
    assert_eq!((lost(&p), p.b.state()), (2, State::Rts));
    // In a state without receives.
    p.b.set_state(State::Reset);
    assert_eq!(p.send_frame(&frame), Status::Success);
    assert_eq!(lost(&p), 3);
}

#[test]
fn a_receive_with_bad_memory_fails_its_qp() {
    let mut p = Pair::raw();
    p.b.add_flow(&to_mac(mac(2))).expect("CREATE_FLOW");
    let mut place = p.b.sge(0, 200);
    place.lkey = 0xdead_0000.into();
    p.b.post_recv(5, &[place]);
    expect(&mut p.b, 0, 200);
    assert_eq!(p.send_frame(&plain(mac(2), 100)), Status::Success);
    assert_eq!(status(&p.received().expect("the faulty one")), Status::LocProtErr);
    assert_eq!(status(&p.received().expect("the next one")), Status::WrFlushErr);
    assert_eq!((p.b.state(), p.gb.stats().rx_raw_discards.get()), (State::Err, 1));
}

#[test]
fn receives_of_a_shared_queue_are_taken() {
    let world = World::default();
    let guest = world.guest(2);
    let base = Endpoint::new(&guest, setup());
    let mut srq = SharedQueue::new(&base);
    let mut qps = [(); 2].map(|()| base.sibling(setup().kind, srq.srqn));
    qps.iter().for_each(Endpoint::ready_for_frames);
    qps[0].add_flow(&to_mac(mac(2))).expect("CREATE_FLOW");
    qps[1].add_flow(&rule(Kind::AllDefault)).expect("CREATE_FLOW");
    for (nth, to) in [(0, mac(2)), (1, mac(7))] {
        srq.post(0, &[base.sge(0, 500)]);
        let frame = plain(to, 300);
        assert_eq!(guest.adapter.offer(Frame::copy(&frame)), Offered::Trapped);
        world.settle(&[&guest]);
        assert_eq!(received(&mut qps[nth]).expect("received").0, frame);
    }
}

/// A frame for the function's own address comes back to it.
#[test]
fn a_qp_sends_to_a_qp_of_its_own_function() {
    let mut p = Pair::raw();
    p.a.add_flow(&to_mac(mac(1))).expect("CREATE_FLOW");
    expect(&mut p.a, 4096, 500);
    let frame = plain(mac(1), 90);
    assert_eq!(p.send_frame(&frame), Status::Success);
    assert_eq!(received(&mut p.a).expect("received").0, frame);
}

/// The number of a QP may be given to a QP of another type while frames wait for the first one.
#[test]
fn frames_of_a_destroyed_qp_do_not_reach_the_next_one_with_its_number() {
    let p = Pair::raw();
    let flow = p.b.add_flow(&to_mac(mac(2))).expect("CREATE_FLOW");
    let frame = plain(mac(2), 100);
    assert_eq!(p.gb.adapter.offer(Frame::copy(&frame)), Offered::Trapped);
    let destroy = |qpn| p.gb.on_object(Admin::DestroyQp, qpn).expect("DESTROY_QP");
    p.gb.destroy_flow(flow).expect("DESTROY_FLOW");
    destroy(p.b.qpn);
    let ud = |params: &mut vrnic_abi::admin::CreateQp| params.qp_type = Type::Ud as u8;
    let mut next = p.b.beside(ud);
    while next.qpn != p.b.qpn {
        destroy(next.qpn);
        let mut params = next.params();
        ud(&mut params);
        next.set_qp(&params);
    }
    ready(&next);
    expect(&mut next, 0, 500);
    p.settle();
    assert!(next.recv_cq.poll().is_none(), "a frame reached a QP of another type");
    assert_eq!(p.gb.stats().rx_raw_discards.get(), 1);
}
