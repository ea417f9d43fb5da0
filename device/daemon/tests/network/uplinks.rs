//! Trunks between daemons, and ports without a function.
//!
//! Shows: network

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::fs::SealFlags;
use rustix::process::Signal;
use vrnic_testdriver::vmm::daemon::mac;
use vrnic_testdriver::wait;

use crate::common::ethernet::{BROADCAST, STRANGER, frame, nothing_comes, pass, receive, send};
use crate::common::switch::{Folder, port, wait_for_drops};
use crate::common::trunk::{CAPACITY, DATA, HEAD, HELLO, LEN, Peer, memory, seals};

/// A station on another daemon.
const REMOTE: [u8; 6] = [2, 0, 0, 0, 0, 0x88];

/// Two daemons, each with a function and a port for a guest without a function.
#[test]
fn a_trunk_joins_the_switches_of_two_daemons() {
    let folder = Folder::new();
    let mut left = folder.daemon(1, &[("--uplink", "name=up,listen=@trunk")]);
    let mut right = folder
        .daemon(0, &[("--uplink", "name=up,connect=@trunk"), ("--port", "name=guest,net=@guest")]);
    let (mut a, mut b) = (left.plug(0), folder.plug("guest"));
    for daemon in [&left, &right] {
        daemon.wait_for_log("link up port=\"up\"");
    }
    left.wait_for_log("link up port=\"f0\"");
    right.wait_for_log("link up port=\"guest\"");
    for len in [14, 60, 1514, 9018, 65_553] {
        let there = frame(REMOTE, mac(0), len);
        send(&mut a, &there);
        assert_eq!(receive(&mut b), there, "{len} bytes");
        let back = frame(mac(0), REMOTE, len);
        send(&mut b, &back);
        assert_eq!(receive(&mut a), back, "{len} bytes");
    }
    // With a VLAN tag, and to a multicast address.
    let mut tagged = frame(BROADCAST, REMOTE, 100);
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    send(&mut b, &tagged);
    assert_eq!(receive(&mut a), tagged);
    nothing_comes(&mut b);
    left.check();
    right.check();
}

#[test]
fn frames_of_all_lengths_come_whole_and_in_order() {
    let folder = Folder::new();
    let left = folder
        .daemon(0, &[("--uplink", "name=up,listen=@trunk"), ("--port", "name=guest,net=@left")]);
    let right = folder
        .daemon(0, &[("--uplink", "name=up,connect=@trunk"), ("--port", "name=guest,net=@right")]);
    let [mut a, mut b] = ["left", "right"].map(|name| folder.plug(name));
    for daemon in [&left, &right] {
        daemon.wait_for_log("link up port=\"up\"");
        daemon.wait_for_log("link up port=\"guest\"");
    }
    // Fewer bytes than a port's queue holds.
    for round in 0..10 {
        let lens = (0..300).map(|n| 14 + (n * 7919 + round * 31) % 5000);
        let frames: Vec<_> = lens.map(|len| frame(REMOTE, STRANGER, len)).collect();
        pass(&a, &mut b, &frames);
    }
    send(&mut b, &frame(STRANGER, REMOTE, 60));
    receive(&mut a);
}

/// Three daemons, each joined to the two others: every broadcast arrives once at each port.
#[test]
fn a_mesh_of_daemons_has_no_loop() {
    let folder = Folder::new();
    let daemons = [
        folder.daemon(
            0,
            &[
                ("--uplink", "name=b,listen=@ab"),
                ("--uplink", "name=c,listen=@ac"),
                ("--port", "name=g,net=@a"),
            ],
        ),
        folder.daemon(
            0,
            &[
                ("--uplink", "name=a,connect=@ab"),
                ("--uplink", "name=c,listen=@bc"),
                ("--port", "name=g,net=@b"),
            ],
        ),
        folder.daemon(
            0,
            &[
                ("--uplink", "name=a,connect=@ac"),
                ("--uplink", "name=b,connect=@bc"),
                ("--port", "name=g,net=@c"),
            ],
        ),
    ];
    let mut guests = ["a", "b", "c"].map(|name| folder.plug(name));
    for (daemon, ports) in daemons.iter().zip([["b", "c"], ["a", "c"], ["a", "b"]]) {
        for port in ports.iter().chain(&["g"]) {
            daemon.wait_for_log(&format!("link up port=\"{port}\""));
        }
    }
    for from in 0..3 {
        let source = [2, 0, 0, 0, 1, u8::try_from(from).expect("small")];
        let sent = frame(BROADCAST, source, 64);
        send(&mut guests[from], &sent);
        for (to, guest) in guests.iter_mut().enumerate() {
            if to != from {
                assert_eq!(receive(guest), sent);
            }
            nothing_comes(guest);
        }
    }
}

