//! Panics of the adapter's own code in a turn of two adapters: only the adapter fails whose objects
//! caused the panic. Uses memory copies, because over packets each adapter works only on its own
//! objects.
//!
//! Shows: hostile

use std::panic::{AssertUnwindSafe, catch_unwind};

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::host::{Bar, RAM_LEN};
use crate::messages::datagrams;
use crate::world::{Pair, World};

/// Makes each access to this guest's memory panic from now on.
fn break_memory(guest: &Guest) {
    guest.host.restrict(BASE, RAM_LEN, Bar::Panics);
}

fn fails(pair: &Pair) -> (u64, u64) {
    (pair.ga.host.fails(), pair.gb.host.fails())
}

#[test]
fn a_fault_of_the_responder_fails_its_adapter_alone() {
    let mut p = Pair::local(Setup::default(), |_| {});
    let (mut c, d) =
        (Endpoint::new(&p.ga, Setup::default()), Endpoint::new(&p.ga, Setup::default()));
    Endpoint::connect_pair(&c, &d);
    p.b.post_recv(1, &[]);
    p.a.post_send(&Wr::new(Opcode::Send, &[]));
    break_memory(&p.gb);
    p.ga.adapter.poll(0);
    assert_eq!(fails(&p), (0, 1));
    // The QP that has lost its peer fails. All other QPs of its adapter still work.
    assert_eq!(p.ga.drain_events(), [(Kind::QpFatal, p.a.qpn)]);
    assert_eq!(p.a.state(), State::Err);
    p.a.post_send(&Wr::new(Opcode::Send, &[]).id(7));
    c.post_send(&Wr::new(Opcode::Write, &[]).to(d.sge(0, 0).addr.get(), 0));
    p.world.settle(&[&p.ga]);
    assert_eq!(p.sent().map(|cqe| (cqe.wr_id.get(), status(&cqe))), Some((7, Status::WrFlushErr)));
    assert!(c.send_cq.poll().is_some());
    assert_eq!(fails(&p), (0, 1));
    // No lock of the peer stays taken.
    p.gb.host.unrestrict();
    p.gb.adapter.reset();
}

#[test]
fn a_fault_of_the_requester_is_not_charged_to_its_peer() {
    let mut p = Pair::local(Setup::default(), |_| {});
    p.a.post_send(&Wr::new(Opcode::Send, &[]));
    break_memory(&p.ga);
    let turn = catch_unwind(AssertUnwindSafe(|| p.ga.adapter.poll(0)));
    assert!(turn.is_err(), "the worker must contain the panic");
    assert_eq!(fails(&p), (0, 0));
    p.ga.host.unrestrict();
    p.ga.adapter.reset();
}

#[test]
fn a_fault_of_a_datagrams_receiver_fails_its_adapter_alone() {
    let setup = Setup { kind: Type::Ud, ..Setup::default() };
    let mut p = Pair::datagrams(World::copying(), setup);
    p.expect(64);
    let wr = datagrams::datagram(&[p.a.sge(0, 8)], p.there());
    p.a.post_send(&wr);
    break_memory(&p.gb);
    p.ga.adapter.poll(0);
    assert_eq!((p.ga.host.fails(), p.gb.host.fails()), (0, 1));
    assert_eq!(p.a.send_cq.poll().map(|cqe| status(&cqe)), Some(Status::Success));
    assert_eq!(p.a.state(), State::Rts);
}
