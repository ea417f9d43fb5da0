//! Adapters with several MACs: macvlan devices, bridges, and addresses that were changed.
//!
//! Shows: network

use std::mem::offset_of;

use vrnic_abi::admin::{self, MoveConnection, SetGid, Transport, command};
use vrnic_abi::connection::{Connection, Stage};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{AttrMask, GRH_LEN, State, Type};
use vrnic_abi::sq::{DatagramSeg, Opcode};
use vrnic_adapter::ethernet::Frame;
use vrnic_adapter::stats::Counter;
use vrnic_packet::{MacAddr, VlanMac};
use vrnic_simlink::{Fate, Faults};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{Setup, TO_RTS, attributes, link_local};
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::cable::Cable;
use crate::messages::datagrams::{QKEY, datagram, path, ready};
use crate::network::packets::{withheld, withheld_write};
use crate::network::streams::ends::{MS, connected, open, stage};
use crate::network::streams::pairs::Daemon;
use crate::world::{Pair, World};

mod outside;

/// The index of the second address in each GID table.
const SECOND: u16 = 1;
/// Second addresses of guests.
const M1: [u8; 6] = [2, 0, 0, 0, 1, 1];
const M2: [u8; 6] = [2, 0, 0, 0, 1, 2];

const fn untagged(mac: [u8; 6]) -> VlanMac {
    VlanMac { mac: MacAddr(mac), vlan: None }
}

/// Gives a guest a second address.
fn name(guest: &Guest, mac: [u8; 6]) {
    guest.set_gid(SECOND, mac).expect("SET_GID");
}

fn unname(guest: &Guest) {
    guest.command::<command::SetGid>(&SetGid::clear(SECOND)).expect("SET_GID");
}

/// Connects the second address of an endpoint's guest to a peer with this MAC.
fn connect(from: &Endpoint, mac: [u8; 6], qpn: u32) {
    from.connect(mac, qpn, |attr| attr.av.sgid_index = SECOND.into());
}

/// Lets two endpoints work until the timeouts of a work request on A have ended. Returns the status
/// of its completion.
fn at_last(p: &mut Pair) -> Status {
    let mut done = None;
    for _ in 0..100 {
        p.settle();
        done = done.or_else(|| p.sent());
        p.world.advance(100_000_000);
    }
    status(&done.expect("a completion"))
}

/// Checks that the frame of a WRITE from A has the second addresses as its MACs, and that B only
/// takes it with this destination.
fn goes_to_the_second_address(cable: &Cable, mut a: Endpoint, b: &Endpoint) {
    a.fill(0, b"genuine!");
    let sent = withheld_write(cable, &mut a, b);
    assert_eq!((&sent[..6], &sent[6..12]), (&M2[..], &M1[..]));
    b.fill(0, &[0; 8]);
    let discards = || b.guest.adapter.stats().get(Counter::RxRoceDiscards);
    for (to, dropped, bytes) in [(cable.gb.mac(), 1, [0; 8]), (M2, 0, *b"genuine!")] {
        let before = discards();
        let _offered = cable.gb.adapter.offer(Frame::new([&to, &sent[6..]].concat()));
        let _polled = cable.gb.adapter.poll(0);
        assert_eq!((discards() - before, b.bytes(0, 8)), (dropped, bytes.to_vec()));
    }
}

/// Returns endpoints of two guests that are connected by the second addresses of the guests.
fn pair(setup: Setup) -> Pair {
    let p = Pair::apart(World::default(), setup);
    name(&p.ga, M1);
    name(&p.gb, M2);
    connect(&p.a, M2, p.b.qpn);
    connect(&p.b, M1, p.a.qpn);
    p
}

