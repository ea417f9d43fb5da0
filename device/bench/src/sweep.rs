//! Many busy QPs, and many workers.

use std::hint::spin_loop;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_testdriver::endpoint::{Endpoint, EndpointSetup};
use vrnic_testdriver::qp::Send;

use crate::report::Report;
use crate::rig::Rig;

/// Busy QPs; each has a context and a doorbell page of its own, of which there are 1023.
const QPS: [usize; 4] = [1, 16, 128, 1000];
/// QPs of each thread that posts, when workers are counted.
const QPS_OF_THREAD: usize = 8;
/// Most workers.
const WORKERS: usize = 4;
/// Requests posted to a QP together.
const BATCH: u32 = 16;
/// Bytes of a request.
const LEN: u32 = 64;
const LIMIT: Duration = Duration::from_secs(10);

/// Measures the rate over more and more QPs, and with more and more workers.
///
/// # Errors
/// When an operation fails.
pub(crate) fn measure(
    report: &mut Report,
    daemon: &Path,
    (repeats, span): (u32, Duration),
) -> anyhow::Result<()> {
    for count in QPS {
        let rig = Rig::start(daemon, 1, None)?;
        let mut flows = flows(&rig, count)?;
        let rate = best(repeats, || run(&mut flows, span))?;
        report.figure(&format!("64 B Write over {count} busy QPs, million/s"), rate / 1e6);
    }
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for workers in 1..=cpus.min(WORKERS) {
        let rig = Rig::start(daemon, workers, None)?;
        let mut both = [flows(&rig, QPS_OF_THREAD)?, flows(&rig, QPS_OF_THREAD)?];
        let rate = best(repeats, || {
            std::thread::scope(|scope| {
                let threads = both.each_mut().map(|flows| scope.spawn(|| run(flows, span)));
                let rates = threads.map(|thread| {
                    thread.join().map_err(|_| anyhow!("a posting thread panicked"))?
                });
                rates.into_iter().sum::<anyhow::Result<f64>>()
            })
        })?;
        let name = format!("64 B Write, 2 posting threads, {workers} workers, million/s");
        report.figure(&name, rate / 1e6);
    }
    Ok(())
}

fn best(repeats: u32, mut run: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    (0..repeats).try_fold(0f64, |best, _| Ok(best.max(run()?)))
}

/// A connected QP and its requests.
struct Flow<'a> {
    from: Endpoint<'a>,
    /// The far end lives as long as the near one.
    _to: Endpoint<'a>,
    plain: Vec<u8>,
    signaled: Vec<u8>,
}

fn flows(rig: &Rig, count: usize) -> anyhow::Result<Vec<Flow<'_>>> {
    let setup = EndpointSetup {
        buffer: 4096,
        log_cqes: 6,
        log_wqes: 6,
        log_stride: 7,
        ..EndpointSetup::default()
    };
    let [first, second] = &rig.guests;
    let ends = (Endpoint::new(first, &setup)?, Endpoint::new(second, &setup)?);
    let flow = |_| {
        let (from, to) = (Endpoint::beside(&ends.0, &setup)?, Endpoint::beside(&ends.1, &setup)?);
        Endpoint::connect(&from, &to)?;
        let wqe = |flags| {
            let wr = Send::new(Opcode::Write, 1).remote(to.buffer, to.key).flags(flags);
            wr.sges(&[from.sge(0, LEN)]).encode()
        };
        let (plain, signaled) = (wqe(Flags::empty()), wqe(Flags::SIGNALED));
        Ok(Flow { from, _to: to, plain, signaled })
    };
    (0..count).map(flow).collect()
}

/// Operations per second: a batch to each QP in turn, of which each has at most two under way.
fn run(flows: &mut [Flow<'_>], span: Duration) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut done = 0f64;
    for flow in &mut *flows {
        flow.post()?;
    }
    while start.elapsed() < span {
        for flow in &mut *flows {
            flow.post()?;
            flow.reap()?;
            done += f64::from(BATCH);
        }
    }
    for flow in flows {
        flow.reap()?;
        done += f64::from(BATCH);
    }
    Ok(done / start.elapsed().as_secs_f64())
}

impl Flow<'_> {
    fn post(&mut self) -> anyhow::Result<()> {
        let Endpoint { qp, guest, .. } = &mut self.from;
        for _ in 1..BATCH {
            qp.store_encoded(guest, &self.plain)?;
        }
        qp.store_encoded(guest, &self.signaled)?;
        qp.ring(guest)
    }

    /// Waits for the completion of the oldest batch.
    fn reap(&mut self) -> anyhow::Result<()> {
        let Endpoint { send_cq, guest, .. } = &mut self.from;
        let start = Instant::now();
        let mut looks = 0u32;
        while !send_cq.ready(guest)? {
            spin_loop();
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 16) {
                // More workers than processors: let them have this one.
                std::thread::yield_now();
                ensure!(start.elapsed() < LIMIT, "no completion within {LIMIT:?}");
            }
        }
        send_cq.poll_success(guest).context("a request of the sweep")
    }
}
