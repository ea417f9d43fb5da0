//! Messages that travel as packets, between two functions of one daemon and between two daemons.
//!
//! The driver sleeps while nothing has completed, because two daemons have four busy threads. Only
//! the measurement of the latency spins.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_testdriver::wr::Wr;

use crate::latency;
use crate::report::Report;
use crate::rig::{LOG_WQES, Pair, Rig};
use crate::yardstick;

/// Sizes of messages in bytes, and the number of outstanding requests of each size.
const SIZES: [(u32, u32); 3] = [(8, 128), (4096, 128), (64 << 10, 32)];
/// Number of requests for each completion.
const BATCH: u32 = 4;
/// Time between two polls of the CQ.
const NAP: Duration = Duration::from_micros(20);
const LIMIT: Duration = Duration::from_secs(10);

/// Measures latency and rates within one daemon and between two.
///
/// # Errors
/// When a daemon does not come up.
pub(crate) fn measure(
    report: &mut Report,
    daemon: &Path,
    (repeats, span): (u32, Duration),
) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let trunk = folder.path().join("trunk");
    let [listen, connect] =
        ["listen", "connect"].map(|end| format!("name=up,{end}={}", trunk.display()));
    let one = Rig::one_daemon(daemon, &["--workers", "1", "--fabric", "wire"])?;
    way(report, &one, "one daemon", (repeats, span))?;
    drop(one);
    let two = Rig::two_daemons(daemon, [&listen, &connect])?;
    way(report, &two, "trunk", (repeats, span))?;
    drop(two);
    let (mut bytes, mut round) = (0f64, f64::INFINITY);
    for _ in 0..repeats {
        bytes = bytes.max(yardstick::socket_bandwidth(span)?);
        round = round.min(yardstick::socket_ping_pong()?);
    }
    report.figure("UNIX seqpacket, messages of 128 KiB, GB/s", bytes / 1e9);
    report.figure("UNIX seqpacket, round trip of two spinning threads, µs", round);
    Ok(())
}

fn way(
    report: &mut Report,
    rig: &Rig,
    name: &str,
    (repeats, span): (u32, Duration),
) -> anyhow::Result<()> {
    let mut pair = Pair::new(rig, false);
    let latency = latency::best(&mut pair, repeats)?;
    report.histogram(&format!("64 B WRITE, doorbell to CQE, packets, {name}"), &latency);
    for opcode in [Opcode::Write, Opcode::Read] {
        for (len, depth) in SIZES {
            let load = Load { opcode, len, depth };
            let rate = (0..repeats).map(|_| load.run(&mut pair, span)).fold(0f64, f64::max);
            let name = format!("{len} B {opcode:?}, packets, {name}");
            report.figure(&format!("{name}, million/s"), rate / 1e6);
            report.figure(&format!("{name}, GB/s"), rate * f64::from(len) / 1e9);
        }
    }
    Ok(())
}

/// Requests of one kind, and how many of them are outstanding.
#[derive(Clone, Copy)]
struct Load {
    opcode: Opcode,
    len: u32,
    depth: u32,
}

impl Load {
    /// Returns the operations per second of a run of at least `span`.
    fn run(self, pair: &mut Pair, span: Duration) -> f64 {
        let (plain, signaled) =
            (self.encode(pair, Flags::empty()), self.encode(pair, Flags::SIGNALED));
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

    fn encode(self, pair: &Pair, flags: Flags) -> Vec<u8> {
        let Pair { a, b } = pair;
        Wr::new(self.opcode, &[a.sge(0, self.len)]).to(b.buffer, b.key).flags(flags).encode()
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
