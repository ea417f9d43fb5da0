//! Messages that travel as packets, between two functions of one daemon and between two daemons.
//!
//! The driver sleeps while nothing has completed, because two daemons have four busy threads. Only
//! the measurement of the latency spins.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`iwarp`] | messages in TCP connections, within a daemon and between two |
//! | [`toe`] | TCP streams by queue pairs |
//! | [`host`] | TAP devices on a bridge, and TCP of the host's network stack |
//! | [`bridge`] | a bridge with two TAP devices |
//! | [`relay`] | the limit of TAP devices on a bridge |

mod bridge;
mod host;
pub(crate) mod iwarp;
mod relay;
pub(crate) mod toe;

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use tempfile::TempDir;
use vrnic_abi::sq::Flags;
use vrnic_figures::{Link, Operation, Quantity, Subject, Way};
use vrnic_testdriver::qp::Setup;

use self::host::Messages;
use crate::latency;
use crate::rate::{Runs, encode};
use crate::report::Report;
use crate::rig::{LOG_WQES, Pair, Rig};
use crate::yardstick;

/// Sizes of messages in bytes, and the number of outstanding requests of each size.
const SIZES: [(u32, u32); 3] = [(8, 128), (4096, 128), LARGE];
const LARGE: (u32, u32) = (64 << 10, 32);
/// Bytes of a TCP segment, as many as a packet has of a path MTU of 4,096.
const SEGMENT: u16 = 4096;
/// Number of requests for each completion.
const BATCH: u32 = 4;
/// Time between two polls of the CQ.
const NAP: Duration = Duration::from_micros(20);
const LIMIT: Duration = Duration::from_secs(10);

/// Measures latency and rates within one daemon, and between two by a trunk and by TAP devices.
///
/// # Errors
/// When a daemon does not come up.
pub(crate) fn measure(report: &mut Report, daemon: &Path, runs: Runs) -> anyhow::Result<()> {
    let one = Rig::one_daemon(daemon, &["--workers", "1", "--fabric", "wire"])?;
    measure_pair(report, &mut Pair::new(&one, false), Way::Packets(Link::OneDaemon), runs)?;
    drop(one);
    trunk(report, daemon, runs)?;
    host::measure(report, daemon, Messages::Packets, runs)?;
    let Runs { repeats, span } = runs;
    let (mut bytes, mut round) = (0f64, f64::INFINITY);
    for _ in 0..repeats {
        bytes = bytes.max(yardstick::socket_bandwidth(span)?);
        round = round.min(yardstick::socket_ping_pong()?);
    }
    report.figure(Subject::Seqpacket, Quantity::Gigabytes, bytes / 1e9);
    report.figure(Subject::SeqpacketRound, Quantity::Micros, round);
    Ok(())
}

/// Measures a trunk, without losses and with the loss of one in a hundred packets.
fn trunk(report: &mut Report, daemon: &Path, runs: Runs) -> anyhow::Result<()> {
    let trunk = Trunk::start(daemon)?;
    measure_pair(report, &mut Pair::new(&trunk.rig, false), Way::Packets(Link::Trunk), runs)?;
    trunk.lose(daemon)?;
    let mut pair = Pair::with(&trunk.rig, Setup::default());
    large(report, &mut pair, Way::Packets(Link::LossyTrunk), runs)
}

/// Two daemons with a trunk between them.
struct Trunk {
    rig: Rig,
    /// The control sockets.
    controls: [String; 2],
    _folder: TempDir,
}

impl Trunk {
    fn start(daemon: &Path) -> anyhow::Result<Self> {
        Self::of(daemon, "roce")
    }

