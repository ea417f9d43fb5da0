//! The limit of messages through TAP devices: frames that one thread writes to a TAP device and
//! another one reads at the other side of a bridge.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use vrnic_device::net::uplinks::interface::offload_tap;
use vrnic_device::net::uplinks::offload::{HEADER, Kind, Offload};
use vrnic_packet::checksum::{fold, sum};
use vrnic_testdriver::namespace::Namespace;

use super::bridge::{Bridge, tap};
use super::{SEGMENT, join};

/// Length of a frame with a packet of 4,096 bytes.
const FRAME: usize = 4170;
/// Length of the headers of Ethernet, of IPv4 and of TCP.
const HEADERS: [usize; 3] = [14, 20, 20];
/// Number of segments that fit into a joined one.
const SEGMENTS: u16 = 15;

/// Frames that are all alike.
pub(super) struct Frames {
    /// The offload header of the device, if it has one, and the frame.
    bytes: Vec<u8>,
    /// Offset of the frame.
    start: usize,
}

impl Frames {
    /// Frames of no protocol, each as long as one with a packet.
    pub(super) fn single() -> Self {
        Self { bytes: vec![0x5a; FRAME], start: 0 }
    }

    /// Segments of TCP that are joined to one.
    pub(super) fn joined() -> Self {
        let [ethernet, network, tcp] = HEADERS;
        let data = SEGMENT * SEGMENTS;
        let (transport, headers) = (ethernet + network, ethernet + network + tcp);
        let offload = Offload::segments(Kind::TcpV4, transport, 16, headers, SEGMENT.into());
        let offload = offload.unwrap_or_default().to_bytes();
        let mut bytes = offload.to_vec();
        bytes.resize(HEADER + ethernet, 0);
        bytes[HEADER + 12] = 8;
        // Version 4, protocol 6, and as ports the addresses.
        let [high, low] = (data + 40).to_be_bytes();
        let mut ip = [0x45, 0, high, low, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        // A bridge drops packets with a wrong IP checksum, but does not check the TCP checksum.
        let checksum = !fold(sum(&ip));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes.extend(ip);
        bytes.extend([10, 9, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.resize(bytes.len() + usize::from(data), 0x5a);
        Self { bytes, start: HEADER }
    }

    /// Returns the frame with these addresses.
    fn between(&self, to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[self.start..][..6].copy_from_slice(&to);
        bytes[self.start + 6..][..6].copy_from_slice(&from);
        bytes
    }
}

/// Returns the bytes per second that pass.
pub(super) fn relay(host: &Namespace, frames: &Frames, span: Duration) -> anyhow::Result<f64> {
    let _bridge = Bridge::new(host);
    let headers = frames.start > 0;
    let [mut from, mut to] = [tap("left", headers)?, tap("right", headers)?];
    if headers {
        for device in [&from, &to] {
            anyhow::ensure!(offload_tap(device.as_fd())?, "the kernel joins no frames");
        }
    }
    // To a station that is behind the second device: the bridge learns it from a frame.
    let (left, right) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    for (frame_to, frame_from, device) in [(left, right, &mut to), (right, left, &mut from)] {
        // A port of a bridge forwards a moment after it has come up.
        std::thread::sleep(Duration::from_millis(100));
        device.write_all(&frames.between(frame_to, frame_from))?;
    }
    let frame = frames.between(right, left);
    fcntl_setfl(&to, OFlags::NONBLOCK)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sink = scope.spawn(|| drain(&mut to, &over, 2 * frame.len()));
        let start = Instant::now();
        while start.elapsed() < span {
            from.write_all(&frame)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        over.store(true, Ordering::Release);
        Ok(join(sink)?? / seconds)
    })
}

/// Reads frames of less than `max_len` bytes until it is over. Returns the number of bytes.
fn drain(from: &mut File, over: &AtomicBool, max_len: usize) -> io::Result<f64> {
    let mut buffer = vec![0u8; max_len];
    let mut bytes = 0f64;
    while !over.load(Ordering::Acquire) {
        match from.read(&mut buffer) {
            Ok(len) => bytes += len as f64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}
