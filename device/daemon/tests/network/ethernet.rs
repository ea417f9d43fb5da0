//! The Ethernet side: frames between netdevs, and the effects of bad frames.
//!
//! Shows: network

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, Signal, kill_process};
use vrnic_testdriver::wait;

use crate::common::ethernet::{BROADCAST, STRANGER, frame, receive, send};
use crate::common::switch::Folder;
use crate::common::{limit_descriptors, start};

const A: [u8; 6] = vrnic_mac(0);
const B: [u8; 6] = vrnic_mac(1);

const fn vrnic_mac(index: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, 10 + index]
}

#[test]
fn frames_reach_their_port_and_broadcasts_all() {
    let mut daemon = start(3);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|port| daemon.plug(port));
    daemon.wait_for_log("link up port=\"f2\"");
    for len in [14, 60, 1514, 65_553] {
        let sent = frame(B, A, len);
        send(&mut a, &sent);
        assert_eq!(receive(&mut b), sent, "{len} bytes");
    }
    let sent = frame(BROADCAST, A, 64);
    send(&mut a, &sent);
    assert_eq!(receive(&mut b), sent);
    // The broadcast is the first frame that the third port gets.
    assert_eq!(receive(&mut c), sent);
    daemon.check();
}

/// Frames wait for a slow netdev, so that many of them are sent at once, and writes end in the
/// middle of frames.
#[test]
fn frames_that_waited_come_whole_and_in_order() {
    let mut daemon = start(2);
    let [mut a, mut b] = [0, 1].map(|port| daemon.plug(port));
    daemon.wait_for_log("link up port=\"f1\"");
    // Fewer bytes than a port's queue holds, and more than a socket's buffer.
    let frames: Vec<_> = (0..400).map(|n| frame(B, A, 14 + n * 7919 % 6000)).collect();
    for sent in &frames {
        send(&mut a, sent);
    }
    for sent in &frames {
        assert_eq!(receive(&mut b), *sent);
    }
    daemon.check();
}

#[test]
fn a_learnt_address_draws_its_frames() {
    let folder = Folder::new();
    let daemon = folder.daemon(2, &[("--port", "name=p,net=@p")]);
    let [mut a, mut b] = [0, 1].map(|port| daemon.plug(port));
    let mut c = folder.plug("p");
    daemon.wait_for_log("link up port=\"p\"");
    send(&mut c, &frame(A, STRANGER, 60));
    receive(&mut a);
    let sent = frame(STRANGER, A, 60);
    send(&mut a, &sent);
    assert_eq!(receive(&mut c), sent);
    let marker = frame(BROADCAST, A, 61);
    send(&mut a, &marker);
    assert_eq!(receive(&mut b), marker, "the second port saw a frame that was not for it");
}

#[test]
fn forged_and_truncated_frames_are_dropped_and_logged() {
    let mut daemon = start(2);
    let [mut a, mut b] = [0, 1].map(|port| daemon.plug(port));
    daemon.wait_for_log("link up port=\"f1\"");
    // The second guest uses the first one's address.
    send(&mut b, &frame(A, A, 60));
    daemon.wait_for_log("not an address of this port");
    send(&mut a, &frame(B, A, 13));
    send(&mut a, &[]);
    daemon.wait_for_log("truncated frame of 13 bytes");
    let sent = frame(B, A, 99);
    send(&mut a, &sent);
    assert_eq!(receive(&mut b), sent, "the stream is out of step");
    daemon.check();
}

#[test]
fn an_oversized_frame_ends_its_port_alone() {
    let mut daemon = start(3);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|port| daemon.plug(port));
    daemon.wait_for_log("link up port=\"f2\"");
    a.write_all(&u32::MAX.to_be_bytes()).expect("send a length");
    daemon.wait_for_log("a frame of 4294967295 bytes is longer");
    assert_eq!(a.read(&mut [0; 1]).expect("end of stream"), 0);
    let sent = frame(vrnic_mac(2), B, 60);
    send(&mut b, &sent);
    assert_eq!(receive(&mut c), sent);
    // The port accepts the next netdev.
    let mut again = daemon.plug(0);
    daemon.wait_for_log("link down port=\"f0\"");
    let sent = frame(B, A, 60);
    send(&mut again, &sent);
    assert_eq!(receive(&mut b), sent);
    daemon.check();
}

