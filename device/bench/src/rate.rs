//! Operations per second: as many in flight as the queue holds, a doorbell and a completion for
//! each batch.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_testdriver::qp::Send;

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
    pair: &mut Pair<'_>,
    what: (Kind, u32),
    (repeats, span): (u32, Duration),
) -> anyhow::Result<Rate> {
    let runs = (0..repeats).map(|_| run(rig, pair, what, span));
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
    pair: &mut Pair<'_>,
    (kind, len): (Kind, u32),
    span: Duration,
) -> anyhow::Result<Rate> {
    let wqe = |flags| encode(pair, (kind, len), flags);
    let (plain, signaled) = (wqe(Flags::empty()), wqe(Flags::SIGNALED));
    let batch = if len < 64 << 10 { 16 } else { 4 };
    let (mut posted, mut done) = (0u32, 0u32);
    let worker = rig.worker_time()?;
    let start = Instant::now();
    loop {
        let over = start.elapsed() >= span;
        while !over && posted - done + batch <= 1 << LOG_WQES {
            if kind == Kind::Send {
                post_receives(pair, batch, len)?;
            }
            for _ in 1..batch {
                pair.a.qp.store_encoded(pair.a.guest, &plain)?;
            }
            pair.a.qp.store_encoded(pair.a.guest, &signaled)?;
            pair.a.qp.ring(pair.a.guest)?;
            posted += batch;
        }
        if posted == done {
            break;
        }
        await_batch(pair)?;
        done += batch;
        if kind == Kind::Send {
            for _ in 0..batch {
                pair.b.recv_cq.poll_success(pair.b.guest)?;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let worker_seconds = Duration::from_nanos(rig.worker_time()? - worker).as_secs_f64();
    Ok(Rate { operations: done, seconds, worker_seconds })
}

fn encode(pair: &Pair<'_>, (kind, len): (Kind, u32), flags: Flags) -> Vec<u8> {
    let Pair { a, b } = pair;
    let wr = match kind {
        Kind::Write => Send::new(Opcode::Write, 1).remote(b.buffer, b.key),
        Kind::Read => Send::new(Opcode::Read, 1).remote(b.buffer, b.key),
        Kind::Send => Send::new(Opcode::Send, 1),
    };
    wr.flags(flags).sges(&[a.sge(0, len)]).encode()
}

fn post_receives(pair: &mut Pair<'_>, count: u32, len: u32) -> anyhow::Result<()> {
    let b = &mut pair.b;
    for _ in 0..count {
        let sge = b.sge(0, len);
        b.qp.post_recv(b.guest, 1, &[sge])?;
    }
    Ok(())
}

/// Waits for the completion of the next batch.
///
/// # Errors
/// When none comes, or one with an error.
pub(crate) fn await_batch(pair: &mut Pair<'_>) -> anyhow::Result<()> {
    let a = &mut pair.a;
    let mut since = None;
    let mut looks = 0u32;
    while !a.send_cq.ready(a.guest)? {
        spin_loop();
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS) {
            let since: &mut Instant = since.get_or_insert_with(Instant::now);
            ensure!(since.elapsed() < LIMIT, "no completion within {LIMIT:?}");
        }
    }
    a.send_cq.poll_success(a.guest)
}
