//! Frames on the sockets of netdevs.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use vrnic_testdriver::wait;

/// A station without an adapter.
pub(crate) const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
/// The broadcast address.
pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];

/// Returns a frame of `len` bytes.
pub(crate) fn frame(to: [u8; 6], from: [u8; 6], len: usize) -> Vec<u8> {
    let mut bytes = [to, from].concat();
    bytes.extend((bytes.len()..len).map(|i| i.to_le_bytes()[0]));
    bytes
}

/// Sends a frame as a netdev does.
pub(crate) fn send(stream: &mut UnixStream, frame: &[u8]) {
    stream.write_all(&with_length(frame)).expect("send a frame");
}

/// Returns a frame after its length.
pub(crate) fn with_length(frame: &[u8]) -> Vec<u8> {
    let len = u32::try_from(frame.len()).expect("small");
    [&len.to_be_bytes(), frame].concat()
}

/// Receives a frame as a netdev does.
pub(crate) fn receive(stream: &mut UnixStream) -> Vec<u8> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).expect("length of a frame");
    let mut bytes = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut bytes).expect("a frame");
    bytes
}

/// Sends frames from one netdev. Checks that another netdev receives them whole and in order.
#[track_caller]
pub(crate) fn pass(from: &UnixStream, to: &mut UnixStream, frames: &[Vec<u8>]) {
    let all: Vec<u8> = frames.iter().flat_map(|frame| with_length(frame)).collect();
    let mut out = from.try_clone().expect("a stream");
    let writer = std::thread::spawn(move || out.write_all(&all).expect("write"));
    for sent in frames {
        assert!(receive(to) == *sent, "a frame of {} bytes is lost", sent.len());
    }
    writer.join().expect("writer");
}

/// Checks that no frame arrives for a while.
#[track_caller]
pub(crate) fn nothing_comes(stream: &mut UnixStream) {
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a limit");
    let error = stream.read(&mut [0; 1]).expect_err("a frame came");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    stream.set_read_timeout(Some(wait::LIMIT)).expect("a limit");
}

/// Connects to an Ethernet socket as soon as it listens.
pub(crate) fn plug(path: &Path) -> UnixStream {
    let stream = wait::until("an Ethernet socket", || UnixStream::connect(path).ok());
    stream.set_read_timeout(Some(wait::LIMIT)).expect("a limit");
    stream
}
