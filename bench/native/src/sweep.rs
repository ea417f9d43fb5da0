//! Many busy QPs, and many workers.

use std::hint::spin_loop;
use std::path::Path;
use std::time::{Duration, Instant};

use vrnic_abi::sq::{Flags, Opcode};
use vrnic_figures::{Quantity, Subject};
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::vfio::Endpoint;
use vrnic_testdriver::wr::Wr;

use crate::rate::Runs;
use crate::report::Report;
use crate::rig::Rig;

/// Busy QPs; each has a context and a doorbell page of its own, of which there are 1023.
const QPS: [usize; 4] = [1, 16, 128, 1000];
/// QPs of each thread that posts, when workers are counted.
const QPS_OF_THREAD: usize = 8;
/// The maximum number of workers.
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
pub(crate) fn measure(report: &mut Report, daemon: &Path, runs: Runs) -> anyhow::Result<()> {
    for count in QPS {
        let rig = Rig::start(daemon, 1, None)?;
        let mut flows = flows(&rig, count);
        let [rate] = runs.best(|span| Ok([run(&mut flows, span)]))?;
        report.figure(Subject::BusyQps(count), Quantity::Millions, rate / 1e6);
    }
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for workers in 1..=cpus.min(WORKERS) {
        let rig = Rig::start(daemon, workers, None)?;
        let mut both = [(); 2].map(|()| flows(&rig, QPS_OF_THREAD));
        let [rate] = runs.best(|span| {
            std::thread::scope(|scope| {
                let threads = both.each_mut().map(|flows| scope.spawn(|| run(flows, span)));
                Ok([threads.map(|thread| thread.join().expect("a posting thread")).iter().sum()])
            })
        })?;
        report.figure(Subject::Workers(workers), Quantity::Millions, rate / 1e6);
    }
    Ok(())
}

/// A connected QP and its requests.
struct Flow {
    from: Endpoint,
    /// The far end lives as long as the near one.
    _to: Endpoint,
    plain: Vec<u8>,
    signaled: Vec<u8>,
}

fn flows(rig: &Rig, count: usize) -> Vec<Flow> {
    let setup = Setup { region: 4096, log_cqes: 6, log_wqes: 6, log_stride: 7, ..Setup::default() };
    let [first, second] = &rig.guests;
    let ends = (Endpoint::new(first, setup), Endpoint::new(second, setup));
    let flow = |_| {
        let (from, to) = (ends.0.apart(setup), ends.1.apart(setup));
        Endpoint::connect_pair(&from, &to);
        let wqe = |flags| {
            let wr = Wr::new(Opcode::Write, &[from.sge(0, LEN)]);
            wr.to(to.buffer, to.key).flags(flags).encode()
        };
        let (plain, signaled) = (wqe(Flags::empty()), wqe(Flags::SIGNALED));
        Flow { from, _to: to, plain, signaled }
    };
    (0..count).map(flow).collect()
}

/// Operations per second: a batch to each QP in turn, of which each has at most two under way.
fn run(flows: &mut [Flow], span: Duration) -> f64 {
    let start = Instant::now();
    let mut done = 0f64;
    for flow in &mut *flows {
        flow.post();
    }
    while start.elapsed() < span {
        for flow in &mut *flows {
            flow.post();
            flow.reap();
            done += f64::from(BATCH);
        }
    }
    for flow in flows {
        flow.reap();
        done += f64::from(BATCH);
    }
    done / start.elapsed().as_secs_f64()
}

impl Flow {
    fn post(&mut self) {
        for _ in 1..BATCH {
            self.from.store_encoded(&self.plain);
        }
        self.from.store_encoded(&self.signaled);
        self.from.ring();
    }

    /// Waits for the completion of the oldest batch.
    fn reap(&mut self) {
        let send_cq = &mut self.from.send_cq;
        let start = Instant::now();
        let mut polls = 0u32;
        while !send_cq.ready() {
            spin_loop();
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(1 << 16) {
                // There are more workers than processors, so this gives them its processor.
                std::thread::yield_now();
                assert!(start.elapsed() < LIMIT, "no completion within {LIMIT:?}");
            }
        }
        send_cq.poll_success();
    }
}
