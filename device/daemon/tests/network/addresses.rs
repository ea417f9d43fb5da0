//! Adapters with several MACs next to the stations of an Ethernet.
//!
//! Shows: network

use std::cell::RefCell;
use std::time::{Duration, Instant};

use vrnic_abi::admin::{SetGid, command};
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::qp::{Setup, attributes};
use vrnic_testdriver::vmm::daemon::mac;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;

use crate::common::ethernet::{BROADCAST, STRANGER, frame, receive, send};
use crate::common::joined::Joined;
use crate::common::switch::{Folder, wait_for_drops};
use crate::common::trunk::Peer;
use crate::common::{Span, write_and_read};

/// The index of the second address in each GID table.
const SECOND: u16 = 1;
/// Second addresses of guests.
const M: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];
/// A station on another daemon.
const REMOTE: [u8; 6] = [2, 0, 0, 0, 0, 0x88];

/// Gives a guest a second address.
fn name(guest: &Guest, mac: [u8; 6]) {
    guest.set_gid(SECOND, mac).expect("SET_GID");
}

/// Returns whether a QP can be connected with the second address of its guest.
fn connects(end: &Endpoint) -> bool {
    let mut attr = attributes(mac(0), 99);
    attr.av.sgid_index = SECOND.into();
    end.accepts(attr)
}

#[test]
fn packets_between_daemons_have_the_macs_of_their_gids() {
    let mut joined = Joined::by_trunk();
    for (guest, mac) in joined.guests.iter().zip(M) {
        name(guest, mac);
    }
    let [mut a, b] = joined.guests.each_ref().map(|guest| Endpoint::new(guest, Setup::default()));
    a.connect(M[1], b.qpn, |attr| attr.av.sgid_index = SECOND.into());
    b.connect(M[0], a.qpn, |attr| attr.av.sgid_index = SECOND.into());
    write_and_read(&mut a, &b, Span { len: 300_000, from: 7, to: 93 });
    joined.check();
}

#[test]
fn a_guest_does_not_receive_the_messages_for_a_station_behind_an_uplink() {
    let folder = Folder::new();
    let mut daemon = folder.daemon(2, &[("--uplink", "name=up,listen=@t")]);
    let [ga, gb] = [0, 1].map(|number| daemon.ready_guest(number));
    let mut netdev = ga.cable.lock().take().expect("a network card");
    let mut peer = Peer::greeted(&folder.path("t"));
    let heard = frame(BROADCAST, REMOTE, 60);
    peer.send(&heard);
    assert_eq!(receive(&mut netdev), heard);
    name(&gb, REMOTE);
    assert!(!connects(&Endpoint::new(&gb, Setup::default())), "it uses the station's address");
    let mut a = Endpoint::new(&ga, Setup::default());
    a.connect(REMOTE, 99, |_| {});
    a.post_send(&Wr::new(Opcode::Send, &[]));
    let sent = peer.receive();
    assert_eq!((&sent[..6], &sent[6..12]), (&REMOTE[..], &mac(0)[..]));
    daemon.check();
}

#[test]
fn an_address_belongs_to_the_guest_from_which_it_is_heard() {
    let folder = Folder::new();
    let mut daemon = folder.daemon(2, &[]);
    let guests = [0, 1].map(|number| daemon.ready_guest(number));
    guests.iter().for_each(|guest| name(guest, M[0]));
    let owners =
        || guests.each_ref().map(|guest| connects(&Endpoint::new(guest, Setup::default())));
    assert_eq!(owners(), [true, false], "the first one has claimed it first");
    let mut netdev = guests[1].cable.lock().take().expect("a network card");
    send(&mut netdev, &frame(BROADCAST, M[0], 60));
    wait::until("the second guest's turn", || (owners() == [false, true]).then_some(()));
    daemon.check();
}

/// Messages that are copied bring no frames to the switch.
///
/// Shows: network: a station that only uses RDMA keeps its address
#[test]
fn a_guest_that_moves_messages_keeps_an_address_that_it_has_named() {
    /// Longer than the time after which a guest can take an address.
    const SILENCE: Duration = Duration::from_millis(2200);
    let folder = Folder::new();
    let mut daemon = folder.daemon(3, &[("--monitor", "@m")]);
    let guests = [0, 1].map(|number| daemon.ready_guest(number));
    guests.iter().for_each(|guest| name(guest, M[0]));
    let [mut owner, mut other] =
        guests.each_ref().map(|guest| guest.cable.lock().take().expect("a network card"));
    let mut peer = daemon.plug(2);
    daemon.wait_for_log("link up port=\"f2\"");
    let claim = frame(BROADCAST, M[0], 60);
    send(&mut owner, &claim);
    assert_eq!(receive(&mut peer), claim);
    let [mut a, b] = guests.each_ref().map(|guest| Endpoint::new(guest, Setup::default()));
    a.connect(mac(1), b.qpn, |attr| attr.av.sgid_index = SECOND.into());
    b.connect(M[0], a.qpn, |_| {});
    let start = Instant::now();
    while start.elapsed() < SILENCE {
        write_and_read(&mut a, &b, Span { len: 100, from: 0, to: 7 });
        std::thread::sleep(Duration::from_millis(20));
    }
    // The first try shows that there were messages, and the second one that there were more.
    for dropped in 1..=2 {
        send(&mut other, &claim);
        wait_for_drops(&folder.path("m"), "f1", "forged", dropped);
        write_and_read(&mut a, &b, Span { len: 100, from: 0, to: 7 });
    }
    for _ in 0..3 {
        send(&mut other, &claim);
        std::thread::sleep(SILENCE);
    }
    assert_eq!(receive(&mut peer), claim, "nothing uses the address any more");
    daemon.check();
}