#[test]
fn a_stuck_netdev_stalls_nobody() {
    let mut daemon = start(3);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|port| daemon.plug(port));
    daemon.wait_for_log("link up port=\"f2\"");
    // The second netdev never reads. Eight megabytes are more than its queue holds.
    let flood = frame(B, A, 65_000);
    for _ in 0..128 {
        send(&mut a, &flood);
    }
    let sent = frame(vrnic_mac(2), A, 60);
    send(&mut a, &sent);
    assert_eq!(receive(&mut c), sent);
    daemon.wait_for_log("reads too slowly");
    // When it reads again, it gets whole frames.
    assert_eq!(receive(&mut b), flood);
    daemon.check();
}

#[test]
fn a_second_netdev_is_turned_away() {
    let mut daemon = start(2);
    let [mut a, mut b] = [0, 1].map(|port| daemon.plug(port));
    daemon.wait_for_log("link up port=\"f1\"");
    let mut second = daemon.plug(0);
    assert_eq!(second.read(&mut [0; 1]).expect("end of stream"), 0);
    daemon.wait_for_log("a netdev is already connected");
    let sent = frame(B, A, 60);
    send(&mut a, &sent);
    assert_eq!(receive(&mut b), sent);
    daemon.check();
}

/// Connects until the queue of connections that have not been accepted is full.
fn fill_queue(path: &Path) -> Vec<UnixStream> {
    let address = SocketAddrUnix::new(path).expect("address");
    let mut waiting = Vec::new();
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.expect("socket");
        match connect(&socket, &address) {
            Ok(()) => waiting.push(UnixStream::from(socket)),
            Err(Errno::AGAIN) => return waiting,
            Err(error) => panic!("connection {}: {error}", waiting.len()),
        }
        assert!(waiting.len() < 100_000, "the queue has no end");
    }
}

/// Shows: hostile
#[test]
fn a_full_queue_of_connections_disturbs_no_link() {
    let mut daemon = start(2);
    let [mut a, mut b] = [0, 1].map(|port| daemon.plug(port));
    daemon.wait_for_log("link up port=\"f1\"");
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).expect("pid")).expect("pid");
    kill_process(pid, Signal::STOP).expect("stop");
    let waiting = fill_queue(&daemon.net(0));
    kill_process(pid, Signal::CONT).expect("continue");
    assert!(waiting.len() > 1, "{} connections", waiting.len());
    for (count, mut stream) in waiting.into_iter().enumerate() {
        stream.set_nonblocking(false).expect("flags");
        stream.set_read_timeout(Some(wait::LIMIT)).expect("time limit");
        assert_eq!(stream.read(&mut [0; 1]).expect("end of stream"), 0, "connection {count}");
    }
    let sent = frame(B, A, 60);
    send(&mut a, &sent);
    assert_eq!(receive(&mut b), sent);
    // The port accepts the next netdev.
    drop(a);
    let mut again = daemon.plug(0);
    send(&mut again, &sent);
    assert_eq!(receive(&mut b), sent);
    daemon.check();
}

/// A netdev for which there is no descriptor waits. No other port waits.
#[test]
fn a_lack_of_descriptors_stalls_no_port() {
    let mut daemon = start(3);
    let [mut a, mut b] = [0, 1].map(|port| daemon.plug(port));
    daemon.wait_for_log("link up port=\"f1\"");
    let before = limit_descriptors(&daemon, Some(3));
    let mut waiting = daemon.plug(2);
    daemon.wait_for_log("a client cannot be accepted");
    let sent = frame(B, A, 60);
    let start = Instant::now();
    for _ in 0..1000 {
        send(&mut a, &sent);
        assert_eq!(receive(&mut b), sent);
    }
    // If each frame waited for a thread that sleeps for 10 ms, this would take 10 s.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    limit_descriptors(&daemon, before);
    daemon.wait_for_log("link up port=\"f2\"");
    let sent = frame(vrnic_mac(2), A, 60);
    send(&mut a, &sent);
    assert_eq!(receive(&mut waiting), sent);
    daemon.check();
}
