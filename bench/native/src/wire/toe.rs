//! TCP streams by queue pairs (TOE), within a daemon and between two, next to TCP of the host's
//! network stack and iWARP.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_figures::{Link, Operation, Quantity, Subject, Way};
use vrnic_testdriver::wr::Wr;

use super::{BATCH, LARGE, LIMIT, Load, NAP, SEGMENT, Trunk, host};
use crate::rate::Runs;
use crate::report::Report;
use crate::rig::{Pair, Rig};

/// Bytes of a send and of a receive, and the number of each that are outstanding.
const PART: u32 = LARGE.0;
const SENDS: u32 = LARGE.1;
const RECEIVES: u64 = 64;

/// Measures sends of 64 KiB.
///
/// # Errors
/// When a daemon does not come up, or the command `vrnic` fails.
pub(crate) fn measure(report: &mut Report, daemon: &Path, runs: Runs) -> anyhow::Result<()> {
    let tcp = host::tcp_alone(report, runs)?;
    one_daemon(report, daemon, runs)?;
    let trunk = Trunk::of(daemon, "iwarp")?;
    let mut pair = Stream::new(&trunk.rig);
    let [rate] = runs.best(|span| Ok([pair.run(span)?]))?;
    let subject = Subject::Stream(PART >> 10, Link::Trunk);
    report.bandwidth(subject, rate, &[]);
    if let Some(clean) = tcp.clean {
        report.figure(subject, Quantity::ToTcp, rate / clean);
    }
    trunk.lose(daemon)?;
    let [rate] = runs.of_losses().best(|span| Ok([pair.run(span)?]))?;
    let subject = Subject::Stream(PART >> 10, Link::LossyTrunk);
    report.bandwidth(subject, rate, &[]);
    if let Some(lossy) = tcp.lossy {
        report.figure(subject, Quantity::ToTcp, rate / lossy);
    }
    Ok(())
}

/// Measures a stream within a daemon, in turns with WRITEs of iWARP that travel as segments, too.
fn one_daemon(report: &mut Report, daemon: &Path, runs: Runs) -> anyhow::Result<()> {
    let args = ["--workers", "1", "--fabric", "wire"];
    // Both connections have the same addresses.
    let of_bytes = Rig::one_daemon_of(daemon, "iwarp", &args)?;
    let of_messages = Rig::one_daemon_of(daemon, "iwarp", &args)?;
    let mut stream = Stream::new(&of_bytes);
    let mut iwarp = Pair::in_stream(&of_messages, SEGMENT);
    let load = Load { operation: Operation::Write, len: PART, depth: SENDS };
    let [bytes, writes] = runs.best(|span| {
        let writes = load.run(&mut iwarp, span) * f64::from(PART);
        Ok([stream.run(span)?, writes])
    })?;
    let messages = Subject::Messages(PART, Operation::Write, Way::Iwarp(Link::OneDaemon));
    let other = (messages, writes, Quantity::ToIwarp);
    report.bandwidth(Subject::Stream(PART >> 10, Link::OneDaemon), bytes, &[other]);
    Ok(())
}

/// A connected pair; `a` sends.
struct Stream {
    pair: Pair,
    /// Number of receives that were posted.
    posted: u64,
    /// Number of receives that were completed.
    full: u64,
}

impl Stream {
    fn new(rig: &Rig) -> Self {
        Self { pair: Pair::of_bytes(rig, SEGMENT), posted: 0, full: 0 }
    }

    /// Returns the bytes per second of a run of at least `span`: those that were received and
    /// acknowledged.
    fn run(&mut self, span: Duration) -> anyhow::Result<f64> {
        let part = self.pair.a.sge(0, PART);
        let wqe = |flags| Wr::new(Opcode::Send, &[part]).flags(flags).encode();
        let (plain, signaled) = (wqe(Flags::empty()), wqe(Flags::SIGNALED));
        let (mut sent, mut done) = (0u32, 0u32);
        let (start, before) = (Instant::now(), self.full);
        let mut since = start;
        loop {
            let over = start.elapsed() >= span;
            let mut any = false;
            while !over && sent - done + BATCH <= SENDS {
                for _ in 1..BATCH {
                    self.pair.a.store_encoded(&plain);
                }
                self.pair.a.store_encoded(&signaled);
                sent += BATCH;
                any = true;
            }
            if any {
                self.pair.a.ring();
            }
            self.receive();
            let received = self.full - before;
            if over && sent == done && received == u64::from(sent) {
                let bytes = f64::from(sent) * f64::from(PART);
                return Ok(bytes / start.elapsed().as_secs_f64());
            }
            if self.pair.a.send_cq.ready() {
                self.pair.a.send_cq.poll_success();
                done += BATCH;
                since = Instant::now();
            } else {
                ensure!(since.elapsed() < LIMIT, "no completion within {LIMIT:?}");
                std::thread::sleep(NAP);
            }
        }
    }

    /// Takes completions of receives, and keeps enough of them posted.
    fn receive(&mut self) {
        let b = &mut self.pair.b;
        while b.recv_cq.ready() {
            b.recv_cq.poll_success();
            self.full += 1;
        }
        while self.posted < self.full + RECEIVES {
            let sge = b.sge(0, PART);
            b.post_recv(1, &[sge]);
            self.posted += 1;
        }
    }
}