#[test]
fn a_guest_has_only_its_own_address_if_its_sources_are_checked() {
    let folder = Folder::new();
    for (number, source, connected) in
        [(0, "own", false), (1, "strict", true), (2, "own,addresses=02:00:00:00:01:01", true)]
    {
        let function = format!(
            "name=f{number},mac=52:54:00:00:01:0{number},socket=@{number}.sock,source={source}"
        );
        let mut daemon = folder.daemon(0, &[("--function", &function)]);
        daemon.wait_for_log("is ready for a VMM");
        let own = [0x52, 0x54, 0, 0, 1, number];
        let socket = folder.path(&format!("{number}.sock"));
        let guest = Guest::connect(&socket, own).expect("a VMM");
        guest.bring_up();
        name(&guest, M[0]);
        assert_eq!(connects(&Endpoint::new(&guest, Setup::default())), connected);
        daemon.check();
    }
}

#[test]
fn packets_reach_a_station_behind_the_network_card_of_the_same_guest() {
    let folder = Folder::new();
    let function = "name=n,mac=52:54:00:00:01:00,socket=@n.sock,net=@n,source=nested";
    let mut daemon = folder.daemon(0, &[("--function", function)]);
    daemon.wait_for_log("is ready for a VMM");
    let own = [0x52, 0x54, 0, 0, 1, 0];
    let guest = Guest::connect(&folder.path("n.sock"), own).expect("a VMM");
    let mut netdev = folder.plug("n");
    guest.bring_up();
    // The switch learns where the station is.
    send(&mut netdev, &frame(BROADCAST, STRANGER, 60));
    let mut a = Endpoint::new(&guest, Setup::default());
    a.connect(STRANGER, 99, |_| {});
    a.post_send(&Wr::new(Opcode::Send, &[]));
    let sent = receive(&mut netdev);
    assert_eq!((&sent[..6], &sent[6..12]), (&STRANGER[..], &own[..]));
    daemon.check();
}

/// Both functions are of one guest, because one process connects to them. So each may use the
/// address of the other one, as the network cards of a bond do.
#[test]
fn an_address_follows_the_network_card_that_sends_with_it_within_a_guest() {
    let folder = Folder::new();
    let mut daemon = folder.daemon(3, &[]);
    let guests = [0, 1].map(|number| daemon.ready_guest(number));
    let [mut first, mut second] =
        guests.each_ref().map(|guest| guest.cable.lock().take().expect("a network card"));
    let mut peer = daemon.plug(2);
    daemon.wait_for_log("link up port=\"f2\"");
    name(&guests[1], mac(0));
    assert!(!connects(&Endpoint::new(&guests[1], Setup::default())), "the first function sends");
    for (card, other, moved) in [(1, 0, true), (0, 1, false), (1, 0, true)] {
        let cards = [&mut first, &mut second];
        let sent = frame(BROADCAST, mac(0), 60);
        send(cards[card], &sent);
        assert_eq!([receive(&mut peer), receive(cards[other])], [sent.clone(), sent]);
        let answer = frame(mac(0), mac(2), 61);
        send(&mut peer, &answer);
        assert_eq!(receive(cards[card]), answer, "by card {card}");
        assert_eq!(connects(&Endpoint::new(&guests[1], Setup::default())), moved);
    }
    // The functions of the peer's guest are others, because no VMM is connected there.
    send(&mut peer, &frame(mac(1), mac(0), 62));
    let last = frame(mac(1), mac(2), 63);
    send(&mut peer, &last);
    assert_eq!(receive(&mut second), last);
    daemon.check();
}

/// The driver of an iWARP adapter names the MACs of its guest, whether there are connections or
/// not.
#[test]
fn an_iwarp_guest_sends_only_with_the_macs_that_its_driver_has_named() {
    let folder = Folder::new();
    let function = "name=n,mac=52:54:00:00:01:00,socket=@n.sock,net=@n,personality=iwarp";
    let mut daemon = folder.daemon(1, &[("--function", function), ("--monitor", "@m")]);
    let (mut peer, netdev) = (daemon.plug(0), folder.plug("n"));
    daemon.wait_for_log("link up port=\"n\"");
    let own = [0x52, 0x54, 0, 0, 1, 0];
    let guest = Guest::connect(&folder.path("n.sock"), own).expect("a VMM");
    guest.bring_up();
    let set = |params| guest.command::<command::SetGid>(&params).expect("SET_GID");
    let netdev = RefCell::new(netdev);
    let sends = |from: [u8; 6]| {
        let sent = frame(BROADCAST, from, 60);
        send(&mut netdev.borrow_mut(), &sent);
        sent
    };
    let mut dropped = 0;
    let mut is_forged = |from| {
        let _sent = sends(from);
        dropped += 1;
        wait_for_drops(&folder.path("m"), "n", "forged", dropped);
    };
    is_forged(M[0]);
    set(SetGid::of_mac(SECOND, M[0]));
    // The MAC of another function.
    set(SetGid::of_mac(SECOND + 1, mac(0)));
    is_forged(mac(0));
    for from in [M[0], own] {
        let sent = sends(from);
        assert_eq!(receive(&mut peer), sent);
    }
    is_forged(M[1]);
    set(SetGid::clear(SECOND));
    is_forged(M[0]);
    set(SetGid::of_mac(SECOND, M[0]));
    let sent = sends(M[0]);
    assert_eq!(receive(&mut peer), sent);
    guest.reset();
    is_forged(M[0]);
    daemon.check();
}
