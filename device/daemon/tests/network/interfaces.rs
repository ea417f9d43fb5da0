//! Uplinks to interfaces of the host's kernel, each in a network namespace. The tests are skipped
//! with a message if no namespace can be made.
//!
//! Shows: network

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use vrnic_abi::qp::State;
use vrnic_testdriver::qp::{self, Setup, attributes};
use vrnic_testdriver::vmm::daemon::mac;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};

use crate::common::ethernet::{BROADCAST, STRANGER, frame, receive, send};
use crate::common::namespace::Namespace;
use crate::common::switch::{Folder, port, wait_for_drops};

/// A station behind the uplink.
const REMOTE: [u8; 6] = [2, 0, 0, 0, 0, 0x88];

/// Receives frames until this frame arrives.
#[track_caller]
fn receive_this(stream: &mut UnixStream, frame: &[u8]) {
    while receive(stream) != frame {}
}

fn tagged(mut frame: Vec<u8>) -> Vec<u8> {
    frame.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
    frame
}

/// A TAP device has two ends: one daemon has the file, the other one the interface.
#[test]
fn frames_pass_by_a_tap_device_and_by_a_packet_socket() {
    let Some(namespace) = Namespace::new() else { return };
    let mut left = namespace.daemon("left", "tap=vt0");
    let mut a = namespace.plug(&left, "left");
    namespace.run("ip link set vt0 up");
    left.wait_for_log("link up port=\"up\"");
    left.wait_for_log("needs a path MTU of at most 1024");
    let mut right = namespace.daemon("right", "packet=vt0");
    right.wait_for_log("link up port=\"up\"");
    let mut b = namespace.plug(&right, "right");
    for len in [60, 61, 1000, 1514] {
        for make in [|frame| frame, tagged] {
            let there = make(frame(BROADCAST, STRANGER, len));
            send(&mut a, &there);
            receive_this(&mut b, &there);
            let back = make(frame(STRANGER, REMOTE, len));
            send(&mut b, &back);
            receive_this(&mut a, &back);
        }
    }
    for (name, guest, source) in [("left", &mut a, STRANGER), ("right", &mut b, REMOTE)] {
        send(guest, &frame(BROADCAST, source, 1600));
        let monitor = namespace.folder.path(&format!("{name}.monitor"));
        wait_for_drops(&monitor, "up", "too_long", 1);
        assert_eq!(port(&monitor, "up")["mtu"], 1500);
    }
    left.check();
    right.check();
}

#[test]
fn a_bridge_joins_two_daemons() {
    let Some(namespace) = Namespace::new() else { return };
    let ends = ["left", "right"].map(|name| namespace.daemon(name, &format!("tap={name}")));
    namespace.run("ip link add br0 type bridge && ip link set br0 up mtu 4500");
    for (daemon, name) in ends.iter().zip(["left", "right"]) {
        namespace.run(&format!("ip link set {name} mtu 4500 master br0 up"));
        daemon.wait_for_log("link up port=\"up\"");
        daemon.wait_for_log("needs a path MTU of at most 4096");
    }
    let mut a = namespace.plug(&ends[0], "left");
    let mut b = namespace.plug(&ends[1], "right");
    // A bridge port begins to forward some time after it has come up.
    let first = frame(BROADCAST, STRANGER, 60);
    vrnic_testdriver::wait::until("the bridge", || {
        send(&mut a, &first);
        b.set_read_timeout(Some(std::time::Duration::from_millis(100))).expect("a limit");
        std::io::Read::read(&mut b, &mut [0; 64]).ok()
    });
    b.set_read_timeout(Some(vrnic_testdriver::wait::LIMIT)).expect("a limit");
    for len in [60, 1514, 4514] {
        for make in [|frame| frame, tagged] {
            let back = make(frame(STRANGER, REMOTE, len));
            send(&mut b, &back);
            receive_this(&mut a, &back);
            let there = make(frame(REMOTE, STRANGER, len));
            send(&mut a, &there);
            receive_this(&mut b, &there);
        }
    }
}

/// Connects with each of these path MTUs, as `enum ib_mtu`. Returns which of them the adapter
/// accepts.
fn takes(guest: &Guest, path_mtus: [u8; 3]) -> [bool; 3] {
    path_mtus.map(|path_mtu| {
        let endpoint = Endpoint::new(guest, Setup::default());
        let mut attr = attributes(guest.mac(), endpoint.qpn);
        attr.state = State::Init as u8;
        guest.modify_qp(endpoint.qpn, qp::INIT, &attr).expect("to Init");
        (attr.state, attr.path_mtu) = (State::Rtr as u8, path_mtu);
        guest.modify_qp(endpoint.qpn, qp::RTR, &attr).is_ok()
    })
}

#[test]
fn the_mtu_of_an_uplink_limits_the_functions() {
    let Some(namespace) = Namespace::new() else { return };
    let control = ("--control", "@control");
    let options = [("--uplink", "name=up,tap=vt0"), control];
    let daemon = namespace.folder.start(&namespace.program(), 1, &options);
    daemon.wait_for_log("limit of the path MTU");
    let guest = daemon.ready_guest(0);
    assert_eq!(takes(&guest, [3, 4, 5]), [true, false, false]);
    namespace.run("ip link set vt0 mtu 2200");
    daemon.wait_for_log("path_mtu=2048");
    assert_eq!(takes(&guest, [3, 4, 5]), [true, true, false]);
    // A function that is added has the limit, too. Without the uplink there is no limit.
    let vrnic = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
        command.arg("--control").arg(namespace.folder.path("control"));
        assert!(command.args(args).status().expect("vrnic runs").success());
    };
    let late = namespace.folder.settings("name=late,mac=52:54:00:00:00:0b,socket=@late");
    vrnic(&["function", "add", &late]);
    let late = Guest::connect(&namespace.folder.path("late"), mac(1)).expect("a VMM");
    late.bring_up();
    assert_eq!(takes(&late, [3, 4, 5]), [true, true, false]);
    vrnic(&["uplink", "remove", "up"]);
    assert_eq!(takes(&guest, [3, 4, 5]), [true; 3]);
    assert_eq!(takes(&late, [3, 4, 5]), [true; 3]);
}

