//! Numbers of QPs and SRQs in messages, and those of doorbells and ranges.
//!
//! Shows: hostile: numbers of queue pairs, SRQs, doorbells and ranges of other functions

use std::sync::atomic::Ordering;

use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::connection::Stage;
use vrnic_abi::cq::Status;
use vrnic_abi::direct::Direction;
use vrnic_abi::qp::{GRH_LEN, Type};
use vrnic_abi::regs;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::memory::tpt::Denied;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use super::function::{Function, Picture, RANGE, range_state};
use super::keys::pass;
use crate::bus::{Endpoint, Guest, SharedQueue};
use crate::direct::{armed, store, until};
use crate::memory::keys::PAGE;
use crate::messages::datagrams::{datagram, ipv4, path, ready, set_gids};
use crate::messages::multicast::{GROUP, GROUP6, attach, to};
use crate::network::streams::ends::{open, stage};
use crate::queues::xrc::{Domain, to_srq};
use crate::world::World;

/// A counter of packets that were dropped. A packet to a QP that does not expect it is one.
const DROPPED: &[&str] = &["rx_roce_discards"];

fn guests(world: &World) -> [Guest; 3] {
    [1, 2, 3].map(|number| world.guest(number))
}

/// Posts on a QP and lets the adapters work. Returns the status.
fn complete(world: &World, guests: &[Guest; 3], end: &mut Endpoint, wr: &Wr) -> Status {
    end.post_send(wr);
    pass(world, guests);
    status(&end.send_cq.poll().expect("a completion"))
}

/// Returns a QP of C that is connected with itself, so that it works, with this number of others
/// before it.
fn foreign(guest: &Guest, others: u32) -> Function {
    let c = Function::new(guest.clone(), others, GROUP6);
    c.end.connect(guest.mac(), c.end.qpn, |_| {});
    c
}

/// A connects its QP with a QP number of C, at the address of B and at that of C.
#[test]
fn a_connection_needs_a_peer_that_has_connected_with_it() {
    for peer in [1, 2] {
        let world = World::default();
        let guests = guests(&world);
        let c = foreign(&guests[2], 8);
        let mut a = Endpoint::new(&guests[0], Setup::default());
        let b = Endpoint::new(&guests[1], Setup::default());
        assert!(b.qpn < c.end.qpn);
        a.connect(guests[peer].mac(), c.end.qpn, |_| {});
        let picture = Picture::of(&guests[2]);
        let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(c.end.buffer, c.end.key);
        assert_eq!(complete(&world, &guests, &mut a, &write), Status::RetryExcErr);
        picture.check_except(&guests[2], "a connection", DROPPED);
    }
}

/// B and C have QPs with the same number, at the same doorbell, and regions with the same key.
#[test]
fn messages_are_for_the_qp_of_the_addressed_function() {
    let world = World::default();
    let guests = guests(&world);
    let (b, c) = (Function::new(guests[1].clone(), 0, GROUP6), foreign(&guests[2], 0));
    let mut a = Endpoint::new(&guests[0], Setup::default());
    assert_eq!((b.numbers, b.end.key, b.end.qpn), (c.numbers, c.end.key, c.end.qpn));
    Endpoint::connect_pair(&a, &b.end);
    let picture = Picture::of(&guests[2]);
    a.fill(0, b"for B");
    let write = Wr::new(Opcode::Write, &[a.sge(0, 5)]).to(c.end.buffer, c.end.key);
    assert_eq!(complete(&world, &guests, &mut a, &write), Status::Success);
    assert_eq!(b.end.bytes(0, 5), b"for B");
    picture.check(&guests[2], "a WRITE");
}

/// Returns a datagram QP of each function, ready, and a receive at those of B and C. C's QP has so
/// many others before it.
fn datagram_qps(guests: &[Guest; 3], others: u32) -> [Endpoint; 3] {
    let setup = Setup { kind: Type::Ud, region: 16 * PAGE, ..Setup::default() };
    (0..others).for_each(|_| assert_ne!(Endpoint::new(&guests[2], setup).qpn, 0));
    let mut ends = guests.each_ref().map(|guest| Endpoint::new(guest, setup));
    for (end, number) in ends.iter_mut().zip(1..) {
        set_gids(&end.guest, number);
        ready(end);
        end.post_recv(5, &[end.sge(0, GRH_LEN + 64)]);
    }
    ends
}

