//! Trunks between daemons, and ports without a function.

mod common;

use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use common::ethernet::{
    BROADCAST, STRANGER, frame, nothing_comes, pass, receive, send, with_length,
};
use common::switch::{Folder, port, wait_for_drops};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    socket_with,
};
use rustix::process::Signal;
use vrnic_testdriver::daemon::mac;
use vrnic_testdriver::wait;

/// The first message of a trunk.
const HELLO: &[u8] = b"vrnic trunk 1\n";
/// Length of the longest message.
const MESSAGE_MAX: usize = 128 << 10;
/// A station on another daemon.
const REMOTE: [u8; 6] = [2, 0, 0, 0, 0, 0x88];

/// Another daemon's end of a trunk, as a hostile one would be.
struct Peer(OwnedFd);

impl Peer {
    fn connect(path: &Path) -> Self {
        let socket = wait::until("a trunk", || {
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
            let socket = socket.expect("a socket");
            let address = SocketAddrUnix::new(path).expect("address");
            connect(&socket, &address).ok().map(|()| socket)
        });
        Self(socket)
    }

    /// One that has said what a daemon says.
    fn greeted(path: &Path) -> Self {
        let peer = Self::connect(path);
        peer.send(HELLO);
        assert_eq!(peer.receive(), HELLO);
        peer
    }

    fn send(&self, message: &[u8]) {
        rustix::net::send(&self.0, message, SendFlags::NOSIGNAL).expect("send a message");
    }

    /// Receives a message; none at the end.
    fn receive(&self) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 20];
        let (len, _) = recv(&self.0, buffer.as_mut_slice(), RecvFlags::empty()).expect("receive");
        buffer.truncate(len);
        buffer
    }

    fn is_ended(&self) -> bool {
        matches!(recv(&self.0, &mut [0; 1], RecvFlags::empty()), Ok((0, _)) | Err(Errno::CONNRESET))
    }
}

/// Two daemons, each with a function and a port for a guest without one.
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
    // With a VLAN tag, and to a group.
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
    // Less than a port's queue holds.
    for round in 0..10 {
        let lens = (0..300).map(|n| 14 + (n * 7919 + round * 31) % 5000);
        let frames: Vec<_> = lens.map(|len| frame(REMOTE, STRANGER, len)).collect();
        pass(&a, &mut b, &frames);
    }
    send(&mut b, &frame(STRANGER, REMOTE, 60));
    receive(&mut a);
}

/// Three daemons, each joined to the two others: every broadcast comes once everywhere.
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

/// A chain of three daemons: the middle one passes frames on only if both its uplinks are meant to.
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
    let peer = Peer::greeted(&folder.path("t"));
    peer.send(&with_length(&frame(BROADCAST, mac(0), 60)));
    daemon.wait_for_log("not an address of this port");
    wait_for_drops(&folder.path("m"), "up", "forged", 1);
    // The function's frames still come to it.
    let sent = frame(mac(0), REMOTE, 61);
    peer.send(&with_length(&sent));
    assert_eq!(receive(&mut a), sent);
}

#[test]
fn malformed_messages_are_dropped_and_counted() {
    let folder = Folder::new();
    let mut daemon = folder.daemon(1, &[("--uplink", "name=up,listen=@t"), ("--monitor", "@m")]);
    let mut a = daemon.plug(0);
    daemon.wait_for_log("link up port=\"f0\"");
    let peer = Peer::greeted(&folder.path("t"));
    let good = frame(mac(0), REMOTE, 61);
    let mut faults = 0;
    for bad in [
        vec![0; 3],
        vec![0xff; 4],
        with_length(&[0; 13]),
        [&[0, 0, 0, 61][..], &good[..60]].concat(),
        vec![0; 4],
        HELLO.to_vec(),
        vec![0; 200_000],
    ] {
        let bad_len = bad.len();
        peer.send(&bad);
        // The frames before the fault in a message arrive, and so does the next message.
        peer.send(&[with_length(&good), bad].concat());
        faults += 2;
        // The last message is too long, so nothing of it is read.
        if bad_len < MESSAGE_MAX {
            assert_eq!(receive(&mut a), good);
        }
        wait_for_drops(&folder.path("m"), "up", "malformed", faults);
    }
    assert!(port(&folder.path("m"), "up")["up"] == true);
    peer.send(&with_length(&good));
    assert_eq!(receive(&mut a), good);
    daemon.check();
}

