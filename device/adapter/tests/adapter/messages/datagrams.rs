//! Datagram QPs: which messages arrive, which are dropped, which are errors; and the GSI QP.
//!
//! Shows: datagrams

use std::sync::Arc;

use vrnic_abi::admin::{Opcode as Admin, QpFlags, SetGid, SetPort, Status as AdminStatus, command};
use vrnic_abi::cq::{Flags as CqeFlags, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{
    AddressVector, Attr, AttrMask, GRH_LEN, GSI_QPN, NO_VLAN, QKEY_OWN, State, Type,
};
use vrnic_abi::sq::{DatagramSeg, Flags, MAX_DATAGRAM, Opcode, Sge};
use vrnic_packet::Mtu;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp;
use vrnic_testdriver::qp::{Setup, attributes};
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use crate::bus::{Endpoint, Guest};
use crate::world::{Pair, World, by_packets};

pub(crate) const QKEY: u32 = 0x1234_5678;
const INIT: AttrMask =
    AttrMask::STATE.union(AttrMask::PKEY_INDEX).union(AttrMask::PORT).union(AttrMask::QKEY);
const RTS: AttrMask = AttrMask::STATE.union(AttrMask::SQ_PSN);

/// Returns the IPv4-mapped address of a guest.
pub(crate) fn ipv4(number: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, number]
}

/// Returns the link-local IPv6 address of a guest.
fn ipv6(number: u8) -> [u8; 16] {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, number]
}

impl Pair {
    /// Returns two endpoints that are ready for datagrams.
    pub(crate) fn datagrams(world: World, setup: Setup) -> Self {
        let p = Self::apart(world, setup);
        for (endpoint, number) in [(&p.a, 1), (&p.b, 2)] {
            set_gids(&endpoint.guest, number);
            ready(endpoint);
        }
        p
    }

    pub(crate) fn ud() -> Self {
        Self::datagrams(World::default(), Setup { kind: Type::Ud, ..Setup::default() })
    }

    /// Returns the IPv4 path from A to B.
    pub(crate) fn there(&self) -> DatagramSeg {
        path(&self.gb, self.b.qpn, ipv4(2))
    }

    /// Posts a receive on B.
    pub(crate) fn expect(&mut self, len: u32) {
        let place = self.b.sge(0, len + GRH_LEN);
        self.b.post_recv(7, &[place]);
    }

    /// Posts on A and lets both work. Returns the status of the completion.
    pub(crate) fn send(&mut self, wr: &Wr) -> Status {
        self.a.post_send(wr);
        self.settle();
        status(&self.a.send_cq.poll().expect("sent"))
    }

    /// Checks that a datagram to `to` is dropped, and that the next datagram with the right
    /// destination arrives.
    fn drops(&mut self, to: DatagramSeg) {
        let dropped = lost(&self.ga, &self.gb);
        let data = [self.a.sge(0, 8)];
        assert_eq!(self.send(&datagram(&data, to)), Status::Success);
        assert!(self.received().is_none(), "{to:?} was delivered");
        assert_eq!(lost(&self.ga, &self.gb), dropped + 1);
        let proper = self.there();
        assert_eq!(self.send(&datagram(&data, proper)), Status::Success);
        assert!(self.received().is_some());
        self.expect(64);
    }
}

/// Returns how many messages were lost between `ga` and `gb`. Over packets, the receiver counts the
/// packets that it drops, because the sender does not learn of them.
pub(crate) fn lost(ga: &Guest, gb: &Guest) -> u64 {
    let dropped = if by_packets() { gb.stats().rx_roce_discards.get() } else { 0 };
    ga.stats().tx_roce_discards.get() + dropped
}

pub(crate) fn set_gids(guest: &Guest, number: u8) {
    let mac = guest.mac();
    for (index, gid) in [(0, ipv6(number)), (1, ipv4(number))] {
        guest.command::<command::SetGid>(&SetGid::set(index, gid, mac, NO_VLAN)).expect("SET_GID");
    }
}

