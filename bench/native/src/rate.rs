//! Operations per second: as many in flight as the queue holds, a doorbell and a completion for
//! each batch.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use vrnic_abi::sq::{Flags, Opcode};
use vrnic_figures::Operation;
use vrnic_testdriver::wr::Wr;

use crate::rig::{LOG_WQES, Pair, Rig};

/// Longest wait for a completion.
const LIMIT: Duration = Duration::from_secs(10);
/// Number of polls of the CQ between two readings of the clock.
const POLLS_PER_CLOCK_READ: u32 = 1 << 16;

/// Runs of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs {
    /// Number of runs; the best one counts.
    pub(crate) repeats: u32,
    /// Shortest time of a run.
    pub(crate) span: Duration,
}

impl Runs {
    /// Returns the highest of each of some rates. They are measured in turns, so that all meet the
    /// same disturbance.
    ///
    /// # Errors
    /// When a run fails.
    pub(crate) fn best<const N: usize>(
        self,
        mut run: impl FnMut(Duration) -> anyhow::Result<[f64; N]>,
    ) -> anyhow::Result<[f64; N]> {
        (0..self.repeats).try_fold([0f64; N], |best, _| {
            let rates = run(self.span)?;
            Ok(std::array::from_fn(|nth| best[nth].max(rates[nth])))
        })
    }

    /// Returns longer runs, for measurements with losses, which are not the same in each run.
    pub(crate) fn of_losses(self) -> Self {
        Self { span: self.span.max(Duration::from_secs(1)), ..self }
    }
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    operations: u32,
    seconds: f64,
    worker_seconds: f64,
}

impl Rate {
    /// Operations per second.
    pub(crate) fn per_second(&self) -> f64 {
        f64::from(self.operations) / self.seconds
    }

    /// Returns the run with the higher rate. A run that did nothing has none.
    pub(crate) fn better(self, other: Self) -> Self {
        let beaten = self.operations == 0 || self.per_second() < other.per_second();
        if beaten { other } else { self }
    }

    /// Returns the processor time of the worker in ns for each operation. Unlike the rate, it is
    /// not affected by other programs that take turns on the worker's processor.
    pub(crate) fn worker_ns(&self) -> f64 {
        self.worker_seconds * 1e9 / f64::from(self.operations)
    }
}

/// Returns the run with the highest rate.
///
/// # Errors
/// When an operation fails.
pub(crate) fn best(
    rig: &Rig,
    pair: &mut Pair,
    operation: Operation,
    len: u32,
    Runs { repeats, span }: Runs,
) -> anyhow::Result<Rate> {
    (0..repeats)
        .try_fold(Rate::default(), |best, _| Ok(best.better(run(rig, pair, operation, len, span)?)))
}

/// Makes one run of at least `span`.
///
/// # Errors
/// When an operation fails.
pub(crate) fn run(
    rig: &Rig,
    pair: &mut Pair,
    operation: Operation,
    len: u32,
    span: Duration,
) -> anyhow::Result<Rate> {
    let wqe = |flags| encode(pair, operation, len, flags);
    let (plain, signaled) = (wqe(Flags::empty()), wqe(Flags::SIGNALED));
    let batch = if len < 64 << 10 { 16 } else { 4 };
    let (mut posted, mut done) = (0u32, 0u32);
    let worker = rig.worker_time()?;
    let start = Instant::now();
    loop {
        let over = start.elapsed() >= span;
        while !over && posted - done + batch <= 1 << LOG_WQES {
            if operation == Operation::Send {
                post_receives(pair, batch, len);
            }
            for _ in 1..batch {
                pair.a.store_encoded(&plain);
            }
            pair.a.store_encoded(&signaled);
            pair.a.ring();
            posted += batch;
        }
        if posted == done {
            break;
        }
        await_batch(pair);
        done += batch;
        if operation == Operation::Send {
            for _ in 0..batch {
                pair.b.recv_cq.poll_success();
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let worker_seconds = Duration::from_nanos(rig.worker_time()? - worker).as_secs_f64();
    Ok(Rate { operations: done, seconds, worker_seconds })
}

/// Returns the entry of a request.
pub(crate) fn encode(pair: &Pair, operation: Operation, len: u32, flags: Flags) -> Vec<u8> {
    let Pair { a, b } = pair;
    let opcode = match operation {
        Operation::Write => Opcode::Write,
        Operation::Read => Opcode::Read,
        Operation::Send => Opcode::Send,
    };
    Wr::new(opcode, &[a.sge(0, len)]).to(b.buffer, b.key).flags(flags).encode()
}

fn post_receives(pair: &mut Pair, count: u32, len: u32) {
    let b = &mut pair.b;
    for _ in 0..count {
        let sge = b.sge(0, len);
        b.post_recv(1, &[sge]);
    }
}

/// Waits for the completion of the next batch.
pub(crate) fn await_batch(pair: &mut Pair) {
    let a = &mut pair.a;
    let mut since = None;
    let mut polls = 0u32;
    while !a.send_cq.ready() {
        spin_loop();
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_CLOCK_READ) {
            let since: &mut Instant = since.get_or_insert_with(Instant::now);
            assert!(since.elapsed() < LIMIT, "no completion within {LIMIT:?}");
        }
    }
    a.send_cq.poll_success();
}
