//! Multicast groups: which QPs receive a message to a group.
//!
//! Shows: datagrams

use std::sync::Arc;

use vrnic_abi::admin::{
    CreateQp, Mcast, Opcode as Admin, QpOptions, SetGid, Status as AdminStatus, command,
};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{AddressVector, GRH_LEN, MULTICAST_QPN, NO_VLAN, Type};
use vrnic_abi::sq::DatagramSeg;
use vrnic_adapter::ethernet::Frame;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::qp::Setup;

use crate::bus::{Endpoint, Guest};
use crate::cable::Plug;
use crate::messages::datagrams::{QKEY, datagram, ipv4, ready};
use crate::world::{Pair, World};

/// The GID of the group 239.1.2.3.
pub(crate) const GROUP: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];
/// ff0e::beef.
pub(crate) const GROUP6: [u8; 16] = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xbe, 0xef];

/// Returns the path to a group.
pub(crate) fn to(group: [u8; 16]) -> DatagramSeg {
    let dmac = match group {
        GROUP => [0x01, 0x00, 0x5e, 1, 2, 3],
        _ => [0x33, 0x33, group[12], group[13], group[14], group[15]],
    };
    let av = AddressVector {
        dgid: group,
        dmac,
        vlan: NO_VLAN.into(),
        sgid_index: u16::from(group == GROUP).into(),
        hop_limit: 1,
        ..AddressVector::default()
    };
    DatagramSeg { av, dest_qpn: MULTICAST_QPN.into(), qkey: QKEY.into() }
}

pub(crate) fn attach(guest: &Guest, qpn: u32, group: [u8; 16]) -> Result<(), Refused> {
    guest.command::<command::AttachMcast>(&Mcast::new(qpn, group))
}

pub(crate) fn detach(guest: &Guest, qpn: u32, group: [u8; 16]) -> Result<(), Refused> {
    guest.command::<command::DetachMcast>(&Mcast::new(qpn, group))
}

/// Sends 5 bytes to a group. Returns which of A and B have received them, with the network header.
fn members(p: &mut Pair, to: DatagramSeg) -> [bool; 2] {
    p.a.post_recv(8, &[p.a.sge(4096, 100)]);
    p.expect(60);
    p.a.fill(0, b"hello");
    assert_eq!(p.send(&datagram(&[p.a.sge(0, 5)], to)), Status::Success);
    let own = p.a.recv_cq.poll();
    if own.is_some() {
        assert_eq!(p.a.bytes(4096 + 40, 5), b"hello");
    }
    let other = p.received();
    if let Some(cqe) = other {
        assert_eq!((cqe.byte_len.get(), cqe.src_qpn.get()), (GRH_LEN + 5, p.a.qpn));
        assert_eq!(p.b.bytes(24, 16)[12..], to.av.dgid[12..]);
        assert_eq!(p.b.bytes(40, 5), b"hello");
    }
    [own.is_some(), other.is_some()]
}

#[test]
fn members_receive_and_nobody_else() {
    for group in [GROUP, GROUP6] {
        let mut p = Pair::ud();
        assert_eq!(members(&mut p, to(group)), [false, false]);
        assert_eq!(attach(&p.gb, p.b.qpn, group), Ok(()));
        assert_eq!(members(&mut p, to(group)), [false, true]);
        // The sender receives its message, too, if it is a member; once, even if it has joined
        // twice.
        assert_eq!(attach(&p.ga, p.a.qpn, group), Ok(()));
        assert_eq!(attach(&p.ga, p.a.qpn, group), Ok(()));
        assert_eq!(members(&mut p, to(group)), [true, true]);
        assert!(p.a.recv_cq.poll().is_none());
        assert_eq!(detach(&p.gb, p.b.qpn, group), Ok(()));
        assert_eq!(members(&mut p, to(group)), [true, false]);
        assert_eq!(detach(&p.gb, p.b.qpn, group), Err(Refused(AdminStatus::NotFound, 0)));
    }
}

#[test]
fn all_members_of_an_adapter_receive() {
    let mut p = Pair::ud();
    let setup = Setup { kind: Type::Ud, ..Setup::default() };
    let mut more: Vec<_> = (0..5).map(|_| Endpoint::new(&p.gb, setup)).collect();
    for endpoint in &mut more {
        ready(endpoint);
        assert_eq!(attach(&p.gb, endpoint.qpn, GROUP), Ok(()));
        endpoint.post_recv(3, &[endpoint.sge(0, 100)]);
    }
    // A member without a receive loses the message. The other members receive it.
    let lazy = Endpoint::new(&p.gb, setup);
    ready(&lazy);
    assert_eq!(attach(&p.gb, lazy.qpn, GROUP), Ok(()));
    assert_eq!(members(&mut p, to(GROUP)), [false, false]);
    for endpoint in &mut more {
        assert!(endpoint.recv_cq.poll().is_some());
        assert_eq!(endpoint.bytes(40, 5), b"hello");
    }
}