/// A chain of three daemons: the middle one forwards frames only if both of its uplinks allow it.
#[test]
fn frames_pass_from_uplink_to_uplink_only_if_both_are_told_to() {
    for (first, second, passes) in [("no", "no", false), ("yes", "no", false), ("yes", "yes", true)]
    {
        let folder = Folder::new();
        let (ab, bc) = (
            format!("name=ab,listen=@ab,transit={first}"),
            format!("name=bc,listen=@bc,transit={second}"),
        );
        let middle =
            folder.daemon(0, &[("--uplink", &ab), ("--uplink", &bc), ("--port", "name=g,net=@b")]);
        let ends = [("@ab", "@a"), ("@bc", "@c")].map(|(trunk, net)| {
            let (uplink, port) = (format!("name=up,connect={trunk}"), format!("name=g,net={net}"));
            folder.daemon(0, &[("--uplink", &uplink), ("--port", &port)])
        });
        let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| folder.plug(name));
        for port in ["ab", "bc", "g"] {
            middle.wait_for_log(&format!("link up port=\"{port}\""));
        }
        for end in &ends {
            end.wait_for_log("link up port=\"up\"");
            end.wait_for_log("link up port=\"g\"");
        }
        let sent = frame(BROADCAST, REMOTE, 64);
        send(&mut a, &sent);
        assert_eq!(receive(&mut b), sent);
        if passes {
            assert_eq!(receive(&mut c), sent);
            let back = frame(REMOTE, STRANGER, 64);
            send(&mut c, &back);
            assert_eq!(receive(&mut a), back);
        } else {
            nothing_comes(&mut c);
        }
    }
}

#[test]
fn an_uplink_cannot_take_a_functions_address() {
    let folder = Folder::new();
    let daemon = folder.daemon(1, &[("--uplink", "name=up,listen=@t"), ("--monitor", "@m")]);
    let mut a = daemon.plug(0);
    daemon.wait_for_log("link up port=\"f0\"");
    let mut peer = Peer::greeted(&folder.path("t"));
    peer.send(&frame(BROADCAST, mac(0), 60));
    daemon.wait_for_log("not an address of this port");
    wait_for_drops(&folder.path("m"), "up", "forged", 1);
    // Frames to the function still reach it.
    let sent = frame(mac(0), REMOTE, 61);
    peer.send(&sent);
    assert_eq!(receive(&mut a), sent);
}

/// A guest that uses the address of a station of the network as its source does not get the frames
/// of other guests for that station.
#[test]
fn a_guest_cannot_take_the_address_of_a_station_behind_an_uplink() {
    let folder = Folder::new();
    let nested = "name=n,mac=52:54:00:00:01:00,socket=@n.sock,net=@n,source=nested";
    let options = [("--function", nested), ("--uplink", "name=up,listen=@t"), ("--monitor", "@m")];
    let daemon = folder.daemon(1, &options);
    let (mut a, mut b) = (daemon.plug(0), folder.plug("n"));
    daemon.wait_for_log("link up port=\"n\"");
    let mut peer = Peer::greeted(&folder.path("t"));
    let heard = frame(BROADCAST, REMOTE, 60);
    peer.send(&heard);
    assert_eq!([receive(&mut a), receive(&mut b)], [heard.clone(), heard]);
    send(&mut b, &frame(BROADCAST, REMOTE, 61));
    wait_for_drops(&folder.path("m"), "n", "forged", 1);
    let sent = frame(REMOTE, mac(0), 62);
    send(&mut a, &sent);
    assert_eq!(peer.receive(), sent);
}