#[test]
fn connections_have_the_macs_of_their_gids() {
    for kind in [Type::Rc, Type::Uc] {
        let mut p = pair(Setup { kind, ..Setup::default() });
        p.a.fill(0, b"to a pod");
        p.b.post_recv(7, &[p.b.sge(0, 8)]);
        assert_eq!(status(&p.complete(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)]))), Status::Success);
        assert_eq!(status(&p.received().expect("received")), Status::Success);
        assert_eq!(p.b.bytes(0, 8), *b"to a pod");
        if kind == Type::Rc {
            let read = Wr::new(Opcode::Read, &[p.a.sge(64, 8)]).to(p.b.buffer, p.b.key);
            assert_eq!(status(&p.complete(&read)), Status::Success);
            assert_eq!(p.a.bytes(64, 8), *b"to a pod");
        }
    }
}

#[test]
fn two_addresses_of_one_adapter_reach_each_other() {
    let world = World::default();
    let guest = world.guest(1);
    name(&guest, M1);
    let setup = Setup::default();
    let (mut a, mut b) = (Endpoint::new(&guest, setup), Endpoint::new(&guest, setup));
    a.connect(M1, b.qpn, |_| {});
    connect(&b, guest.mac(), a.qpn);
    for (from, to) in [(0, 1), (1, 0)] {
        let ends = [&mut a, &mut b];
        ends[to].post_recv(7, &[]);
        ends[from].post_send(&Wr::new(Opcode::Send, &[]));
        world.settle(&[&guest]);
        assert_eq!(status(&ends[from].send_cq.poll().expect("sent")), Status::Success);
        assert_eq!(status(&ends[to].recv_cq.poll().expect("received")), Status::Success);
    }
}

#[test]
fn a_connection_has_only_the_addresses_of_its_gids() {
    // One end after the other uses the first address of the other end's guest.
    for end in 0..2 {
        let mut p = Pair::apart(World::default(), Setup::default());
        name(&p.ga, M1);
        name(&p.gb, M2);
        let macs = if end == 0 { [p.gb.mac(), M1] } else { [M2, p.ga.mac()] };
        connect(&p.a, macs[0], p.b.qpn);
        connect(&p.b, macs[1], p.a.qpn);
        p.b.fill(0, &[0; 8]);
        p.a.fill(0, &[7; 8]);
        p.a.post_send(&Wr::new(Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key));
        assert_eq!(at_last(&mut p), Status::RetryExcErr);
        assert_eq!(p.b.bytes(0, 8), [0; 8]);
    }
}

/// Shows: network
#[test]
fn an_address_belongs_to_one_adapter_at_a_time() {
    let world = World::default();
    let [ga, gb, gc] = [1, 2, 3].map(|number| world.guest(number));
    let setup = Setup::default();
    let to_rtr = |end: &Endpoint, peer: &Endpoint| {
        let mut attr = attributes(peer.guest.mac(), peer.qpn);
        attr.av.sgid_index = SECOND.into();
        end.accepts(attr)
    };
    let c = Endpoint::new(&gc, setup);
    // No adapter can use another function's own MAC.
    name(&gb, ga.mac());
    assert!(!to_rtr(&Endpoint::new(&gb, setup), &c), "the address of another function was taken");
    // The second claim becomes valid when the first one ends.
    name(&ga, M1);
    name(&gb, M1);
    assert!(to_rtr(&Endpoint::new(&ga, setup), &c));
    assert!(!to_rtr(&Endpoint::new(&gb, setup), &c), "an address has two owners");
    unname(&ga);
    assert!(to_rtr(&Endpoint::new(&gb, setup), &c));
    // A reset ends claims, too.
    name(&ga, M1);
    assert!(!to_rtr(&Endpoint::new(&ga, setup), &c));
    gb.reset();
    assert!(to_rtr(&Endpoint::new(&ga, setup), &c));
}