/// The interface is set down and up, and removed and created again.
#[test]
fn an_interface_that_goes_and_returns_is_followed() {
    let Some(namespace) = Namespace::new() else { return };
    namespace
        .run("ip link add va type veth peer name vb && ip link set va up && ip link set vb up");
    let daemon = namespace.daemon("left", "packet=va");
    let other = namespace.daemon("right", "packet=vb");
    let (mut a, mut b) = (namespace.plug(&daemon, "left"), namespace.plug(&other, "right"));
    let mut passes = |times: usize| {
        for end in [&daemon, &other] {
            vrnic_testdriver::wait::until("link", || {
                (end.log().matches("link up port=\"up\"").count() == times).then_some(())
            });
        }
        let sent = frame(BROADCAST, STRANGER, 60 + times);
        send(&mut a, &sent);
        receive_this(&mut b, &sent);
    };
    passes(1);
    namespace.run("ip link set va down && ip link set vb down");
    for end in [&daemon, &other] {
        end.wait_for_log("link down port=\"up\"");
    }
    namespace.run("ip link set va up && ip link set vb up");
    passes(2);
    namespace.run("ip link del va");
    for end in [&daemon, &other] {
        end.wait_for_log("the interface is gone");
    }
    namespace
        .run("ip link add va type veth peer name vb && ip link set va up && ip link set vb up");
    passes(3);
}

/// When a TAP device is removed, a daemon with the necessary rights creates it again.
#[test]
fn a_tap_device_that_is_removed_returns() {
    let Some(namespace) = Namespace::new() else { return };
    let mut daemon = namespace.daemon("left", "tap=vt0");
    namespace.run("ip link set vt0 up");
    daemon.wait_for_log("link up port=\"up\"");
    namespace.run("ip link del vt0");
    daemon.wait_for_log("the TAP device is lost");
    daemon.wait_for_log("the TAP device is back");
    namespace.run("ip link set vt0 up");
    let ups = || daemon.log().matches("link up port=\"up\"").count();
    vrnic_testdriver::wait::until("link", || (ups() == 2).then_some(()));
    daemon.check();
}

/// The kernel leaves the checksum of its frames to the network card. Here there is none, so the
/// daemon fills it in.
#[test]
fn checksums_that_the_host_left_out_are_filled_in() {
    let Some(namespace) = Namespace::new() else { return };
    namespace
        .run("ip link add va type veth peer name vb && ip link set va up && ip link set vb up");
    namespace.run("ip addr add 10.77.0.1/24 dev vb");
    namespace.run("ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:88 dev vb");
    let daemon = namespace.daemon("left", "packet=va");
    let mut guest = namespace.plug(&daemon, "left");
    namespace.run("echo -n 'seventeen letters' >/dev/udp/10.77.0.2/9");
    let datagram = loop {
        let frame = receive(&mut guest);
        if frame.starts_with(&REMOTE) && frame.get(23) == Some(&17) {
            break frame;
        }
    };
    // The addresses of the pseudo-header, the UDP header and the data; then protocol and length.
    let mut summed = datagram[26..].to_vec();
    assert_eq!(summed.len(), 8 + 8 + 17, "{datagram:?}");
    assert_ne!(summed[14..16], [0, 0], "there is no checksum");
    summed.push(0);
    let words = summed.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(word[1]));
    let mut sum = words.sum::<u64>() + 17 + 25;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    assert_eq!(sum, 0xffff, "the checksum is wrong");
}

#[test]
fn a_tap_device_is_taken_by_descriptor() {
    let Some(namespace) = Namespace::new() else { return };
    let device = namespace.tap("vt0");
    let left = namespace.daemon("left", &format!("fd={}", device.as_raw_fd()));
    drop(device);
    namespace.run("ip link set vt0 up");
    left.wait_for_log("link up port=\"up\"");
    let right = namespace.daemon("right", "packet=vt0");
    right.wait_for_log("link up port=\"up\"");
    let (mut a, mut b) = (namespace.plug(&left, "left"), namespace.plug(&right, "right"));
    let sent = frame(BROADCAST, STRANGER, 200);
    send(&mut a, &sent);
    receive_this(&mut b, &sent);
}

#[test]
fn interfaces_that_cannot_be_used_are_named() {
    let program = env!("CARGO_BIN_EXE_vrnicd");
    for (uplink, part) in [
        ("packet=no-such-if", "no-such-if"),
        ("tap=a-name-that-is-too-long", "a-name-that-is-too-long"),
        ("fd=1", "descriptor 1"),
        ("fd=999", "descriptor 999"),
    ] {
        let folder = Folder::new();
        let uplink = format!("name=up,{uplink}");
        let port = folder.settings("name=g,net=@g");
        let output = Command::new(program).args(["--port", &port, "--uplink", &uplink]).output();
        let output = output.expect("vrnicd runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(part), "{uplink}: {error}");
    }
}
