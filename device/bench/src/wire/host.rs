//! Messages through the network stack of the host: two daemons with TAP devices on a bridge, in a
//! network namespace. The limits are measured beside them: the same bridge without daemons, and TCP
//! over a veth device.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use vrnic_device::net::interface::attach_tap;
use vrnic_testdriver::namespace::Namespace;
use vrnic_testdriver::qp::Setup;

use super::{SEGMENT, large};
use crate::rate::Runs;
use crate::report::Report;
use crate::rig::{Pair, Rig};

/// Length of a frame with a packet of 4,096 bytes.
const FRAME: usize = 4170;
/// The MTU of the bridge.
const BRIDGE_MTU: u32 = 4200;

/// Kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Messages {
    /// Packets of RoCE.
    Packets,
    /// Segments of TCP.
    Iwarp,
}

/// Measures the ways through the host, or prints why this machine does not support them.
///
/// # Errors
/// When a daemon does not come up.
pub(super) fn measure(
    report: &mut Report,
    daemon: &Path,
    messages: Messages,
    runs: Runs,
) -> anyhow::Result<()> {
    let (Some(host), Some(peer)) = (Namespace::new(), Namespace::new()) else { return Ok(()) };
    // A thread stays in the namespace that it has entered.
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            host.enter()?;
            for (headers, name) in [(true, "TAP, joined"), (false, "TAP, single")] {
                let bridge = Bridge::new(&host);
                let rig = daemons(daemon, headers)?;
                let (mut pair, kind) = match messages {
                    Messages::Packets => (Pair::with(&rig, Setup::default()), "packets"),
                    Messages::Iwarp => (Pair::in_stream(&rig, SEGMENT), "iWARP"),
                };
                large(report, &mut pair, &format!("{kind}, {name}"), runs);
                drop((pair, rig, bridge));
            }
            if messages == Messages::Packets {
                let relay = most(runs, |span| relay(&host, span))?;
                report.figure("bare frames through TAP and bridge, GB/s", relay / 1e9);
            }
            let rate = most(runs, |span| tcp(&host, &peer, Link::CLEAN, span))?;
            report.figure("TCP over veth, MTU 9000, GB/s", rate / 1e9);
            if messages == Messages::Iwarp && may_lose(&host) {
                let rate = most(runs.of_losses(), |span| tcp(&host, &peer, Link::LOSSY, span))?;
                report.figure("TCP over veth, segments of 4,096 bytes, 1 % loss, GB/s", rate / 1e9);
            }
            Ok(())
        });
        join(measured)?
    })
}

/// Returns the best of several runs.
fn most(
    Runs { repeats, span }: Runs,
    run: impl Fn(Duration) -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    (0..repeats).try_fold(0f64, |most, _| anyhow::Ok(most.max(run(span)?)))
}

/// Starts two daemons whose TAP devices are ports of a bridge. With headers, frames of a connection
/// pass the kernel as one.
fn daemons(daemon: &Path, headers: bool) -> anyhow::Result<Rig> {
    let taps = [tap("left", headers)?, tap("right", headers)?];
    for tap in &taps {
        // The daemons inherit it.
        fcntl_setfd(tap, FdFlags::empty())?;
    }
    let uplinks = taps.each_ref().map(|tap| format!("name=up,fd={}", tap.as_raw_fd()));
    let args = uplinks.each_ref().map(|uplink| ["--uplink", uplink.as_str()]);
    Rig::two_daemons(daemon, args.each_ref().map(|args| args.as_slice()))
}

/// A bridge with two TAP devices, which is removed on drop.
struct Bridge<'a>(&'a Namespace);

impl<'a> Bridge<'a> {
    fn new(host: &'a Namespace) -> Self {
        host.run(&format!(
            "ip link add br0 mtu {BRIDGE_MTU} type bridge && ip link set br0 up && \
             for name in left right; do ip tuntap add $name mode tap && \
             ip link set $name mtu {BRIDGE_MTU} master br0 up || exit; done"
        ));
        Self(host)
    }
}

impl Drop for Bridge<'_> {
    fn drop(&mut self) {
        self.0.run("ip link del left && ip link del right && ip link del br0");
    }
}

