//! Unreliable connections: messages are lost without an error, and only the sender's own faults are
//! errors.
//!
//! Shows: data

use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::{Opcode, Sge};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::messages::datagrams::lost;
use crate::world::World;

/// Two endpoints of an unreliable connection.
struct Pair {
    world: World,
    ga: Guest,
    gb: Guest,
    a: Endpoint,
    b: Endpoint,
}

impl Pair {
    fn new() -> Self {
        let setup = Setup { kind: Type::Uc, ..Setup::default() };
        let world = World::default();
        let (ga, gb) = (world.guest(1), world.guest(2));
        let (a, b) = (Endpoint::new(&ga, setup), Endpoint::new(&gb, setup));
        Endpoint::connect_pair(&a, &b);
        Self { world, ga, gb, a, b }
    }

    fn send(&mut self, wr: &Wr) -> Status {
        self.a.post_send(wr);
        self.world.settle(&[&self.ga, &self.gb]);
        status(&self.a.send_cq.poll().expect("sent"))
    }

    /// Sends a message that is lost. Checks that both QPs still work.
    fn loses(&mut self, wr: &Wr) {
        let dropped = lost(&self.ga, &self.gb);
        assert_eq!(self.send(wr), Status::Success);
        assert!(self.b.recv_cq.poll().is_none());
        assert_eq!(lost(&self.ga, &self.gb), dropped + 1);
        assert_eq!((self.a.state(), self.b.state()), (State::Rts, State::Rts));
    }
}

#[test]
fn messages_and_writes_arrive() {
    let mut p = Pair::new();
    // Longer than a turn, so that it arrives in several parts.
    let data: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    p.a.fill(0, &data);
    let place = p.b.sge(0, 3_000_000);
    p.b.post_recv(7, &[place]);
    assert_eq!(p.send(&Wr::new(Opcode::Send, &[p.a.sge(0, 3_000_000)])), Status::Success);
    assert_eq!(p.b.recv_cq.poll().expect("received").byte_len.get(), 3_000_000);
    assert!(p.b.bytes(0, data.len()) == data);
    p.b.post_recv(8, &[]);
    let write = Wr::new(Opcode::WriteImm, &[p.a.sge(1, 100)]).to(p.b.buffer + 4_000_000, p.b.key);
    assert_eq!(p.send(&write), Status::Success);
    assert_eq!(p.b.recv_cq.poll().expect("received").wr_id.get(), 8);
    assert_eq!(p.b.bytes(4_000_000, 100), data[1..101]);
}

#[test]
fn what_cannot_be_delivered_is_lost() {
    let mut p = Pair::new();
    let data = [p.a.sge(0, 100)];
    let write = Wr::new(Opcode::Write, &data);
    p.loses(&Wr::new(Opcode::Send, &data));
    p.loses(&write.clone().to(p.b.buffer, p.b.key ^ 1));
    p.loses(&write.clone().to(p.b.buffer - 1, p.b.key));
    p.loses(&Wr { opcode: Opcode::WriteImm as u8, ..write.clone() }.to(p.b.buffer, p.b.key));
    // A receive that is too short stays for the next message.
    let place = p.b.sge(0, 99);
    p.b.post_recv(7, &[place]);
    p.loses(&Wr::new(Opcode::Send, &data));
    assert_eq!(p.send(&Wr::new(Opcode::Send, &[p.a.sge(0, 99)])), Status::Success);
    assert_eq!(p.b.recv_cq.poll().expect("received").wr_id.get(), 7);
    assert!(p.gb.drain_events().is_empty());
    // The peer's link is down.
    p.gb.adapter.set_link(false);
    p.loses(&Wr::new(Opcode::Send, &[p.a.sge(0, 99)]));
    // A fault of the sender is an error here, too.
    let foreign = Sge { lkey: 0xdead.into(), ..p.a.sge(0, 8) };
    assert_eq!(p.send(&Wr::new(Opcode::Send, &[foreign])), Status::LocProtErr);
    assert_eq!(p.a.state(), State::Sqe);
}

#[test]
fn the_senders_own_faults_are_errors() {
    let mut p = Pair::new();
    for opcode in [Opcode::Read, Opcode::FetchAdd, Opcode::SendInv] {
        let wr = Wr { opcode: opcode as u8, ..Wr::new(Opcode::Send, &[p.a.sge(0, 8)]) };
        assert_eq!(p.send(&wr), Status::LocQpOpErr, "{opcode:?}");
        assert_eq!(p.a.state(), State::Sqe);
        p.a.set_state(State::Rts);
    }
    let place = p.b.sge(0, 99);
    p.b.post_recv(7, &[place]);
    let foreign = Sge { lkey: 0xdead.into(), ..p.a.sge(0, 8) };
    assert_eq!(p.send(&Wr::new(Opcode::Send, &[foreign])), Status::LocProtErr);
    assert_eq!(p.send(&Wr::new(Opcode::Send, &[])), Status::WrFlushErr);
    p.a.set_state(State::Rts);
    assert_eq!(p.send(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)])), Status::Success);
    assert_eq!(p.b.recv_cq.poll().expect("received").wr_id.get(), 7);
}

#[test]
fn a_faulty_receive_fails_its_queue_pair() {
    let mut p = Pair::new();
    let foreign = Sge { lkey: 0xdead.into(), ..p.b.sge(0, 100) };
    p.b.post_recv(1, &[foreign]);
    assert_eq!(p.send(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)])), Status::Success);
    assert_eq!(status(&p.b.recv_cq.poll().expect("completed")), Status::LocProtErr);
    assert_eq!(p.b.state(), State::Err);
}

/// A worker may have begun a message when its QP is destroyed.
#[test]
fn a_message_that_has_begun_arrives_as_a_whole() {
    const LEN: u32 = 900_000;
    let mut p = Pair::new();
    let data: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    p.a.fill(0, &data);
    // With a second QP that has work, turns are short.
    let other = Endpoint::new(&p.ga, Setup { kind: Type::Uc, ..Setup::default() });
    other.ring();
    p.a.post_send(&Wr::new(Opcode::Write, &[p.a.sge(0, LEN)]).to(p.b.buffer, p.b.key));
    let _busy = p.ga.adapter.poll_for(0, std::time::Duration::ZERO);
    p.ga.on_object(Admin::DestroyQp, p.a.qpn).expect("DESTROY_QP");
    p.world.settle(&[&p.ga, &p.gb]);
    assert!(p.b.bytes(0, LEN as usize) == data);
}