#[test]
fn a_datagram_reaches_no_qp_of_another_function() {
    for (others, received) in [(8, false), (0, true)] {
        let world = World::default();
        let guests = guests(&world);
        let [mut a, mut b, c] = datagram_qps(&guests, others);
        let picture = Picture::of(&guests[2]);
        let send = datagram(&[a.sge(0, 8)], path(&b.guest, c.qpn, ipv4(2)));
        assert_eq!(complete(&world, &guests, &mut a, &send), Status::Success);
        assert_eq!(b.recv_cq.poll().is_some(), received);
        picture.check(&guests[2], "a datagram");
    }
}

#[test]
fn a_group_has_the_members_of_each_function() {
    let world = World::default();
    let guests = guests(&world);
    let [mut a, mut b, c] = datagram_qps(&guests, 0);
    assert_eq!(b.qpn, c.qpn);
    attach(&b.guest, c.qpn, GROUP).expect("ATTACH_MCAST");
    let picture = Picture::of(&guests[2]);
    assert_eq!(complete(&world, &guests, &mut a, &datagram(&[], to(GROUP))), Status::Success);
    b.recv_cq.expect(5, Status::Success);
    picture.check_except(&guests[2], "a datagram to a group", DROPPED);
}

/// The data and the receives of datagrams.
#[test]
fn a_datagram_finds_no_key_of_another_function() {
    let world = World::default();
    let guests = guests(&world);
    let [mut a, mut b, c] = datagram_qps(&guests, 8);
    let picture = Picture::of(&guests[2]);
    let there = path(&b.guest, b.qpn, ipv4(2));
    b.post_recv(6, &[c.sge(0, GRH_LEN + 64)]);
    for (id, received) in [(5, Status::Success), (6, Status::LocProtErr)] {
        let send = datagram(&[a.sge(0, 8)], there);
        assert_eq!(complete(&world, &guests, &mut a, &send), Status::Success);
        b.recv_cq.expect(id, received);
    }
    let send = datagram(&[c.sge(0, 8)], there);
    assert_eq!(complete(&world, &guests, &mut a, &send), Status::LocProtErr);
    picture.check(&guests[2], "a datagram");
}

/// Receives of an SRQ.
#[test]
fn a_shared_receive_finds_no_key_of_another_function() {
    for (others, sent, received) in
        [(8, Status::RemOpErr, Status::LocProtErr), (0, Status::Success, Status::Success)]
    {
        let world = World::default();
        let guests = guests(&world);
        let c = foreign(&guests[2], others);
        let base = Endpoint::new(&guests[0], Setup { region: 64 * PAGE, ..Setup::default() });
        let mut srq = SharedQueue::new(&base);
        let mut a = base.sibling(Type::Rc, srq.srqn);
        let mut b = Endpoint::new(&guests[1], Setup::default());
        Endpoint::connect_pair(&a, &b);
        let picture = Picture::of(&guests[2]);
        srq.post(7, &[c.end.sge(0, 64)]);
        let send = Wr::new(Opcode::Send, &[b.sge(0, 8)]);
        assert_eq!(complete(&world, &guests, &mut b, &send), sent);
        a.recv_cq.expect(7, received);
        picture.check(&guests[2], "a receive of an SRQ");
    }
}

#[test]
fn a_message_finds_no_srq_of_another_function() {
    let mut d = Domain::in_world(World::default());
    let c = Function::new(d.world.guest(3), 8, GROUP6);
    let picture = Picture::of(&c.guest);
    let send = Wr::new(Opcode::Send, &[d.initiator.sge(0, 8)]);
    assert_eq!(d.send(&to_srq(c.numbers.srqn, send)), Some(Status::RemInvReqErr));
    picture.check(&c.guest, "a message to an SRQ");
}