#[test]
fn a_guest_sends_with_other_addresses_only_if_it_may() {
    let folder = Folder::new();
    let function = |name: &str, more: &str| {
        format!("name={name},mac=52:54:00:00:01:0{name},socket=@{name}.sock,net=@{name},{more}")
    };
    let listed = function("1", "source=own,addresses=02:00:00:00:00:88");
    let (strict, nested) = (function("2", "source=strict"), function("3", "source=nested"));
    let options = [
        ("--function", &*listed),
        ("--function", &strict),
        ("--function", &nested),
        ("--monitor", "@m"),
    ];
    let daemon = folder.daemon(1, &options);
    let mut a = daemon.plug(0);
    for (name, last, others) in [("1", 1, vec![REMOTE]), ("2", 2, vec![]), ("3", 3, vec![STRANGER])]
    {
        let mut line = folder.plug(name);
        daemon.wait_for_log(&format!("link up port=\"{name}\""));
        for source in [REMOTE, STRANGER] {
            if !others.contains(&source) {
                send(&mut line, &frame(BROADCAST, source, 60));
            }
        }
        let forged = 2 - others.len() as u64;
        wait_for_drops(&folder.path("m"), name, "forged", forged);
        for source in [vec![[0x52, 0x54, 0, 0, 1, last]], others].concat() {
            let sent = frame(BROADCAST, source, 61);
            send(&mut line, &sent);
            assert_eq!(receive(&mut a), sent);
            let answer = frame(source, mac(0), 62);
            send(&mut a, &answer);
            assert_eq!(receive(&mut line), answer);
        }
    }
}

/// Shows: network
#[test]
fn a_storm_of_broadcasts_is_limited() {
    let folder = Folder::new();
    let limited = "name=s,mac=52:54:00:00:01:00,socket=@s.sock,net=@s,storm=100";
    let daemon = folder.daemon(1, &[("--function", limited), ("--monitor", "@m")]);
    let (mut a, mut s) = (daemon.plug(0), folder.plug("s"));
    daemon.wait_for_log("link up port=\"s\"");
    let own = [0x52, 0x54, 0, 0, 1, 0];
    for _ in 0..1000 {
        send(&mut s, &frame(BROADCAST, own, 60));
    }
    // Frames to a single station pass.
    let last = frame(mac(0), own, 61);
    send(&mut s, &last);
    let mut broadcasts = 0;
    while receive(&mut a) != last {
        broadcasts += 1;
    }
    assert!((10..500).contains(&broadcasts), "{broadcasts} of 1000 passed");
    wait_for_drops(&folder.path("m"), "s", "storm", 1000 - broadcasts);
}

#[test]
fn malformed_frames_are_dropped_and_counted() {
    let folder = Folder::new();
    let mut daemon = folder.daemon(1, &[("--uplink", "name=up,listen=@t"), ("--monitor", "@m")]);
    let mut a = daemon.plug(0);
    daemon.wait_for_log("link up port=\"f0\"");
    let mut peer = Peer::greeted(&folder.path("t"));
    let good = frame(mac(0), REMOTE, 61);
    for (faults, len) in (1..).zip([0, 13, 65_554, 100_000]) {
        peer.send_with_length(len as u64, &vec![0; len]);
        peer.send(&good);
        assert_eq!(receive(&mut a), good);
        wait_for_drops(&folder.path("m"), "up", "malformed", faults);
    }
    assert!(port(&folder.path("m"), "up")["up"] == true);
    daemon.check();
}