/// Shows: network
#[test]
fn a_connection_that_has_lost_its_address_sends_nothing() {
    for kind in [Type::Rc, Type::Uc] {
        let mut p = pair(Setup { kind, ..Setup::default() });
        p.b.fill(0, &[0; 8]);
        p.a.fill(0, &[7; 8]);
        unname(&p.ga);
        p.a.post_send(&Wr::new(Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key));
        let expected = if kind == Type::Rc { Status::RetryExcErr } else { Status::Success };
        assert_eq!(at_last(&mut p), expected);
        assert_eq!(p.b.bytes(0, 8), [0; 8]);
    }
}

#[test]
fn datagrams_have_the_macs_of_their_gids() {
    let ud = Setup { kind: Type::Ud, ..Setup::default() };
    let mut p = Pair::apart(World::default(), ud);
    name(&p.ga, M1);
    name(&p.gb, M2);
    ready(&p.a);
    ready(&p.b);
    let mut to: DatagramSeg = path(&p.gb, p.b.qpn, link_local(M2));
    (to.av.dmac, to.av.sgid_index, to.qkey) = (M2, SECOND.into(), QKEY.into());
    p.b.post_recv(7, &[p.b.sge(0, 64)]);
    let data = [p.a.sge(0, 8)];
    // The GID of one interface is not reached by the MAC of another one.
    let mut wrong = to;
    wrong.av.dmac = p.gb.mac();
    assert_eq!(p.send(&datagram(&data, wrong)), Status::Success);
    assert!(p.received().is_none());
    assert_eq!(p.send(&datagram(&data, to)), Status::Success);
    let got = p.received().expect("received");
    assert_eq!((got.byte_len.get(), got.smac), (GRH_LEN + 8, M1));
}

#[test]
fn packets_have_the_macs_of_their_gids() {
    let cable = Cable::new(6, Faults::default());
    name(&cable.ga, M1);
    name(&cable.gb, M2);
    let setup = Setup::default();
    let (a, b) = (Endpoint::new(&cable.ga, setup), Endpoint::new(&cable.gb, setup));
    connect(&a, M2, b.qpn);
    connect(&b, M1, a.qpn);
    goes_to_the_second_address(&cable, a, &b);
}

/// A tag with only a priority is no VLAN.
#[test]
fn a_datagram_with_a_priority_arrives() {
    let cable = Cable::new(6, Faults::default());
    let setup = Setup { kind: Type::Ud, ..Setup::default() };
    let (mut a, mut b) = (Endpoint::new(&cable.ga, setup), Endpoint::new(&cable.gb, setup));
    name(&cable.gb, M2);
    ready(&a);
    ready(&b);
    let mut to: DatagramSeg = path(&cable.gb, b.qpn, link_local(M2));
    (to.av.dmac, to.qkey) = (M2, QKEY.into());
    b.post_recv(7, &[b.sge(0, 64)]);
    let frames = withheld(&cable);
    a.post_send(&datagram(&[a.sge(0, 8)], to));
    cable.run_until(|| !frames.borrow().is_empty());
    let plain = frames.borrow().first().expect("a frame").clone();
    let tagged = [&plain[..12], &[0x81, 0, 0xe0, 0], &plain[12..]].concat();
    let _offered = cable.gb.adapter.offer(Frame::new(tagged));
    let _polled = cable.gb.adapter.poll(0);
    assert_eq!(b.recv_cq.poll().expect("received").byte_len.get(), GRH_LEN + 8);
}

/// Gives two endpoints their ends of a TCP connection between the second addresses of their guests.
fn open_streams(a: &Endpoint, b: &Endpoint) {
    open(a, 0, M2, |connection| connection.smac = M1);
    open(b, 1, M1, |connection| connection.smac = M2);
}

#[test]
fn segments_have_the_macs_of_their_interfaces() {
    let cable = Cable::new(8, Faults::default());
    let setup = Setup::default();
    let (a, b) = (Endpoint::new(&cable.ga, setup), Endpoint::new(&cable.gb, setup));
    open_streams(&a, &b);
    cable.run_until(|| [&a, &b].iter().all(|end| stage(end) == Stage::Open));
    goes_to_the_second_address(&cable, a, &b);
}