/// C has posted a work request, and has not rung. A rings at the place of C's doorbell.
#[test]
fn a_doorbell_is_that_of_the_own_function() {
    for others in [8, 0] {
        let world = World::default();
        let guests = guests(&world);
        let mut c = foreign(&guests[2], others);
        let mut a = foreign(&guests[0], 0);
        let write = Wr::new(Opcode::Write, &[c.end.sge(0, 8)]).to(c.end.buffer + 64, c.end.key);
        c.end.fill(0, &[7; 8]);
        let posts = if others == 0 { vec![&mut a.end, &mut c.end] } else { vec![&mut c.end] };
        for end in posts {
            end.store_send(&write);
            end.guest.slot32(end.uar, end.slot, 0).store(end.sq_pi, Ordering::Release);
        }
        pass(&world, &guests);
        let picture = Picture::of(&guests[2]);
        let bad = a.guest.stats().bad_doorbells.get();
        a.guest.ring(a.end.uar, c.numbers.slot);
        a.guest.ring(c.end.uar, c.end.slot);
        a.guest.set_register(regs::KICK, c.end.uar);
        pass(&world, &guests);
        let is_own = others == 0;
        assert_eq!(a.end.send_cq.poll().is_some(), is_own);
        assert_eq!(a.guest.stats().bad_doorbells.get() - bad, u64::from(!is_own));
        picture.check(&guests[2], "a doorbell");
    }
}

/// Each function has all ranges. A's TRANSFER and what A's controller stores concern A's ones.
#[test]
fn a_range_is_that_of_the_own_function() {
    for arms in [false, true] {
        let world = World::default();
        let guests = guests(&world);
        let (mut a, c) = (foreign(&guests[0], 0), foreign(&guests[2], 0));
        assert_eq!(a.end.qpn, c.end.qpn);
        c.arm();
        if arms {
            armed(&a.end, RANGE, Direction::Write, 64);
        }
        let picture = Picture::of(&guests[2]);
        store(&guests[0], RANGE, 0, &[9; 64]);
        a.end.post_send(&until(RANGE));
        world.settle(&guests.each_ref());
        let cqe = a.end.send_cq.poll().expect("a completion");
        let why = if arms { 0 } else { Denied::Invalid as u32 };
        assert_eq!((status(&cqe) == Status::Success, cqe.vendor_err.get()), (arms, why));
        // The end of the QP ends the ranges of this QP only.
        guests[0].on_object(Admin::DestroyQp, a.end.qpn).expect("DESTROY_QP");
        picture.check(&guests[2], "a range");
        assert_eq!(range_state(&guests[2]), (1, 0, 0));
    }
}

/// A and C have QPs with the same number, and have taken over connections with the same addresses
/// and ports.
#[test]
fn a_segment_is_for_the_connection_of_the_addressed_function() {
    for packets in [false, true] {
        let world = World::copying();
        if packets {
            world.fabric.use_packets_only();
        }
        let guests = guests(&world);
        let [mut a, mut b, mut c] =
            guests.each_ref().map(|guest| Endpoint::new(guest, Setup::default()));
        assert_eq!((a.qpn, a.key, a.buffer), (c.qpn, c.key, c.buffer));
        open(&c, 1, [2, 0, 0, 0, 0, 99], |_| {});
        stream::connect_pair(&b, &a);
        pass(&world, &guests);
        for end in [&mut a, &mut c] {
            end.post_recv(5, &[end.sge(64, 64)]);
        }
        b.fill(0, b"for A");
        let write = Wr::new(Opcode::Write, &[b.sge(0, 5)]).to(c.buffer, c.key);
        assert_eq!(complete(&world, &guests, &mut b, &write), Status::Success);
        let send = Wr::new(Opcode::Send, &[b.sge(0, 5)]);
        assert_eq!(complete(&world, &guests, &mut b, &send), Status::Success);
        a.recv_cq.expect(5, Status::Success);
        assert_eq!((a.bytes(0, 5), a.bytes(64, 5)), (b"for A".to_vec(), b"for A".to_vec()));
        assert!(c.recv_cq.poll().is_none() && stage(&c) != Stage::Open);
        assert_eq!(c.bytes(0, 128), [0; 128]);
    }
}
