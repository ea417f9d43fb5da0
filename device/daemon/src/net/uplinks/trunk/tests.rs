//! Tests of the turns in which frames are taken out of a trunk.
//!
//! Shows: network

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use vrnic_adapter::log_ratelimit::Limiter;
use vrnic_control_api::port_view::Kind;

use super::*;
use crate::net::frame::FRAME_MIN;
use crate::net::status::PortStatus;
use crate::net::turn::FRAMES;

/// Fills the ring of a peer with records of this length. Returns this side of the connection,
/// the socket of the peer, and the number of records.
fn filled(len: usize) -> (Connection, OwnedFd, usize) {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let pair = socketpair(family, SocketType::SEQPACKET, flags, None);
    let (socket, other) = pair.expect("sockets");
    let (memory, file) = Memory::create().expect("memory");
    let mut sender = Sender::new(memory);
    let mut count = 0;
    while sender.put(&vec![7; len]).expect("no lie") {
        count += 1;
    }
    let _nobody_waits = sender.publish();
    let receiver = Receiver::new(Memory::of_peer(file).expect("memory"));
    let connection = Connection {
        peer: Peer::of(&socket),
        socket,
        since: Instant::now(),
        sender: Sender::new(Memory::create().expect("memory").0),
        receiver: Some(receiver),
    };
    (connection, other, count)
}

#[test]
fn short_records_fill_a_turn_whether_they_are_frames_or_not() {
    for len in [0, FRAME_MIN - 1, FRAME_MIN] {
        let (mut connection, _peer, count) = filled(len);
        let (status, limiter) = (PortStatus::new("up", Kind::Trunk), Limiter::default());
        let (log, mut frames) = (Log::new(&status, &limiter), Vec::new());
        connection.take(&mut frames, &mut Turn::begin(), &log).expect("no lie");
        let dropped = status.view().dropped.get("malformed").copied();
        let taken = frames.len() as u64 + dropped.expect("a counter");
        assert!((1..=FRAMES as u64).contains(&taken), "{len} bytes: {taken} of {count}");
    }
}

#[test]
fn all_frames_are_taken_at_the_end() {
    for len in [FRAME_MIN, 17, 1500, 60_000] {
        let (mut connection, peer, count) = filled(len);
        drop(peer);
        let (status, limiter) = (PortStatus::new("up", Kind::Trunk), Limiter::default());
        let (log, mut frames) = (Log::new(&status, &limiter), Vec::new());
        while connection.receive(&mut frames, &mut Turn::begin(), &log).expect("no lie") {
            assert!(frames.len() < count, "{len} bytes: the end is not noticed");
        }
        assert_eq!(frames.len(), count, "{len} bytes");
    }
}