#[test]
fn strangers_are_disconnected_and_keep_nobody_away() {
    let folder = Folder::new();
    let mut daemon = folder.daemon(1, &[("--uplink", "name=up,listen=@t")]);
    let path = folder.path("t");
    let wrong = Peer::connect(&path);
    assert_eq!(wrong.receive(), HELLO);
    wrong.send(b"vrnic trunk 2\n");
    assert!(wrong.is_ended());
    daemon.wait_for_log("does not speak this version");
    let silent = Peer::connect(&path);
    assert_eq!(silent.receive(), HELLO);
    let early = Peer::connect(&path);
    assert!(early.is_ended(), "a second peer is taken");
    daemon.wait_for_log("a daemon is already connected");
    // The silent one is disconnected after some seconds.
    assert!(silent.is_ended());
    let _peer = Peer::greeted(&path);
    daemon.wait_for_log("link up port=\"up\"");
    daemon.check();
}

/// A peer that never reads: its frames are dropped, and the others' are not.
#[test]
fn a_stuck_peer_stalls_nobody() {
    let folder = Folder::new();
    let mut daemon = folder.daemon(2, &[("--uplink", "name=up,listen=@t"), ("--monitor", "@m")]);
    let [mut a, mut b] = [0, 1].map(|index| daemon.plug(index));
    daemon.wait_for_log("link up port=\"f1\"");
    let peer = Peer::greeted(&folder.path("t"));
    daemon.wait_for_log("link up port=\"up\"");
    // More than is queued for it.
    let flood = frame(REMOTE, mac(0), 65_000);
    for _ in 0..300 {
        send(&mut a, &flood);
    }
    wait_for_drops(&folder.path("m"), "up", "queue_full", 1);
    // The second function has seen the frames to an unknown station, too.
    let sent = frame(mac(1), mac(0), 60);
    send(&mut a, &sent);
    b.set_read_timeout(Some(wait::LIMIT)).expect("a limit");
    while receive(&mut b) != sent {}
    // Once the peer reads again, whole frames come.
    let message = peer.receive();
    assert!(message.starts_with(&with_length(&flood)));
    daemon.check();
}

/// A daemon at a trunk that is taken tries again without filling the log.
#[test]
fn a_third_daemon_waits_for_its_turn() {
    let folder = Folder::new();
    let listening = folder.daemon(1, &[("--uplink", "name=up,listen=@t")]);
    let first = Peer::greeted(&folder.path("t"));
    listening.wait_for_log("link up port=\"up\"");
    let port = ("--port", "name=g,net=@g");
    let third = folder.daemon(0, &[("--uplink", "name=up,connect=@t"), port]);
    third.wait_for_log("may already have another peer");
    std::thread::sleep(Duration::from_secs(3));
    for log in [third.log(), listening.log()] {
        let told = |line: &&str| line.contains("another peer") || line.contains("turned away");
        assert_eq!(log.lines().filter(told).count(), 1, "{log}");
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
    // First the one that listens is restarted, then the one that connects.
    assert!(left.stop(Signal::TERM).success());
    right.wait_for_log("link down port=\"up\"");
    let left = folder.daemon(0, &LISTENING);
    passes(&folder);
    assert!(right.stop(Signal::TERM).success());
    left.wait_for_log("link down port=\"up\"");
    let _right = folder.daemon(0, &CONNECTING);
    passes(&folder);
}

/// Shows that frames pass from one guest to the other, as soon as the trunk is up.
fn passes(folder: &Folder) {
    let [mut a, mut b] = ["left", "right"].map(|name| folder.plug(name));
    b.set_read_timeout(Some(Duration::from_millis(200))).expect("a limit");
    let sent = frame(BROADCAST, REMOTE, 64);
    wait::until("a frame", || {
        send(&mut a, &sent);
        b.read(&mut [0; 68]).ok()
    });
}
