//! Identity of connections: the QP numbers of both ends, their ports, and their first PSNs.
//!
//! Shows: queues

use std::sync::Arc;
use std::thread;

use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::Opcode;
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::datapath::requester;
use vrnic_adapter::datapath::send_queue::Turn;
use vrnic_adapter::datapath::sgl::{LONG_TURN, TURN};
use vrnic_adapter::datapath::space::Space;
use vrnic_adapter::datapath::turn::Allowance;
use vrnic_adapter::host::Lane;
use vrnic_adapter::limits::Limits;
use vrnic_adapter::objects::qp::Qp;
use vrnic_adapter::slice::Slice;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, PSN, Setup};
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::host::{Step, TestHost};
use crate::memory::keys::{alloc_mr, local_inv, reg, reg_seg};
use crate::world::{Pair, World};

/// Longer than all tries of a request take.
const GIVES_UP_NS: u64 = 1 << 36;

/// Lets time pass until all requests that are retried have failed.
fn wear_out(p: &Pair) {
    for _ in 0..8 {
        p.settle();
        p.world.advance(GIVES_UP_NS);
    }
    p.settle();
}

fn send(p: &mut Pair) -> Wr {
    p.a.fill(0, b"message");
    Wr::new(Opcode::Send, &[p.a.sge(0, 7)])
}

/// Each direction has its own first PSN, which the sender begins with and the receiver expects.
#[test]
fn psns_may_differ_between_the_directions() {
    let world = World::default();
    let (ga, gb) = (world.guest(1), world.guest(2));
    let [a, b] = [&ga, &gb].map(|guest| Endpoint::new(guest, Setup::default()));
    let (there, back) = (0x12_3456.into(), 7.into());
    a.connect(gb.mac(), b.qpn, |attr| (attr.sq_psn, attr.rq_psn) = (there, back));
    // Bits above the 24 bits of a PSN are ignored.
    let there = 0xff12_3456.into();
    b.connect(ga.mac(), a.qpn, |attr| (attr.sq_psn, attr.rq_psn) = (back, there));
    let mut p = Pair { world, ga, gb, a, b };
    for _ in 0..2 {
        p.b.post_recv(1, &[p.b.sge(0, 64)]);
        let wr = send(&mut p);
        assert_eq!(status(&p.complete(&wr)), Status::Success);
        assert!(p.received().is_some());
        (p.ga, p.gb, p.a, p.b) = (p.gb, p.ga, p.b, p.a);
    }
}

/// A peer that expects another PSN does not answer, and reports no error. A message of an
/// unreliable connection may begin with any PSN.
#[test]
fn a_peer_with_another_psn_does_not_answer() {
    for kind in [Type::Rc, Type::Uc] {
        let mut p = Pair::with(Setup { kind, ..Setup::default() }, |attr| {
            attr.sq_psn = (PSN + 1).into();
        });
        p.b.post_recv(1, &[p.b.sge(0, 64)]);
        let wr = send(&mut p);
        p.run(&wr);
        wear_out(&p);
        let expected = if kind == Type::Rc { Status::RetryExcErr } else { Status::Success };
        assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(expected), "{kind:?}");
        assert_eq!(p.received().is_some(), kind == Type::Uc, "{kind:?}");
        assert_eq!(p.b.state(), State::Rts);
        assert_eq!(p.gb.drain_events(), []);
    }
}

/// A QP ends, and another process gets its number. The new QP connects to the peer, which still
/// waits for the first QP.
#[test]
fn whoever_gets_the_number_of_a_qp_does_not_get_its_connection() {
    let world = World::default();
    let limits = Limits { qp: 1, ..Limits::default() };
    let ga = world.guest_with(1, 1, limits);
    let gb = world.guest(2);
    let [first, b] = [&ga, &gb].map(|guest| Endpoint::new(guest, Setup::default()));
    Endpoint::connect_pair(&first, &b);
    ga.on_object(Admin::DestroyQp, first.qpn).expect("DESTROY_QP");
    let second = Endpoint::new(&ga, Setup::default());
    assert_eq!(second.qpn, first.qpn);
    second.connect(gb.mac(), b.qpn, |attr| attr.sq_psn = 4711.into());
    let mut p = Pair { world, ga, gb, a: second, b };
    p.b.post_recv(1, &[p.b.sge(0, 64)]);
    let key = p.b.key;
    let write = Wr::new(Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, key);
    p.run(&write);
    wear_out(&p);
    assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::RetryExcErr));
    assert!(p.received().is_none());
    assert_eq!(p.b.state(), State::Rts);
}

/// Runs a turn that is not limited by time.
fn turn(
    adapter: &Arc<Adapter<TestHost>>,
    qp: &Arc<Qp<TestHost>>,
    space: &mut Space,
    bytes: u64,
) -> Turn {
    let slice = Slice::new(adapter.host(), Lane::SHARED);
    let allowance = Allowance { budget: bytes, slice: &slice };
    requester::run(adapter.network(), qp, space, &allowance)
}