/// Brings a datagram QP to Ready to Send.
pub(crate) fn ready(endpoint: &Endpoint) {
    let attr = Attr { port: 1, qkey: QKEY.into(), ..Attr::default() };
    let init = if endpoint.kind == Type::Gsi { INIT.difference(AttrMask::PORT) } else { INIT };
    let steps = [(State::Init, init), (State::Rtr, AttrMask::STATE), (State::Rts, RTS)];
    endpoint.guest.take_through(endpoint.qpn, attr, &steps);
}

/// Returns the path to a QP of a guest with this address.
pub(crate) fn path(guest: &Guest, qpn: u32, dgid: [u8; 16]) -> DatagramSeg {
    let av = AddressVector {
        dgid,
        dmac: guest.mac(),
        vlan: NO_VLAN.into(),
        sgid_index: u16::from(dgid[0] == 0).into(),
        hop_limit: 64,
        ..AddressVector::default()
    };
    DatagramSeg { av, dest_qpn: qpn.into(), qkey: QKEY.into() }
}

pub(crate) fn datagram(data: &[Sge], to: DatagramSeg) -> Wr {
    Wr::new(Opcode::Send, data).body(to.as_bytes())
}

#[test]
fn a_datagram_arrives_behind_its_network_header() {
    for in_device in [false, true] {
        let setup = Setup { kind: Type::Ud, in_device, ..Setup::default() };
        let mut p = Pair::datagrams(World::default(), setup);
        // The header ends within a segment, the data spans two.
        let places = [p.b.sge(0, 30), p.b.sge(1000, 50), p.b.sge(2000, 100)];
        p.b.post_recv(77, &places);
        p.a.fill(5, b"a message of more than forty bytes, in pieces");
        let mut wr = datagram(&[p.a.sge(5, 20), p.a.sge(25, 25)], p.there());
        (wr.opcode, wr.imm) = (Opcode::SendImm as u8, *b"imm!");
        assert_eq!(p.send(&wr), Status::Success);
        let got = p.received().expect("received");
        assert_eq!((status(&got), got.wr_id.get(), got.qpn.get()), (Status::Success, 77, p.b.qpn));
        assert_eq!((got.byte_len.get(), got.src_qpn.get()), (GRH_LEN + 45, p.a.qpn));
        assert_eq!((got.imm, got.smac), (*b"imm!", p.ga.mac()));
        assert_eq!(got.flags.get(), (CqeFlags::IMM | CqeFlags::GRH | CqeFlags::IPV4).bits());
        let mut all = p.b.bytes(0, 30);
        all.extend(p.b.bytes(1000, 50));
        all.extend(p.b.bytes(2000, 5));
        assert_eq!(all[..20], [0; 20]);
        assert_eq!(all[20], 0x45);
        assert_eq!(all[32..40], [10, 9, 0, 1, 10, 9, 0, 2]);
        assert_eq!(all[40..], *b"a message of more than forty bytes, in pieces");
        assert_eq!(p.b.bytes(2005, 95), [0; 95]);
    }
}

/// The memory of a receive that a datagram does not fill is not checked.
#[test]
fn a_datagram_needs_the_memory_that_it_fills() {
    let mut p = Pair::ud();
    let mut beyond = p.b.sge(1000, 100);
    beyond.lkey = 0xdead_0000.into();
    p.a.fill(0, b"datagram");
    let wr = datagram(&[p.a.sge(0, 8)], p.there());
    for (room, expected) in [(48, Status::Success), (47, Status::LocProtErr)] {
        p.b.post_recv(5, &[p.b.sge(0, room), beyond]);
        assert_eq!(p.send(&wr), Status::Success);
        assert_eq!(status(&p.received().expect("received")), expected, "room of {room}");
    }
}