#[test]
fn streams_between_second_addresses_are_copied() {
    let daemon = Daemon::new(false);
    let [mut a, b] = daemon.guests.each_ref().map(|guest| Endpoint::new(guest, Setup::default()));
    open_streams(&a, &b);
    daemon.pass(2 * MS);
    let frames = daemon.frames();
    a.fill(0, &[7; 60_000]);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 60_000)]).to(b.buffer, b.key);
    assert_eq!(daemon.complete(&mut a, &write), Status::Success);
    assert_eq!(b.bytes(0, 60_000), [7; 60_000]);
    assert_eq!(daemon.frames(), frames);
}

#[test]
fn a_stream_has_only_an_address_of_its_adapter() {
    let world = World::copying();
    let [ga, gb] = [1, 2].map(|number| world.guest(number));
    name(&ga, M1);
    let end = Endpoint::new(&gb, Setup::default());
    end.guest.take_through(end.qpn, attributes(ga.mac(), 0), &TO_RTS[..1]);
    let offset = offset_of!(Connection, smac) as u32;
    for (smac, refused) in [
        ([0xff; 6], Refused(admin::Status::BadParam, offset)),
        ([0; 6], Refused(admin::Status::BadParam, offset)),
        (ga.mac(), Refused(admin::Status::Busy, 0)),
        (M1, Refused(admin::Status::Busy, 0)),
    ] {
        let connection = stream::connection(0, [smac, ga.mac()], stream::MSS);
        assert_eq!(end.guest.open_connection(end.qpn, &connection), Err(refused), "{smac:?}");
    }
    // A connection keeps its address until it ends.
    let connection = stream::connection(0, [M2, ga.mac()], stream::MSS);
    end.guest.open_connection(end.qpn, &connection).expect("a free address");
    assert!(gb.adapter.has_address(untagged(M2)));
    gb.reset();
    assert!(!gb.adapter.has_address(untagged(M2)));
}

#[test]
fn a_path_follows_a_changed_address_in_sqd() {
    let mut p = pair(Setup::default());
    // Both ends move to the first addresses of their guests.
    for (end, peer) in [(&p.a, &p.b), (&p.b, &p.a)] {
        let attr = attributes(peer.guest.mac(), peer.qpn);
        let av = AttrMask::STATE.union(AttrMask::AV);
        let states =
            [(State::Sqd, AttrMask::STATE), (State::Sqd, av), (State::Rts, AttrMask::STATE)];
        end.guest.take_through(end.qpn, attr, &states);
    }
    unname(&p.ga);
    unname(&p.gb);
    p.b.post_recv(7, &[]);
    assert_eq!(status(&p.complete(&Wr::new(Opcode::Send, &[]))), Status::Success);
}

/// Each of sixteen adapters has as many addresses as its GID table has entries.
#[test]
fn thousands_of_addresses_belong_to_their_adapters() {
    const ADAPTERS: u8 = 16;
    const LAST: u8 = 255;
    let mac = |adapter: u8, index: u8| [2, 0, 0, 1, adapter, index];
    let world = World::default();
    let guests: Vec<_> = (0..ADAPTERS).map(|number| world.guest(number + 1)).collect();
    for (guest, number) in guests.iter().zip(0..) {
        for index in 1..=LAST {
            guest.set_gid(index.into(), mac(number, index)).expect("SET_GID");
        }
    }
    let all: Vec<_> = guests.iter().collect();
    for (number, index) in (0..ADAPTERS).zip((1..=LAST).step_by(16)) {
        let peer = (number + 5) % ADAPTERS;
        let ends = [(number, index), (peer, LAST - index)];
        let [mut a, b] =
            ends.map(|(number, _)| Endpoint::new(&guests[usize::from(number)], Setup::default()));
        for (end, other, own, far) in [(&a, &b, ends[0], ends[1]), (&b, &a, ends[1], ends[0])] {
            let to = mac(far.0, far.1);
            end.connect(to, other.qpn, |attr| attr.av.sgid_index = u16::from(own.1).into());
        }
        a.fill(0, &[number + 1; 8]);
        a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key));
        world.settle(&all);
        a.send_cq.poll_success();
        assert_eq!(b.bytes(0, 8), [number + 1; 8], "{ends:?}");
    }
}

