//! Threads of one process on one context.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

use crate::loopback::{LEN, Own, connect, region};
use vrnic_verbs::context::Context;
use vrnic_verbs::cq::Cq;
use vrnic_verbs::memory::Pd;
use vrnic_verbs::model::{DeviceInfo, Op, QpCap, SendWr, Sge, flags, qp_type};
use vrnic_verbs::qp::{InitAttr, Qp};
use vrnic_verbs::srq::Srq;

/// Number of threads of each kind.
const THREADS: u64 = 8;
/// Number of messages, or rounds, of each thread.
const ROUNDS: u64 = 60;
/// Time limit for a message.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Objects that all threads share.
struct Common {
    context: Context,
    info: DeviceInfo,
    pd: Pd,
    cq: Cq,
    /// A QP that is connected to itself.
    qp: Qp,
    /// For each thread, the last message whose completion was taken by any thread.
    done: [AtomicU64; THREADS as usize],
    /// True if a thread has failed. The others stop then.
    failed: AtomicBool,
}

/// Runs threads with separate queues, threads that share one QP and one CQ, and threads that create
/// and destroy objects, all at the same time.
pub(crate) fn run() -> Result<()> {
    let context = Context::open(None)?;
    let info = context.info()?;
    let pd = Pd::new(&context)?;
    let cq = Cq::new(&context, 4 * THREADS as i32, None, 0, false)?;
    let cap = QpCap { send_wr: THREADS as u32, recv_wr: 1, send_sge: 1, recv_sge: 1, inline: 0 };
    let (qp, _) = Qp::new(&InitAttr::new(&pd, &cq, cap))?;
    connect(&qp, qp_type::RC, &info)?;
    let done = [const { AtomicU64::new(0) }; THREADS as usize];
    let common = Common { context, info, pd, cq, qp, done, failed: AtomicBool::new(false) };
    thread::scope(|scope| {
        let mut all = Vec::new();
        for index in 0..THREADS {
            let common = &common;
            all.push(spawn(scope, common, "a thread's own queues", move || own(common, index)));
            all.push(spawn(scope, common, "a shared queue", move || share(common, index)));
            all.push(spawn(scope, common, "making objects", move || make(common)));
        }
        all.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow!("a thread panicked")).flatten()
        })
    })?;
    let Common { pd, cq, qp, .. } = common;
    qp.destroy().map_err(|(_, e)| e).context("the shared queue pair")?;
    cq.destroy().map_err(|(_, e)| e).context("the shared completion queue")?;
    pd.destroy().map_err(|(_, e)| e).context("the shared PD")?;
    println!("ok {} threads", 3 * THREADS);
    Ok(())
}

/// Starts a thread. `what` is its description in messages.
fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    common: &'scope Common,
    what: &'static str,
    run: impl FnOnce() -> io::Result<()> + Send + 'scope,
) -> thread::ScopedJoinHandle<'scope, Result<()>> {
    scope.spawn(move || {
        let result = run().context(what);
        common.failed.fetch_or(result.is_err(), Ordering::Relaxed);
        result
    })
}

/// Sends messages on the thread's own queues.
fn own(common: &Common, index: u64) -> io::Result<()> {
    let own = Own::new(&common.context, &common.info)?;
    (0..ROUNDS).try_for_each(|round| own.write(index << 32 | round))?;
    own.destroy()
}

/// Sends messages on shared queues. A thread that polls also gets completions of other threads.
fn share(common: &Common, index: u64) -> io::Result<()> {
    let (buffer, mr) = region(&common.pd, 2 * LEN)?;
    let (lkey, rkey) = mr.keys();
    for round in 1..=ROUNDS {
        let seed = index << 32 | round;
        buffer.fill(0, LEN, seed, 0)?;
        let write = SendWr {
            wr_id: seed,
            op: Op::Write,
            flags: flags::SIGNALED,
            sges: vec![Sge { addr: buffer.addr(), length: LEN as u32, lkey }],
            raddr: buffer.addr() + LEN as u64,
            rkey,
            ..SendWr::default()
        };
        common.qp.post_send(&[write]).map_err(|refused| refused.error)?;
        let end = Instant::now() + TIMEOUT;
        while common.done(index).load(Ordering::Acquire) < round {
            common.poll()?;
            if Instant::now() > end || common.failed.load(Ordering::Relaxed) {
                return Err(io::Error::other(format!("message {round} does not complete")));
            }
        }
        if let Some(wrong) = buffer.compare(LEN, LEN, seed, 0)? {
            return Err(io::Error::other(format!("not what was written: {wrong:?}")));
        }
    }
    mr.destroy().map_err(|(_, e)| e)?;
    buffer.unmap()
}

impl Common {
    fn done(&self, index: u64) -> &AtomicU64 {
        &self.done[index as usize]
    }

    /// Takes a completion, which may belong to any thread.
    fn poll(&self) -> io::Result<()> {
        match self.cq.poll(1)?.first() {
            Some(wc) if wc.status != 0 => Err(io::Error::other(format!("{wc:?}"))),
            Some(wc) => {
                let (index, round) = (wc.wr_id >> 32, wc.wr_id & u64::from(u32::MAX));
                self.done(index).store(round, Ordering::Release);
                Ok(())
            }
            None => {
                thread::yield_now();
                Ok(())
            }
        }
    }
}

/// Creates objects in the shared PD, and destroys them.
fn make(common: &Common) -> io::Result<()> {
    for round in 0..ROUNDS {
        let cq = Cq::new(&common.context, 1 + round as i32, None, 0, false)?;
        let (srq, _) = Srq::new(&common.pd, 16, 1)?;
        let cap = QpCap { send_wr: 16, recv_wr: 0, send_sge: 1, recv_sge: 0, inline: 64 };
        let init = InitAttr::new(&common.pd, &common.cq, cap);
        let (qp, _) = Qp::new(&InitAttr { send_cq: &cq, srq: Some(&srq), ..init })?;
        let (buffer, mr) = region(&common.pd, 4096 << (round % 5))?;
        mr.destroy().map_err(|(_, e)| e)?;
        buffer.unmap()?;
        qp.destroy().map_err(|(_, e)| e)?;
        srq.destroy().map_err(|(_, e)| e)?;
        cq.destroy().map_err(|(_, e)| e)?;
    }
    Ok(())
}