/// The receiver is reset and connected again in the middle of a message. The rest of the message
/// does not go into a new receive. Uses memory copies, because a turn over packets does not move
/// data by itself.
#[test]
fn the_rest_of_a_message_does_not_begin_a_receive() {
    for kind in [Type::Rc, Type::Uc] {
        let len = 3 << 20;
        let mut p = Pair::local(Setup { kind, ..Setup::default() }, |_| {});
        p.b.post_recv(1, &[p.b.sge(0, len)]);
        p.a.post_send(&Wr::new(Opcode::Send, &[p.a.sge(0, len)]));
        let (ga, gb) = (Arc::clone(&p.ga.adapter), Arc::clone(&p.gb.adapter));
        // A turn moves a part of the message. After that, the receiver is absent for a while.
        let qp = ga.qp(p.a.qpn).expect("QP");
        assert_eq!(turn(&ga, &qp, &mut Space::default(), TURN), Turn::More);
        p.b.set_state(State::Reset);
        p.b.connect(ga.mac().0, p.a.qpn, |_| {});
        p.b.post_recv(2, &[p.b.sge(0, len)]);
        gb.qp(p.b.qpn).expect("QP").schedule(gb.core());
        wear_out(&p);
        let expected = if kind == Type::Rc { Status::RetryExcErr } else { Status::Success };
        assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(expected), "{kind:?}");
        assert!(p.received().is_none(), "{kind:?}: the rest of a message came as a message");
        assert_eq!(p.b.state(), State::Rts);
    }
}

/// Returns two guests. A QP of A names B's QP as its peer, but B's QP is connected to another QP of
/// A.
fn stranger() -> (Pair, Endpoint) {
    let p = Pair::new();
    let stranger = Endpoint::new(&p.ga, Setup { kernel: true, ..Setup::default() });
    stranger.connect(p.gb.mac(), p.b.qpn, |_| {});
    (p, stranger)
}

/// When a QP is destroyed, neither its peer nor a QP that names it keeps a reference to it.
#[test]
fn a_qp_that_has_ended_is_not_kept() {
    let (p, mut stranger) = stranger();
    stranger.post_send(&Wr::new(Opcode::Send, &[stranger.sge(0, 8)]));
    p.settle();
    let qp = Arc::downgrade(&p.gb.adapter.qp(p.b.qpn).expect("QP"));
    p.gb.on_object(Admin::DestroyQp, p.b.qpn).expect("DESTROY_QP");
    assert!(qp.upgrade().is_none(), "the destroyed QP is still referenced");
}

/// While a QP works, it locks its peer's receiving half and holds that guest's memory. It does not
/// lock a QP that is not connected to it.
#[test]
fn a_foreign_qp_is_not_locked() {
    let (p, mut stranger) = stranger();
    let key = alloc_mr(&p.ga, stranger.pdn, 1);
    let seg = reg_seg(&p.ga, &[stranger.buffer], 4096, ALL);
    stranger.post_send(&reg(key, 0, &seg));
    let gate = p.ga.host.gate(Step::Read(seg.table.get()));
    let qp = p.gb.adapter.qp(p.b.qpn).expect("QP");
    let adapter = &p.ga.adapter;
    thread::scope(|scope| {
        scope.spawn(|| adapter.poll(0));
        gate.wait();
        let free = qp.responder.try_lock().is_some();
        gate.open();
        assert!(free, "a foreign QP is locked");
    });
    assert!(stranger.send_cq.poll().is_some_and(|cqe| status(&cqe) == Status::Success));
}

/// A long turn ends with a long message that invalidates a key of the peer, after it has used up
/// all of its waits. The next turn is short. Uses memory copies, because a turn over packets does
/// not invalidate keys of the peer.
#[test]
fn a_long_send_inv_completes_in_a_short_turn() {
    const LEN: u32 = 1 << 20;
    let mut p = Pair::local(Setup { kernel: true, ..Setup::default() }, |_| {});
    let mine = [(); 15].map(|()| alloc_mr(&p.ga, p.a.pdn, 1));
    for key in mine {
        let seg = reg_seg(&p.ga, &[p.a.buffer], 4096, ALL);
        let cqe = p.complete(&reg(key, 0, &seg));
        assert_eq!(status(&cqe), Status::Success);
    }
    let key = alloc_mr(&p.gb, p.b.pdn, 1);
    let seg = reg_seg(&p.gb, &[p.b.buffer], 4096, ALL);
    p.b.post_send(&reg(key, 0, &seg));
    p.settle();
    p.b.post_recv(1, &[p.b.sge(0, LEN)]);
    for key in mine {
        p.a.store_send(&local_inv(key));
    }
    p.a.store_send(&Wr::new(Opcode::SendInv, &[p.a.sge(0, LEN)]).to(0, key));
    p.a.ring();
    let adapter = &p.ga.adapter;
    let qp = adapter.qp(p.a.qpn).expect("QP");
    let mut space = Space::default();
    assert_eq!(turn(adapter, &qp, &mut space, LONG_TURN), Turn::More);
    assert_eq!(turn(adapter, &qp, &mut space, TURN), Turn::Idle);
    for _ in 0..16 {
        assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
    }
    assert_eq!(p.received().map(|cqe| cqe.byte_len.get()), Some(LEN));
}
