//! Trunks over TLS, as they are used between hosts.
//!
//! Shows: network

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;

use crate::common::ethernet::{BROADCAST, STRANGER, frame, pass, receive, send};
use crate::common::joined::Joined;
use crate::common::pattern;
use crate::common::switch::Folder;

/// A station on another daemon.
const REMOTE: [u8; 6] = [2, 0, 0, 0, 0, 0x88];

/// Returns a free TCP port of this host.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Writes the file of a key.
fn key(folder: &Folder, name: &str, digits: &str) -> String {
    let path = folder.path(name);
    std::fs::write(&path, format!("{digits}\n")).expect("a key");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("mode");
    path.display().to_string()
}

/// Starts a daemon with this end of a trunk, and with a port of this name.
fn daemon(folder: &Folder, name: &str, end: &str, key: &str) -> Daemon {
    let (uplink, port) = (format!("name=up,{end},key={key}"), format!("name=g,net=@{name}"));
    folder.daemon(0, &[("--uplink", &uplink), ("--port", &port)])
}

#[test]
fn frames_pass_encrypted_and_the_trunk_returns() {
    let folder = Folder::new();
    let (port, key) = (free_port(), key(&folder, "key", &"0123456789abcdef".repeat(4)));
    let (listen, connect) = (format!("tls-listen={port}"), format!("tls-connect={port}"));
    let right = daemon(&folder, "right", &connect, &key);
    right.wait_for_log("the other daemon cannot be reached");
    for round in 1..=2 {
        let mut left = daemon(&folder, "left", &listen, &key);
        left.wait_for_log("link up port=\"up\"");
        let ups = || right.log().matches("link up port=\"up\"").count();
        wait::until("the trunk", || (ups() == round).then_some(()));
        let [mut a, mut b] = ["left", "right"].map(|name| folder.plug(name));
        left.wait_for_log("link up port=\"g\"");
        let plugged = || right.log().matches("link up port=\"g\"").count();
        wait::until("the netdev", || (plugged() == round).then_some(()));
        let lens = (0..400).map(|n| 14 + n * 7919 % 9000).chain([65_553]);
        let frames: Vec<_> = lens.map(|len| frame(BROADCAST, STRANGER, len)).collect();
        pass(&a, &mut b, &frames);
        let back = frame(STRANGER, REMOTE, 5000);
        send(&mut b, &back);
        assert_eq!(receive(&mut a), back);
        assert!(left.stop(Signal::TERM).success());
        let downs = || right.log().matches("link down port=\"up\"").count();
        wait::until("the end", || (downs() == round).then_some(()));
    }
}

#[test]
fn rdma_passes_encrypted() {
    let folder = Folder::new();
    let (port, key) = (free_port(), key(&folder, "key", &"ab".repeat(32)));
    let uplink = |end| format!("name=up,tls-{end}=127.0.0.1:{port},key={key}");
    let ends = ["listen", "connect"].map(uplink);
    let mut joined = Joined::start(folder, [&["--uplink", &ends[0]], &["--uplink", &ends[1]]]);
    let [mut a, b] = joined.connected(Setup::default(), |_| {});
    for round in 0..4 {
        let data = pattern(1 << 20, round);
        a.fill(0, &data);
        let write = Wr::new(Opcode::Write, &[a.sge(0, 1 << 20)]).to(b.buffer, b.key);
        a.run_expecting(&write, Status::Success);
        assert!(b.bytes(0, 1 << 20) == data);
    }
    joined.check();
}

#[test]
fn a_daemon_with_another_key_is_turned_away() {
    let folder = Folder::new();
    let port = free_port();
    let keys = ["ab", "ac"].map(|digits| key(&folder, digits, &digits.repeat(32)));
    let left = daemon(&folder, "left", &format!("tls-listen={port}"), &keys[0]);
    let right = daemon(&folder, "right", &format!("tls-connect={port}"), &keys[1]);
    right.wait_for_log("the connection to the other daemon is lost");
    std::thread::sleep(Duration::from_secs(2));
    for daemon in [&left, &right] {
        assert!(!daemon.log().contains("link up port=\"up\""), "{}", daemon.log());
    }
    // A peer with the right key can connect afterwards.
    drop(right);
    let right = daemon(&folder, "right", &format!("tls-connect={port}"), &keys[0]);
    right.wait_for_log("link up port=\"up\"");
}

#[test]
fn strangers_harm_nobody() {
    let folder = Folder::new();
    let (port, key) = (free_port(), key(&folder, "key", &"0f".repeat(32)));
    let mut left = daemon(&folder, "left", &format!("tls-listen={port}"), &key);
    let connect = || wait::until("a connection", || TcpStream::connect(("127.0.0.1", port)).ok());
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16; 70_000], &[0; 5], &[0xff; 3]] {
        let mut stranger = connect();
        // The daemon may close the connection before all bytes are written.
        let _cut = stranger.write_all(nonsense);
        let _cut = stranger.shutdown(std::net::Shutdown::Write);
        while stranger.read(&mut [0; 100]).is_ok_and(|len| len > 0) {}
    }
    // The daemon disconnects a silent client after some seconds.
    let is_closed = |mut client: TcpStream| !client.read(&mut [0; 1]).is_ok_and(|len| len > 0);
    assert!(is_closed(connect()));
    // After that, it refuses the client's address for a while, so the next silent client does not
    // delay others. Otherwise it could stay connected for seconds.
    let start = Instant::now();
    assert!(is_closed(connect()));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let right = daemon(&folder, "right", &format!("tls-connect={port}"), &key);
    right.wait_for_log("link up port=\"up\"");
    left.wait_for_log("link up port=\"up\"");
    left.check();
}

#[test]
fn keys_that_cannot_be_used_are_named() {
    let folder = Folder::new();
    let good = key(&folder, "good", &"0f".repeat(32));
    std::fs::set_permissions(&good, Permissions::from_mode(0o640)).expect("mode");
    let short = key(&folder, "short", "0f");
    let missing = folder.path("missing").display().to_string();
    for (key, part) in [(good, "chmod 600"), (short, "openssl rand"), (missing, "missing")] {
        let uplink = format!("name=up,tls-listen={},key={key}", free_port());
        let port = folder.settings("name=g,net=@g");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrnicd"));
        let output = command.args(["--port", &port, "--uplink", &uplink]).output();
        let output = output.expect("vrnicd runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(part), "{key}: {error}");
    }
}