/// The driver of an iWARP adapter names MACs by entries of the GID table, too.
#[test]
fn an_iwarp_adapter_has_the_macs_that_its_driver_has_named() {
    let world = World::default();
    let [ga, gb] = [1, 2].map(|number| world.guest(number));
    ga.adapter.set_transport(Transport::Iwarp);
    let set = |params: &SetGid| ga.command::<command::SetGid>(params);
    let has = |mac| (ga.adapter.claims(MacAddr(mac)), ga.adapter.has_address(untagged(mac)));
    assert_eq!(has(M1), (false, false));
    for index in [SECOND, SECOND + 1] {
        set(&SetGid::of_mac(index, M1)).expect("a free MAC");
    }
    assert_eq!(has(M1), (true, true));
    for index in [SECOND, SECOND + 1] {
        assert_eq!(has(M1), (true, true), "an entry still has it");
        set(&SetGid::clear(index)).expect("SET_GID");
    }
    assert_eq!(has(M1), (false, false));
    // SET_GID names MACs of others without an effect, and no MACs of groups.
    name(&gb, M2);
    for mac in [gb.mac(), M2] {
        set(&SetGid::of_mac(SECOND, mac)).expect("SET_GID");
        assert_eq!(has(mac), (true, false));
    }
    unname(&gb);
    assert_eq!(has(M2), (true, true), "it waited for its turn");
    let refused = Refused(admin::Status::BadParam, offset_of!(SetGid, smac) as u32);
    assert_eq!(set(&SetGid::of_mac(SECOND, [0xff; 6])), Err(refused));
    // Their number is bounded, and a reset ends them.
    let last = [2, 0, 0, 0, 2, 255];
    for index in 0..=255 {
        set(&SetGid::of_mac(index.into(), [2, 0, 0, 0, 2, index])).expect("there is room");
    }
    assert_eq!(set(&SetGid::of_mac(256, M1)), Err(Refused(admin::Status::BadParam, 0)));
    assert_eq!((has(last), has(M1)), ((true, true), (false, false)));
    ga.reset();
    assert_eq!(has(last), (false, false));
}

/// Changes the MACs of the connection of an endpoint.
fn relocate(end: &Endpoint, smac: [u8; 6], dmac: [u8; 6]) -> Result<(), Refused> {
    let params = MoveConnection::new(end.qpn, smac, dmac);
    end.guest.command::<command::MoveConnection>(&params)
}

/// Shows: network: connections go on when the MAC of the next hop changes
#[test]
fn a_connection_goes_on_with_other_macs() {
    let cable = Cable::new(8, Faults::default());
    let (mut a, mut b) = connected(&cable);
    relocate(&a, M1, M2).expect("a connection");
    a.fill(0, b"genuine!");
    b.fill(0, &[0; 8]);
    let sent = withheld_write(&cable, &mut a, &b);
    assert_eq!((&sent[..6], &sent[6..12]), (&M2[..], &M1[..]));
    let offer = |to: [u8; 6], b: &Endpoint| {
        let discards = || cable.gb.adapter.stats().get(Counter::RxRoceDiscards);
        let before = discards();
        let _offered = cable.gb.adapter.offer(Frame::new([&to, &sent[6..]].concat()));
        let _polled = cable.gb.adapter.poll(0);
        (discards() - before, b.bytes(0, 8))
    };
    assert_eq!(offer(M2, &b), (1, vec![0; 8]), "the other end is not there yet");
    relocate(&b, M2, M1).expect("a connection");
    assert_eq!(offer([2, 0, 0, 0, 1, 3], &b), (1, vec![0; 8]));
    assert_eq!(offer(cable.gb.mac(), &b), (0, b"genuine!".to_vec()), "its earlier MAC");
    b.fill(0, &[0; 8]);
    cable.links[0].borrow_mut().rule(|_| Fate::Pass);
    cable.settle();
    a.send_cq.poll_success();
    a.fill(0, &[7; 60_000]);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 60_000)]).to(b.buffer, b.key);
    assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
    assert_eq!(b.bytes(0, 60_000), [7; 60_000]);
    let read = Wr::new(Opcode::Read, &[b.sge(0, 8)]).to(a.buffer, a.key);
    assert_eq!(status(&cable.complete(&mut b, &read)), Status::Success);
}