/// The log message about an invalid value, and the peer that writes the value.
type Lie = (&'static str, fn(&mut Peer));

/// Each invalid value in the shared memory ends the trunk, and has no other effect.
///
/// Shows: hostile: a peer that lies in the shared memory of a trunk loses its trunk
#[test]
fn a_peer_that_lies_loses_its_trunk() {
    let lies: [Lie; 11] = [
        ("a frame of 72 bytes, but", |peer| peer.send_with_length(72, &[0; 64])),
        ("a frame of 1048576 bytes, but", |peer| peer.send_with_length(CAPACITY, &[0; 64])),
        ("of 18446744073709551615", |peer| peer.send_with_length(u64::MAX, &[0; 64])),
        ("of 18446744073709551600", |peer| peer.send_with_length(u64::MAX - 15, &[0; 64])),
        ("a frame of 0 bytes, but", |peer| peer.publish(peer.head + 7)),
        ("went from 72 to 0", |peer| peer.publish(0)),
        ("went from 72 to 1048656", |peer| peer.publish(peer.head + CAPACITY + 8)),
        ("a message of 2 bytes", |peer| peer.message(&[0; 2])),
        ("a message of 5000 bytes", |peer| peer.message(&[0; 5000])),
        // The position up to which the peer has read. The daemon reads it when the ring is full.
        ("went from 0 to 18446744073709551615", |peer| peer.set_tail(u64::MAX)),
        ("went from 0 to 1048584", |peer| peer.set_tail(CAPACITY + 8)),
    ];
    for (log, lie) in lies {
        let folder = Folder::new();
        let mut daemon = folder.daemon(1, &[("--uplink", "name=up,listen=@t")]);
        let mut a = daemon.plug(0);
        daemon.wait_for_log("link up port=\"f0\"");
        let mut peer = Peer::greeted(&folder.path("t"));
        let sent = frame(mac(0), REMOTE, 61);
        peer.send(&sent);
        assert_eq!(receive(&mut a), sent, "{log}");
        lie(&mut peer);
        (0..40).for_each(|_| send(&mut a, &frame(REMOTE, mac(0), 40_000)));
        assert!(peer.is_ended(), "{log}");
        daemon.wait_for_log(log);
        let mut peer = Peer::greeted(&folder.path("t"));
        peer.send(&sent);
        assert_eq!(receive(&mut a), sent, "{log}");
        daemon.check();
    }
}

/// The memory changes while the daemon reads it.
#[test]
fn memory_that_changes_all_the_time_harms_nobody() {
    let folder = Folder::new();
    let mut daemon = folder.daemon(2, &[("--uplink", "name=up,listen=@t")]);
    let [mut a, mut b] = [0, 1].map(|index| daemon.plug(index));
    daemon.wait_for_log("link up port=\"f1\"");
    vrnic_cases::seeds(20, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut peer = Peer::greeted(&folder.path("t"));
        let lens: Vec<u8> = (0..512).flat_map(|_| random.u64(0..200).to_le_bytes()).collect();
        for _ in 0..200 {
            let from = random.usize(0..256) * 8;
            let some = lens.get(from..from + 1024).expect("inside");
            peer.out.write_all_at(some, DATA + random.u64(0..512) * 8).expect("write");
            peer.head += random.u64(0..64) * 8;
            peer.out.write_all_at(&peer.head.to_le_bytes(), HEAD).expect("write");
        }
        // This message ends the trunk at the latest, so that the next peer is not refused.
        peer.message(&[0; 2]);
        assert!(peer.is_ended());
        1
    });
    let sent = frame(mac(1), mac(0), 60);
    send(&mut a, &sent);
    b.set_read_timeout(Some(wait::LIMIT)).expect("a limit");
    while receive(&mut b) != sent {}
    daemon.check();
}

#[test]
fn strangers_are_disconnected_and_keep_nobody_away() {
    let folder = Folder::new();
    let mut daemon = folder.daemon(1, &[("--uplink", "name=up,listen=@t")]);
    let path = folder.path("t");
    for version in [&b"vrnic trunk 1\n"[..], b"vrnic trunk 2\nx"] {
        let mut wrong = Peer::connect(&path);
        assert_eq!(wrong.receive_greeting(), HELLO);
        wrong.greet(version, &[wrong.out.as_fd()]);
        assert!(wrong.is_ended());
    }
    daemon.wait_for_log("does not speak this version");
    let mut silent = Peer::connect(&path);
    assert_eq!(silent.receive_greeting(), HELLO);
    let early = Peer::connect(&path);
    assert!(early.is_ended(), "a second peer is taken");
    daemon.wait_for_log("a daemon is already connected");
    // The silent peer is disconnected after some seconds.
    assert!(silent.is_ended());
    let _peer = Peer::greeted(&path);
    daemon.wait_for_log("link up port=\"up\"");
    daemon.check();
}

/// A greeting must have exactly one descriptor, of memory that cannot change its length. Otherwise
/// it is refused, and the daemon keeps none of the descriptors.
#[test]
fn greetings_need_one_descriptor_of_sealed_memory() {
    let folder = Folder::new();
    let mut daemon = folder.daemon(1, &[("--uplink", "name=up,listen=@t")]);
    let path = folder.path("t");
    let open = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("fd").count();
    let good = memory(LEN, seals());
    let before = open();
    let plain = tempfile::tempfile().expect("a file");
    plain.set_len(LEN).expect("length");
    let (short, long) = (memory(LEN - 4096, seals()), memory(LEN + 4096, seals()));
    let loose = memory(LEN, SealFlags::GROW | SealFlags::SEAL);
    let read_only = memory(LEN, seals() | SealFlags::WRITE);
    for (files, log) in [
        (vec![], "but has none"),
        (vec![&good, &good], "but has more"),
        (vec![&good; 16], "but has more"),
        (vec![&plain], "is not sealed"),
        (vec![&loose], "is not sealed"),
        (vec![&short], "has 1048576 bytes instead of 1052672"),
        (vec![&long], "has 1056768 bytes instead of 1052672"),
        (vec![&read_only], "cannot be mapped"),
    ] {
        let peer = Peer::connect(&path);
        let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        peer.greet(HELLO, &files);
        assert!(peer.is_ended(), "{log}");
        daemon.wait_for_log(log);
    }
    let peer = Peer::greeted(&path);
    daemon.wait_for_log("link up port=\"up\"");
    // Descriptors of later messages are closed, too.
    peer.greet(&[0], &[good.as_fd(); 16]);
    drop(peer);
    daemon.wait_for_log("link down port=\"up\"");
    wait::until("closed descriptors", || (open() == before).then_some(()));
    daemon.check();
}