/// Returns the bytes per second of frames that one thread writes to a TAP device and another one
/// reads behind a bridge.
fn relay(host: &Namespace, span: Duration) -> anyhow::Result<f64> {
    let _bridge = Bridge::new(host);
    let [mut from, mut to] = [tap("left", false)?, tap("right", false)?];
    let mut frame = vec![0x5au8; FRAME];
    // To a station that is behind the second device: the bridge learns it from a frame.
    let (left, right) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    for (frame_to, frame_from, device) in [(left, right, &mut to), (right, left, &mut from)] {
        frame[..6].copy_from_slice(&frame_to);
        frame[6..12].copy_from_slice(&frame_from);
        // A port of a bridge forwards a moment after it has come up.
        std::thread::sleep(Duration::from_millis(100));
        device.write_all(&frame)?;
    }
    fcntl_setfl(&to, OFlags::NONBLOCK)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sink = scope.spawn(|| drain(&mut to, &over));
        let start = Instant::now();
        while start.elapsed() < span {
            from.write_all(&frame)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        over.store(true, Ordering::Release);
        Ok(join(sink)?? / seconds)
    })
}

/// Reads frames until it is over. Returns the number of bytes.
fn drain(from: &mut File, over: &AtomicBool) -> io::Result<f64> {
    let mut buffer = vec![0u8; 2 * FRAME];
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

fn tap(name: &str, headers: bool) -> anyhow::Result<File> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    attach_tap(device.as_fd(), name, headers)?;
    Ok(device)
}

/// A link between two namespaces.
#[derive(Clone, Copy)]
struct Link {
    mtu: u32,
    /// True if one in a hundred segments is lost in both directions.
    loses: bool,
}

impl Link {
    const CLEAN: Self = Self { mtu: 9000, loses: false };
    /// With 4,096 bytes in a segment, like those of the daemons: the kernel's TCP uses timestamps.
    const LOSSY: Self = Self { mtu: 4096 + 52, loses: true };

    /// Makes the link.
    fn make(self, host: &Namespace, peer: &Namespace) {
        let mtu = self.mtu;
        host.run(&format!(
            "ip link add near mtu {mtu} type veth peer name far mtu {mtu} netns {} && \
             ip addr add 10.99.0.1/24 dev near && ip link set near up",
            peer.name()
        ));
        peer.run("ip addr add 10.99.0.2/24 dev far && ip link set far up");
        if self.loses {
            // Each segment is lost by itself, and none as a part of a longer one.
            for (end, name) in [(host, "near"), (peer, "far")] {
                end.run(&format!("ip link set {name} gso_max_segs 1 && {LOSE}"));
            }
        }
    }
}

/// Loses one in a hundred received packets.
const LOSE: &str = "iptables -A INPUT -m statistic --mode random --probability 0.01 -j DROP";

/// Returns whether packets can be lost on purpose, or prints why not.
fn may_lose(host: &Namespace) -> bool {
    let undo = LOSE.replace("-A", "-D");
    let able = host.try_run(&format!("{LOSE} && {undo}"));
    if let Err(error) = &able {
        eprintln!("TCP with losses is not measured: iptables: {error}");
    }
    able.is_ok()
}

/// Returns the bytes per second of one TCP connection between two namespaces.
fn tcp(host: &Namespace, peer: &Namespace, link: Link, span: Duration) -> anyhow::Result<f64> {
    const ADDRESS: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 99, 0, 2), 5201);
    link.make(host, peer);
    let rate = std::thread::scope(|scope| {
        let listener = join(scope.spawn(|| {
            peer.enter()?;
            TcpListener::bind(ADDRESS)
        }))??;
        let sink = scope.spawn(move || -> io::Result<f64> {
            let (mut stream, _) = listener.accept()?;
            let mut buffer = vec![0u8; 128 << 10];
            let mut bytes = 0f64;
            loop {
                match stream.read(&mut buffer)? {
                    0 => return Ok(bytes),
                    len => bytes += len as f64,
                }
            }
        });
        let mut stream = TcpStream::connect(ADDRESS)?;
        let data = vec![1u8; 128 << 10];
        let start = Instant::now();
        while start.elapsed() < span {
            stream.write_all(&data)?;
        }
        drop(stream);
        let bytes = join(sink)??;
        Ok(bytes / start.elapsed().as_secs_f64())
    });
    host.run("ip link del near");
    if link.loses {
        for end in [host, peer] {
            end.run(&LOSE.replace("-A", "-D"));
        }
    }
    rate
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> anyhow::Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked")).context("wire")
}