#[test]
fn a_connection_moves_only_to_a_mac_of_its_adapter() {
    let world = World::copying();
    let [ga, gb] = [1, 2].map(|number| world.guest(number));
    let end = Endpoint::new(&ga, Setup::default());
    let refused = |status| Err(Refused(status, 0));
    assert_eq!(relocate(&end, M1, M2), refused(admin::Status::BadState));
    open(&end, 0, gb.mac(), |_| {});
    name(&gb, M2);
    for (smac, dmac, detail) in [
        ([0xff; 6], M2, offset_of!(MoveConnection, smac)),
        ([0; 6], M2, offset_of!(MoveConnection, smac)),
        (M1, [0xff; 6], offset_of!(MoveConnection, dmac)),
        (M1, [0; 6], offset_of!(MoveConnection, dmac)),
    ] {
        let bad = Err(Refused(admin::Status::BadParam, detail as u32));
        assert_eq!(relocate(&end, smac, dmac), bad);
    }
    for mac in [gb.mac(), M2] {
        assert_eq!(relocate(&end, mac, M2), refused(admin::Status::Busy));
    }
    let unknown = MoveConnection::new(9999u32, M1, M2);
    let unknown = ga.command::<command::MoveConnection>(&unknown);
    assert_eq!(unknown, refused(admin::Status::NotFound));
    // The connection keeps the last two MACs.
    let has = |last: u8| ga.adapter.has_address(untagged([2, 0, 0, 0, 3, last]));
    for last in 1..=3 {
        assert!(!has(last));
        relocate(&end, [2, 0, 0, 0, 3, last], M2).expect("a free MAC");
    }
    assert_eq!([has(1), has(2), has(3)], [false, true, true]);
    ga.reset();
    assert_eq!([has(2), has(3)], [false, false]);
}

#[test]
fn messages_are_copied_after_a_connection_has_moved() {
    let daemon = Daemon::new(false);
    let (mut a, mut b) = daemon.connected();
    let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
    assert_eq!(daemon.complete(&mut a, &write), Status::Success);
    let frames = daemon.frames();
    for last in 1..=3 {
        let macs = [[2, 0, 0, 0, 3, last], [2, 0, 0, 0, 4, last]];
        relocate(&a, macs[0], macs[1]).expect("a connection");
        relocate(&b, macs[1], macs[0]).expect("a connection");
        a.fill(0, &[last; 8]);
        assert_eq!(daemon.complete(&mut a, &write), Status::Success);
        assert_eq!(b.bytes(0, 8), [last; 8]);
        let read = Wr::new(Opcode::Read, &[b.sge(8, 8)]).to(a.buffer, a.key);
        assert_eq!(daemon.complete(&mut b, &read), Status::Success);
    }
    assert_eq!(daemon.frames(), frames);
    // Frames tell the peer that it ends.
    a.set_state(State::Err);
    daemon.pass(2 * MS);
    assert_eq!(b.state(), State::Err);
}