#[test]
fn ipv6_inline_and_vlan() {
    let mut p = Pair::ud();
    for (guest, number) in [(&p.ga, 1), (&p.gb, 2)] {
        let entry = SetGid::set(3, ipv6(100 + number), guest.mac(), 42);
        guest.command::<command::SetGid>(&entry).expect("SET_GID");
    }
    p.expect(64);
    let mut to = path(&p.gb, p.b.qpn, ipv6(2));
    let wr = Wr { inline: Some(b"inline".to_vec()), ..datagram(&[], to) };
    assert_eq!(p.send(&wr), Status::Success);
    let got = p.received().expect("received");
    assert_eq!(got.flags.get(), CqeFlags::GRH.bits());
    let bytes = p.b.bytes(0, 46);
    assert_eq!((bytes[0] >> 4, bytes[6]), (6, 17));
    assert_eq!((&bytes[8..24], &bytes[24..40]), (&ipv6(1)[..], &ipv6(2)[..]));
    assert_eq!(bytes[40..], *b"inline");
    // To an address on a VLAN.
    p.expect(64);
    to.av.dgid = ipv6(102);
    to.av.sgid_index = 3.into();
    assert_eq!(p.send(&datagram(&[], to)), Status::Success);
    let got = p.received().expect("received");
    assert_eq!(got.flags.get(), (CqeFlags::GRH | CqeFlags::VLAN).bits());
    assert_eq!((got.vlan.get(), got.byte_len.get()), (42, GRH_LEN));
    // A datagram does not get from a VLAN to another VLAN, or to an untagged network.
    p.expect(64);
    p.drops(DatagramSeg { av: AddressVector { sgid_index: 0.into(), ..to.av }, ..to });
    p.drops(DatagramSeg { av: AddressVector { dgid: ipv6(2), ..to.av }, ..to });
}

#[test]
fn what_cannot_be_delivered_is_dropped() {
    let mut p = Pair::ud();
    p.expect(64);
    let good = p.there();
    let av = |change: &dyn Fn(&mut AddressVector)| {
        let mut to = good;
        change(&mut to.av);
        to
    };
    p.drops(DatagramSeg { qkey: (QKEY + 1).into(), ..good });
    p.drops(DatagramSeg { dest_qpn: 999.into(), ..good });
    p.drops(DatagramSeg { dest_qpn: u32::MAX.into(), ..good });
    p.drops(DatagramSeg { dest_qpn: GSI_QPN.into(), ..good });
    p.drops(av(&|av| av.dmac = [9; 6]));
    p.drops(av(&|av| av.dgid = ipv4(3)));
    p.drops(av(&|av| av.sgid_index = 2.into()));
    p.drops(av(&|av| av.sgid_index = u16::MAX.into()));
    // A connected QP receives no datagram.
    let connected = Endpoint::new(&p.gb, Setup::default());
    p.drops(DatagramSeg { dest_qpn: connected.qpn.into(), ..good });
    assert_eq!(p.a.state(), State::Rts);
}

#[test]
fn a_receive_that_is_too_short_waits_for_the_next() {
    let mut p = Pair::ud();
    let data = [p.a.sge(0, 100)];
    let (there, short) = (p.there(), p.b.sge(0, 139));
    // The peer has no receive.
    assert_eq!(p.send(&datagram(&data, there)), Status::Success);
    p.b.post_recv(1, &[short]);
    assert_eq!(p.send(&datagram(&data, there)), Status::Success);
    assert!(p.received().is_none());
    assert_eq!(lost(&p.ga, &p.gb), 2);
    assert_eq!(p.send(&datagram(&[p.a.sge(0, 99)], there)), Status::Success);
    let got = p.received().expect("received");
    assert_eq!((got.wr_id.get(), got.byte_len.get(), got.wqe_index.get()), (1, 139, 0));
    assert_eq!(p.b.state(), State::Rts);
}

