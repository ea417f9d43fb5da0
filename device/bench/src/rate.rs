//! Operations per second: as many in flight as the queue holds, a doorbell and a completion for
//! each batch.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use anyhow::Context;
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_testdriver::wr::Wr;

use crate::rig::{LOG_WQES, Pair, Rig};

/// Longest wait for a completion.
const LIMIT: Duration = Duration::from_secs(10);
/// Looks at the CQ between two looks at the clock.
const LOOKS: u32 = 1 << 16;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Read,
    Send,
}

/// Runs of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs {
    /// Number of runs; the best one counts.
    pub(crate) repeats: u32,
    /// Shortest time of a run.
    pub(crate) span: Duration,
}

impl Runs {
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

    /// The one with the higher rate; a run that did nothing has none.
    pub(crate) fn better(self, other: Self) -> Self {
        let beaten = self.operations == 0 || self.per_second() < other.per_second();
        if beaten { other } else { self }
    }

    /// Processor time of the worker for each operation in ns. Unlike the rate it does not suffer
    /// from other programs that take turns on the worker's processor.
    pub(crate) fn worker_ns(&self) -> f64 {
        self.worker_seconds * 1e9 / f64::from(self.operations)
    }
}

/// The run with the highest rate.
///
/// # Errors
/// When an operation fails.
pub(crate) fn best(
    rig: &Rig,
    pair: &mut Pair,
    kind: Kind,
    len: u32,
    Runs { repeats, span }: Runs,
) -> anyhow::Result<Rate> {
    let runs = (0..repeats).map(|_| run(rig, pair, kind, len, span));
    let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
    let best = runs.into_iter().max_by(|a, b| a.per_second().total_cmp(&b.per_second()));
    best.context("no run was asked for")
}

/// One run of at least `span`.
///
/// # Errors
/// When an operation fails.
pub(crate) fn run(
    rig: &Rig,
    pair: &mut Pair,
    kind: Kind,
    len: u32,
    span: Duration,
) -> anyhow::Result<Rate> {
    let wqe = |flags| encode(pair, kind, len, flags);
    let (plain, signaled) = (wqe(Flags::empty()), wqe(Flags::SIGNALED));
    let batch = if len < 64 << 10 { 16 } else { 4 };
    let (mut posted, mut done) = (0u32, 0u32);
    let worker = rig.worker_time()?;
    let start = Instant::now();
    loop {
        let over = start.elapsed() >= span;
        while !over && posted - done + batch <= 1 << LOG_WQES {
            if kind == Kind::Send {
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
        if kind == Kind::Send {
            for _ in 0..batch {
                pair.b.recv_cq.poll_success();
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let worker_seconds = Duration::from_nanos(rig.worker_time()? - worker).as_secs_f64();
    Ok(Rate { operations: done, seconds, worker_seconds })
}

fn encode(pair: &Pair, kind: Kind, len: u32, flags: Flags) -> Vec<u8> {
    let Pair { a, b } = pair;
    let opcode = match kind {
        Kind::Write => Opcode::Write,
        Kind::Read => Opcode::Read,
        Kind::Send => Opcode::Send,
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
    let mut looks = 0u32;
    while !a.send_cq.ready() {
        spin_loop();
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS) {
            let since: &mut Instant = since.get_or_insert_with(Instant::now);
            assert!(since.elapsed() < LIMIT, "no completion within {LIMIT:?}");
        }
    }
    a.send_cq.poll_success();
}
