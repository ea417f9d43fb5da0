//! Messages through the network stack of the host: two daemons with TAP devices on a bridge, in a
//! network namespace. The limits are measured next to them: the same bridge without daemons, and
//! TCP over a veth device.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use vrnic_figures::{Link, Subject, Way};
use vrnic_testdriver::namespace::Namespace;
use vrnic_testdriver::qp::Setup;

use super::bridge::{Bridge, tap};
use super::relay::{Frames, relay};
use super::{SEGMENT, join, large};
use crate::rate::Runs;
use crate::report::Report;
use crate::rig::{Pair, Rig};

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
            for (headers, link) in [(true, Link::JoinedTap), (false, Link::SingleTap)] {
                let bridge = Bridge::new(&host);
                let rig = daemons(daemon, headers)?;
                let (mut pair, way) = match messages {
                    Messages::Packets => (Pair::with(&rig, Setup::default()), Way::Packets(link)),
                    Messages::Iwarp => (Pair::in_stream(&rig, SEGMENT), Way::Iwarp(link)),
                };
                large(report, &mut pair, way, runs)?;
                drop((pair, rig, bridge));
            }
            let (frames, subject) = match messages {
                Messages::Packets => (Frames::single(), Subject::BareFrames),
                Messages::Iwarp => (Frames::joined(), Subject::BareSegments),
            };
            let [bare] = runs.best(|span| Ok([relay(&host, &frames, span)?]))?;
            report.bandwidth(subject, bare, &[]);
            let [rate] = runs.best(|span| Ok([tcp(&host, &peer, Veth::CLEAN, span)?]))?;
            report.bandwidth(Subject::Tcp, rate, &[]);
            if messages == Messages::Iwarp && may_lose(&host) {
                let runs = runs.of_losses();
                let [rate] = runs.best(|span| Ok([tcp(&host, &peer, Veth::LOSSY, span)?]))?;
                report.bandwidth(Subject::LossyTcp, rate, &[]);
            }
            Ok(())
        });
        join(measured)?
    })
}

/// The rates of TCP of the host's network stack in bytes per second, as far as this machine can
/// measure them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TcpRates {
    /// Without losses, with an MTU of 9000.
    pub(super) clean: Option<f64>,
    /// With the loss of one in a hundred segments of 4,096 bytes.
    pub(super) lossy: Option<f64>,
}

/// Measures TCP of the host's network stack.
///
/// # Errors
/// If the kernel refuses a connection.
pub(super) fn tcp_alone(report: &mut Report, runs: Runs) -> anyhow::Result<TcpRates> {
    let mut rates = TcpRates::default();
    let (Some(host), Some(peer)) = (Namespace::new(), Namespace::new()) else { return Ok(rates) };
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            host.enter()?;
            let [rate] = runs.best(|span| Ok([tcp(&host, &peer, Veth::CLEAN, span)?]))?;
            report.bandwidth(Subject::Tcp, rate, &[]);
            rates.clean = Some(rate);
            if may_lose(&host) {
                let runs = runs.of_losses();
                let [rate] = runs.best(|span| Ok([tcp(&host, &peer, Veth::LOSSY, span)?]))?;
                report.bandwidth(Subject::LossyTcp, rate, &[]);
                rates.lossy = Some(rate);
            }
            anyhow::Ok(rates)
        });
        join(measured)?
    })
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

/// A link between two namespaces.
#[derive(Clone, Copy)]
struct Veth {
    mtu: u32,
    /// True if one in a hundred segments is lost in both directions.
    loses: bool,
}

impl Veth {
    const CLEAN: Self = Self { mtu: 9000, loses: false };
    /// A segment carries 4,096 bytes, as a segment of the daemons does. The 52 bytes of headers
    /// include the timestamps of the kernel's TCP.
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

/// Returns whether losses of packets can be simulated, or prints why not.
fn may_lose(host: &Namespace) -> bool {
    let undo = LOSE.replace("-A", "-D");
    let able = host.try_run(&format!("{LOSE} && {undo}"));
    if let Err(error) = &able {
        eprintln!("TCP with losses is not measured: iptables: {error}");
    }
    able.is_ok()
}

/// Returns the bytes per second of one TCP connection between two namespaces.
fn tcp(host: &Namespace, peer: &Namespace, link: Veth, span: Duration) -> anyhow::Result<f64> {
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