#[test]
fn the_longest_datagram() {
    let mut p = Pair::ud();
    let there = p.there();
    p.expect(MAX_DATAGRAM);
    assert_eq!(p.send(&datagram(&[p.a.sge(0, MAX_DATAGRAM)], there)), Status::Success);
    assert_eq!(p.received().expect("received").byte_len.get(), MAX_DATAGRAM + GRH_LEN);
    assert_eq!(p.send(&datagram(&[p.a.sge(0, MAX_DATAGRAM + 1)], there)), Status::LocLenErr);
}

/// A program may destroy its QP right after it has posted: nobody acknowledges a datagram.
#[test]
fn what_was_posted_leaves_before_its_queue_ends() {
    for in_device in [false, true] {
        let setup = Setup { kind: Type::Ud, in_device, ..Setup::default() };
        let mut p = Pair::datagrams(World::default(), setup);
        for _ in 0..8 {
            p.expect(64);
        }
        let wr = datagram(&[p.a.sge(0, 8)], p.there()).flags(Flags::empty());
        for _ in 0..8 {
            p.a.post_send(&wr);
        }
        p.ga.on_object(Admin::DestroyQp, p.a.qpn).expect("DESTROY_QP");
        p.settle();
        let arrived = std::iter::from_fn(|| p.b.recv_cq.poll()).count();
        assert_eq!(arrived, 8);
    }
}

#[test]
fn the_senders_own_queue_key() {
    let mut p = Pair::ud();
    p.expect(64);
    let there = DatagramSeg { qkey: (QKEY_OWN | 5).into(), ..p.there() };
    assert_eq!(p.send(&datagram(&[], there)), Status::Success);
    assert!(p.received().is_some());
    // The queue key can be changed at both ends.
    let attr = Attr { state: State::Rts as u8, qkey: 77.into(), ..Attr::default() };
    let mask = AttrMask::STATE.union(AttrMask::QKEY);
    p.ga.modify_qp(p.a.qpn, mask, &attr).expect("MODIFY_QP");
    p.expect(64);
    assert_eq!(p.send(&datagram(&[], there)), Status::Success);
    assert!(p.received().is_none());
    p.gb.modify_qp(p.b.qpn, mask, &attr).expect("MODIFY_QP");
    assert_eq!(p.send(&datagram(&[], there)), Status::Success);
    assert!(p.received().is_some());
}

#[test]
fn a_send_error_stops_the_send_queue_alone() {
    let mut p = Pair::ud();
    let there = p.there();
    let foreign = Sge { lkey: 0xdead.into(), ..p.a.sge(0, 8) };
    p.a.store_send(&datagram(&[foreign], there).flags(Flags::empty()));
    p.a.store_send(&datagram(&[], there).id(2));
    p.a.ring();
    p.settle();
    let completed: Vec<_> =
        std::iter::from_fn(|| p.a.send_cq.poll()).map(|cqe| status(&cqe)).collect();
    assert_eq!(completed, [Status::LocProtErr, Status::WrFlushErr]);
    assert_eq!(p.a.state(), State::Sqe);
    // Requests that are posted now are flushed, too. Receives still work.
    assert_eq!(p.send(&datagram(&[], there)), Status::WrFlushErr);
    let place = p.a.sge(0, 100);
    p.a.post_recv(9, &[place]);
    let back = path(&p.ga, p.a.qpn, ipv4(1));
    p.b.post_send(&datagram(&[], back));
    p.settle();
    assert_eq!(p.a.recv_cq.poll().expect("received").wr_id.get(), 9);
    // MODIFY_QP makes the send queue usable again.
    p.a.set_state(State::Rts);
    p.expect(64);
    assert_eq!(p.send(&datagram(&[], there)), Status::Success);
    assert!(p.received().is_some());
    assert!(p.ga.drain_events().is_empty());
}