#[test]
fn what_the_filter_keeps_out() {
    let mut p = Pair::ud();
    assert_eq!(attach(&p.gb, p.b.qpn, GROUP), Ok(()));
    let good = to(GROUP);
    let av = good.av;
    let spoiled = [
        ("another group", to(GROUP6)),
        ("another queue key", DatagramSeg { qkey: 1.into(), ..good }),
        ("a QP's own number", DatagramSeg { dest_qpn: p.b.qpn.into(), ..good }),
        (
            "an address that is not a group's",
            DatagramSeg { av: AddressVector { dgid: ipv4(2), ..av }, ..good },
        ),
        ("no source", DatagramSeg { av: AddressVector { sgid_index: 77.into(), ..av }, ..good }),
    ];
    for (what, to) in spoiled {
        assert_eq!(members(&mut p, to), [false, false], "{what}");
    }
    // A message on a VLAN that B has not joined, and a message while the link of B is down.
    let mac = p.ga.mac();
    let tagged = SetGid::set(7, ipv4(1), mac, 5);
    p.ga.command::<command::SetGid>(&tagged).expect("SET_GID");
    let on_vlan =
        DatagramSeg { av: AddressVector { sgid_index: 7.into(), vlan: 5.into(), ..av }, ..good };
    assert_eq!(members(&mut p, on_vlan), [false, false]);
    let joined = SetGid::set(9, ipv4(2), p.gb.mac(), 5);
    p.gb.command::<command::SetGid>(&joined).expect("SET_GID");
    assert_eq!(members(&mut p, on_vlan), [false, true]);
    p.gb.adapter.set_link(false);
    assert_eq!(members(&mut p, good), [false, false]);
    p.gb.adapter.set_link(true);
    assert_eq!(members(&mut p, good), [false, true]);
}

#[test]
fn a_destroyed_queue_pair_is_no_member() {
    let mut p = Pair::ud();
    let setup = Setup { kind: Type::Ud, ..Setup::default() };
    let gone = Endpoint::new(&p.gb, setup);
    assert_eq!(attach(&p.gb, gone.qpn, GROUP), Ok(()));
    assert!(p.gb.on_object(Admin::DestroyQp, gone.qpn).is_ok());
    assert_eq!(detach(&p.gb, gone.qpn, GROUP), Err(Refused(AdminStatus::NotFound, 0)));
    assert_eq!(members(&mut p, to(GROUP)), [false, false]);
}

#[test]
fn refused_memberships() {
    let p = Pair::ud();
    let gid = std::mem::offset_of!(Mcast, gid) as u32;
    let qpn = std::mem::offset_of!(Mcast, qpn) as u32;
    assert_eq!(attach(&p.ga, p.a.qpn, ipv4(1)), Err(Refused(AdminStatus::BadParam, gid)));
    assert_eq!(attach(&p.ga, p.a.qpn, [0; 16]), Err(Refused(AdminStatus::BadParam, gid)));
    assert_eq!(attach(&p.ga, 0x1234, GROUP), Err(Refused(AdminStatus::NotFound, 0)));
    let connected = Endpoint::new(&p.ga, Setup::default());
    assert_eq!(attach(&p.ga, connected.qpn, GROUP), Err(Refused(AdminStatus::BadParam, qpn)));
}

/// A daemon's switch also offers the packet, which is for members elsewhere, to the daemon's own
/// adapters. Members there must not receive it twice.
///
/// Shows: datagrams: the packet of a datagram to a group arrives once within a daemon
#[test]
fn the_packet_of_a_member_of_this_daemon_is_no_second_message() {
    let mut p = Pair::ud();
    let plug = Plug::default();
    p.world.fabric.attach(Arc::new(plug.clone()));
    assert_eq!(attach(&p.gb, p.b.qpn, GROUP), Ok(()));
    assert_eq!(members(&mut p, to(GROUP)), [false, true]);
    let frames = std::mem::take(&mut *plug.waiting.lock());
    let [frame] = &frames[..] else { panic!("{frames:?}") };
    let mut offered = |bytes: Vec<u8>| {
        p.expect(60);
        let _not_roce = p.gb.adapter.offer(Frame::new(bytes));
        p.settle();
        p.received().is_some()
    };
    assert!(!offered(frame.bytes().to_vec()));
    let mut from_elsewhere = frame.bytes().to_vec();
    from_elsewhere[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 99]);
    assert!(offered(from_elsewhere));
}

#[test]
fn as_many_groups_as_promised_and_no_more() {
    let p = Pair::ud();
    let groups = p.ga.caps().max_mcast_groups.get();
    let group = |n: u32| {
        let mut group = GROUP6;
        group[8..12].copy_from_slice(&n.to_be_bytes());
        group
    };
    for n in 0..groups {
        assert_eq!(attach(&p.ga, p.a.qpn, group(n)), Ok(()));
    }
    assert_eq!(attach(&p.ga, p.a.qpn, group(groups)), Err(Refused(AdminStatus::NoResource, 0)));
    assert_eq!(detach(&p.ga, p.a.qpn, group(5)), Ok(()));
    assert_eq!(attach(&p.ga, p.a.qpn, group(groups)), Ok(()));
}

/// Datagrams of a QP that blocks its loopback reach only the members of other functions.
///
/// Shows: datagrams
#[test]
fn a_blocked_loopback_spares_the_own_function() {
    for options in [QpOptions::empty(), QpOptions::BLOCK_LOOPBACK] {
        let setup = Setup { kind: Type::Ud, options, ..Setup::default() };
        let mut p = Pair::datagrams(World::default(), setup);
        attach(&p.ga, p.a.qpn, GROUP).expect("attached");
        attach(&p.gb, p.b.qpn, GROUP).expect("attached");
        assert_eq!(members(&mut p, to(GROUP)), [options.is_empty(), true]);
    }
}

#[test]
fn only_datagrams_have_a_loopback_to_block() {
    let p = Pair::new();
    let params = CreateQp { options: QpOptions::BLOCK_LOOPBACK.bits(), ..p.a.params() };
    assert_eq!(p.ga.create_qp(&params).err(), Some(Refused(AdminStatus::BadParam, 43)));
}