    /// Starts daemons with functions of this personality.
    fn of(daemon: &Path, personality: &str) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let [listen, connect] =
            ["listen", "connect"].map(|end| format!("name=up,{end}={}", path("trunk")));
        let controls = ["left", "right"].map(path);
        let rig = Rig::two_daemons_of(
            daemon,
            personality,
            [
                &["--uplink", &listen, "--control", &controls[0]],
                &["--uplink", &connect, "--control", &controls[1]],
            ],
        )?;
        Ok(Self { rig, controls, _folder: folder })
    }

    /// Lets both daemons lose one in a hundred packets that their functions send.
    fn lose(&self, daemon: &Path) -> anyhow::Result<()> {
        self.controls.iter().try_for_each(|control| lose(&daemon.with_file_name("vrnic"), control))
    }
}

/// Lets a daemon lose one in a hundred packets that its functions send.
fn lose(vrnic: &Path, control: &str) -> anyhow::Result<()> {
    let words = ["--control", control, "fault", "add", "drop", "prob=0.01", "seed=1"];
    let status = Command::new(vrnic).args(words).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("{} (beside vrnicd)", vrnic.display()))?;
    anyhow::ensure!(status.success(), "vrnic fault add failed");
    Ok(())
}

fn measure_pair(report: &mut Report, pair: &mut Pair, way: Way, runs: Runs) -> anyhow::Result<()> {
    let latency = latency::best(pair, runs.repeats)?;
    report.histogram(Subject::Latency(way), &latency);
    rates(report, pair, &SIZES, way, runs)
}

/// Measures long messages.
fn large(report: &mut Report, pair: &mut Pair, way: Way, runs: Runs) -> anyhow::Result<()> {
    rates(report, pair, &[LARGE], way, runs)
}

/// Measures messages of these sizes, with these numbers of outstanding requests.
fn rates(
    report: &mut Report,
    pair: &mut Pair,
    sizes: &[(u32, u32)],
    way: Way,
    runs: Runs,
) -> anyhow::Result<()> {
    for operation in [Operation::Write, Operation::Read] {
        for &(len, depth) in sizes {
            let load = Load { operation, len, depth };
            let [rate] = runs.best(|span| Ok([load.run(pair, span)]))?;
            let subject = Subject::Messages(len, operation, way);
            report.figure(subject, Quantity::Millions, rate / 1e6);
            report.figure(subject, Quantity::Gigabytes, rate * f64::from(len) / 1e9);
        }
    }
    Ok(())
}

/// Requests of one kind, and how many of them are outstanding.
#[derive(Clone, Copy)]
struct Load {
    operation: Operation,
    len: u32,
    depth: u32,
}

impl Load {
    /// Returns the operations per second of a run of at least `span`.
    fn run(self, pair: &mut Pair, span: Duration) -> f64 {
        let wqe = |flags| encode(pair, self.operation, self.len, flags);
        let (plain, signaled) = (wqe(Flags::empty()), wqe(Flags::SIGNALED));
        let (mut posted, mut done) = (0u32, 0u32);
        let start = Instant::now();
        loop {
            let over = start.elapsed() >= span;
            let mut any = false;
            while !over && posted - done + BATCH <= self.depth.min(1 << LOG_WQES) {
                for _ in 1..BATCH {
                    pair.a.store_encoded(&plain);
                }
                pair.a.store_encoded(&signaled);
                posted += BATCH;
                any = true;
            }
            if any {
                pair.a.ring();
            }
            if posted == done {
                return f64::from(done) / start.elapsed().as_secs_f64();
            }
            done += reap(pair);
        }
    }
}

/// Takes all completions, and waits for at least one. Returns the number of requests that have
/// ended.
fn reap(pair: &mut Pair) -> u32 {
    let since = Instant::now();
    while !pair.a.send_cq.ready() {
        std::thread::sleep(NAP);
        assert!(since.elapsed() < LIMIT, "no completion within {LIMIT:?}");
    }
    let mut done = 0;
    while pair.a.send_cq.ready() {
        pair.a.send_cq.poll_success();
        done += BATCH;
    }
    done
}

/// Waits until a thread has ended. Returns its result.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> anyhow::Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked")).context("wire")
}