#[test]
fn malformed_entries() {
    for opcode in [Opcode::Write, Opcode::Read, Opcode::FetchAdd, Opcode::SendInv] {
        let mut p = Pair::ud();
        let wr = Wr { opcode: opcode as u8, ..datagram(&[p.a.sge(0, 8)], p.there()) };
        assert_eq!(p.send(&wr), Status::LocQpOpErr, "{opcode:?}");
        assert_eq!(p.a.state(), State::Sqe);
    }
}

#[test]
fn a_faulty_receive_fails_its_queue_pair() {
    let mut p = Pair::ud();
    let there = p.there();
    let foreign = Sge { lkey: 0xdead.into(), ..p.b.sge(0, 100) };
    p.b.post_recv(1, &[foreign]);
    assert_eq!(p.send(&datagram(&[], there)), Status::Success);
    assert_eq!(status(&p.received().expect("completed")), Status::LocProtErr);
    assert_eq!(p.b.state(), State::Err);
    assert_eq!(p.send(&datagram(&[], there)), Status::Success);
}

#[test]
fn to_oneself_and_in_order() {
    let world = World::default();
    let guest = world.guest(1);
    let mut e = Endpoint::new(&guest, Setup { kind: Type::Ud, ..Setup::default() });
    set_gids(&guest, 1);
    ready(&e);
    let here = path(&guest, e.qpn, ipv4(1));
    for n in 0..4u32 {
        let place = e.sge(u64::from(n) * 100, 48);
        e.post_recv(n.into(), &[place]);
        let data = format!("number {n}").into_bytes();
        e.store_send(&Wr { inline: Some(data), ..datagram(&[], here) });
    }
    e.ring();
    world.settle(&[&guest]);
    for n in 0..4u32 {
        assert_eq!(status(&e.send_cq.poll().expect("sent")), Status::Success);
        assert_eq!(e.recv_cq.poll().expect("received").wr_id.get(), u64::from(n));
        let text = e.bytes(u64::from(n) * 100 + 40, 8);
        assert_eq!(text, format!("number {n}").into_bytes());
    }
}

/// Shows: datagrams: the general services of the connection manager
#[test]
fn the_general_services() {
    let setup =
        Setup { kind: Type::Gsi, kernel: true, flags: QpFlags::SIGNAL_ALL, ..Setup::default() };
    let mut p = Pair::datagrams(World::default(), setup);
    assert_eq!((p.a.qpn, p.b.qpn), (GSI_QPN, GSI_QPN));
    p.expect(256);
    assert_eq!(p.send(&datagram(&[p.a.sge(0, 256)], p.there())), Status::Success);
    assert_eq!(p.received().expect("received").src_qpn.get(), GSI_QPN);
    // A port has one GSI QP, and only the kernel may create it.
    let again = Setup::default().qp(&p.ga);
    let again = vrnic_abi::admin::CreateQp {
        pdn: p.a.pdn.into(),
        send_cqn: p.a.send_cq.cqn.into(),
        recv_cqn: p.a.recv_cq.cqn.into(),
        qp_type: Type::Gsi as u8,
        ..again
    };
    assert_eq!(p.ga.create_qp(&again), Err(Refused(AdminStatus::NoResource, 0)));
    let user = Endpoint::new(&p.ga, Setup::default());
    let foreign = vrnic_abi::admin::CreateQp {
        pdn: user.pdn.into(),
        send_cqn: user.send_cq.cqn.into(),
        recv_cqn: user.recv_cq.cqn.into(),
        uar: user.uar.into(),
        ..again
    };
    assert_eq!(p.ga.create_qp(&foreign), Err(Refused(AdminStatus::Permission, 0)));
    // After it was destroyed, another one can be created.
    p.ga.on_object(Admin::DestroyQp, GSI_QPN).expect("DESTROY_QP");
    assert_eq!(p.ga.query_qp(GSI_QPN).err(), Some(Refused(AdminStatus::NotFound, 0)));
    assert_eq!(p.ga.create_qp(&again).expect("CREATE_QP").0, GSI_QPN);
    assert!(!p.ga.drain_events().iter().any(|(kind, _)| *kind == Kind::QpFatal));
}