/// If a peer never reads, frames to it are dropped. Frames to others are not dropped.
#[test]
fn a_stuck_peer_stalls_nobody() {
    let folder = Folder::new();
    let mut daemon = folder.daemon(2, &[("--uplink", "name=up,listen=@t"), ("--monitor", "@m")]);
    let [mut a, mut b] = [0, 1].map(|index| daemon.plug(index));
    daemon.wait_for_log("link up port=\"f1\"");
    let mut peer = Peer::greeted(&folder.path("t"));
    daemon.wait_for_log("link up port=\"up\"");
    // More bytes than the peer's queue holds.
    let flood = frame(REMOTE, mac(0), 65_000);
    for _ in 0..300 {
        send(&mut a, &flood);
    }
    wait_for_drops(&folder.path("m"), "up", "queue_full", 1);
    // The second function has received the frames to an unknown station, too.
    let sent = frame(mac(1), mac(0), 60);
    send(&mut a, &sent);
    b.set_read_timeout(Some(wait::LIMIT)).expect("a limit");
    while receive(&mut b) != sent {}
    // When the peer reads again, it gets whole frames: those in the ring, and those that wait.
    for _ in 0..60 {
        assert!(peer.receive() == flood);
    }
    daemon.check();
}

/// A daemon whose trunk is in use by another peer tries again, without filling the log.
#[test]
fn a_third_daemon_waits_for_its_turn() {
    let folder = Folder::new();
    let listening = folder.daemon(1, &[("--uplink", "name=up,listen=@t")]);
    let first = Peer::greeted(&folder.path("t"));
    listening.wait_for_log("link up port=\"up\"");
    let port = ("--port", "name=g,net=@g");
    let third = folder.daemon(0, &[("--uplink", "name=up,connect=@t"), port]);
    third.wait_for_log("may already be connected to another peer");
    std::thread::sleep(Duration::from_secs(3));
    for log in [third.log(), listening.log()] {
        let is_warning =
            |line: &&str| line.contains("another peer") || line.contains("turned away");
        assert_eq!(log.lines().filter(is_warning).count(), 1, "{log}");
    }
    drop(first);
    third.wait_for_log("link up port=\"up\"");
}

#[test]
fn a_trunk_returns_after_the_other_daemon_has_restarted() {
    const LISTENING: [(&str, &str); 2] =
        [("--uplink", "name=up,listen=@t"), ("--port", "name=guest,net=@left")];
    const CONNECTING: [(&str, &str); 2] =
        [("--uplink", "name=up,connect=@t"), ("--port", "name=guest,net=@right")];
    let folder = Folder::new();
    let mut right = folder.daemon(0, &CONNECTING);
    right.wait_for_log("the other daemon cannot be reached");
    let mut left = folder.daemon(0, &LISTENING);
    passes(&folder);
    // First the listening daemon is restarted, then the connecting one.
    assert!(left.stop(Signal::TERM).success());
    right.wait_for_log("link down port=\"up\"");
    let left = folder.daemon(0, &LISTENING);
    passes(&folder);
    assert!(right.stop(Signal::TERM).success());
    left.wait_for_log("link down port=\"up\"");
    let _right = folder.daemon(0, &CONNECTING);
    passes(&folder);
}

/// Checks that frames pass from one guest to the other as soon as the trunk is up.
fn passes(folder: &Folder) {
    let [mut a, mut b] = ["left", "right"].map(|name| folder.plug(name));
    b.set_read_timeout(Some(Duration::from_millis(200))).expect("a limit");
    let sent = frame(BROADCAST, REMOTE, 64);
    wait::until("a frame", || {
        send(&mut a, &sent);
        b.read(&mut [0; 68]).ok()
    });
}