/// The MTU of the sender's port is the maximum length of a datagram. A port with a smaller MTU does
/// not receive a longer one.
#[test]
fn no_datagram_is_longer_than_the_mtu() {
    let set = |guest: &Guest, mtu| guest.command::<command::SetPort>(&SetPort::new(mtu, true));
    for (mtu, bytes) in [(1, 256), (3, 1024), (5, 4096)] {
        let mut p = Pair::ud();
        let there = p.there();
        assert_eq!(set(&p.ga, mtu), Ok(()));
        p.expect(8192);
        assert_eq!(p.send(&datagram(&[p.a.sge(0, bytes)], there)), Status::Success);
        assert_eq!(p.received().expect("received").byte_len.get(), GRH_LEN + bytes);
        p.expect(8192);
        assert_eq!(p.send(&datagram(&[p.a.sge(0, bytes + 1)], there)), Status::LocLenErr);
        assert!(p.received().is_none());
    }
    let mut p = Pair::ud();
    let there = p.there();
    assert_eq!(set(&p.gb, 2), Ok(()));
    p.expect(8192);
    assert_eq!(p.send(&datagram(&[p.a.sge(0, 513)], there)), Status::Success);
    assert!(p.received().is_none());
    assert_eq!(p.send(&datagram(&[p.a.sge(0, 512)], there)), Status::Success);
    assert!(p.received().is_some());
    for mtu in [6, 255] {
        assert_eq!(set(&p.ga, mtu), Err(Refused(AdminStatus::BadParam, 0)));
    }
}

/// The path MTU of a connection is not larger than the MTU of the port.
#[test]
fn no_path_mtu_is_larger_than_the_ports() {
    let world = World::default();
    let guest = world.guest(1);
    guest.command::<command::SetPort>(&SetPort::new(3, true)).expect("SET_PORT");
    let endpoint = Endpoint::new(&guest, Setup::default());
    let mut attr = attributes(guest.mac(), endpoint.qpn);
    attr.state = State::Init as u8;
    guest.modify_qp(endpoint.qpn, qp::INIT, &attr).expect("to Init");
    (attr.state, attr.path_mtu) = (State::Rtr as u8, 4);
    let offset = std::mem::offset_of!(Attr, path_mtu) as u32;
    let refused = guest.modify_qp(endpoint.qpn, qp::RTR, &attr);
    assert_eq!(refused, Err(Refused(AdminStatus::BadParam, offset)));
    attr.path_mtu = 3;
    assert_eq!(guest.modify_qp(endpoint.qpn, qp::RTR, &attr), Ok(()));
}

/// The MTU of the network limits the MTU of the port, whatever the driver sets, also after a reset.
#[test]
fn the_network_limits_the_ports_mtu() {
    let world = World::default();
    let guest = world.guest(1);
    let adapter = Arc::clone(&guest.adapter);
    adapter.limit_mtu(Mtu::M1024);
    guest.command::<command::SetPort>(&SetPort::new(5, true)).expect("SET_PORT");
    assert_eq!(adapter.mtu(), 3);
    let endpoint = Endpoint::new(&guest, Setup::default());
    let mut attr = attributes(guest.mac(), endpoint.qpn);
    attr.state = State::Init as u8;
    guest.modify_qp(endpoint.qpn, qp::INIT, &attr).expect("to Init");
    (attr.state, attr.path_mtu) = (State::Rtr as u8, 4);
    assert!(guest.modify_qp(endpoint.qpn, qp::RTR, &attr).is_err());
    adapter.reset();
    assert_eq!(adapter.mtu(), 3);
    adapter.limit_mtu(Mtu::M256);
    assert_eq!(adapter.mtu(), 1);
    adapter.limit_mtu(Mtu::MAX);
    assert_eq!(adapter.mtu(), 5);
}
