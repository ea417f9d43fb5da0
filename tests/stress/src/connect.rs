//! iWARP connections that many threads begin, use and end at random: several identifiers connect
//! one QP at the same time, while another thread destroys it.

use std::fmt::Debug;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;
use std::{hint, process};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::Args;

use crate::answer::Answer;
use crate::common::Common;
use vrnic_verbs::cm::{Connection, News, Wishes};
use vrnic_verbs::prng::Rng;
use vrnic_verbs::qp::Qp;

/// Maximum number of identifiers that connect one QP.
const IDS_MAX: u64 = 3;
/// Maximum number of turns of a loop that a thread waits before it acts.
const DELAY: u64 = 4000;
/// Time limit for the outcome of a connection.
const OUTCOME: Duration = Duration::from_secs(20);
/// Time limit for a round.
const ROUND: Duration = Duration::from_secs(40);

/// Lengths of the private data of rejections.
const REASONS: [u8; 5] = [1, 2, 20, 64, 196];

/// The server, and the number of rounds.
#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// Address of `vrnic-stress answer`.
    address: Ipv4Addr,
    /// Port of `vrnic-stress answer`.
    #[arg(long, default_value_t = 7174)]
    port: u16,
    /// Queue pairs.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// Seed of the random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Returns the wishes of a connection of this QP, with the answer that it wants.
fn wishes(qpn: u32, private: &[u8]) -> Wishes<'_> {
    Wishes { qpn, srq: false, depth: 1, private }
}

/// Counts of events, which show the caller that something has happened.
#[derive(Debug, Default)]
struct Counts {
    established: u64,
    rejected: u64,
    /// Calls that have failed because the QP had another connection, or did not exist any more.
    refused: u64,
    /// Connections whose QP was destroyed at the same time.
    destroyed: u64,
}

/// Connects QPs, each by several identifiers at the same time, and destroys them at random times.
/// All connections must end.
pub(crate) fn run(options: &Connect) -> Result<()> {
    let to = SocketAddrV4::new(options.address, options.port);
    let common = Common::new()?;
    let (mut rng, mut counts) = (Rng::new(options.seed), Counts::default());
    let round = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| watch(&round));
        let result = (0..options.rounds).try_for_each(|number| {
            round.store(number + 1, Ordering::Relaxed);
            one(&common, to, &mut rng, &mut counts).with_context(|| format!("round {number}"))
        });
        round.store(0, Ordering::Relaxed);
        result
    })?;
    // The last connections end with the process.
    let left = [Connection::resolved(to)?, Connection::resolved(to)?];
    let private = Answer::Keep.request();
    for connection in &left {
        connection.connect(wishes(common.qp()?.number(), &private))?;
    }
    ensure!(left[0].news(OUTCOME)? == Some(News::Established), "no connection at the end");
    println!("ok {counts:?}");
    Ok(())
}

/// A server of `vrnic-stress answer` that rejects.
#[derive(Debug, Args)]
pub(crate) struct Reject {
    /// Address of `vrnic-stress answer`.
    address: Ipv4Addr,
    /// Port of `vrnic-stress answer`.
    #[arg(long, default_value_t = 7174)]
    port: u16,
}

/// Sends requests that are rejected with private data of several lengths.
pub(crate) fn rejected(options: &Reject) -> Result<()> {
    let to = SocketAddrV4::new(options.address, options.port);
    let common = Common::new()?;
    for len in REASONS {
        let request = Answer::Reject.request_of(len);
        let qp = common.qp()?;
        let id = Connection::resolved(to)?;
        id.connect(wishes(qp.number(), &request))?;
        let news = id.news(OUTCOME)?.context("a request has no answer")?;
        ensure!(news == News::Rejected(request), "{len} bytes: {news:?}");
        id.destroy().map_err(|(_, error)| error)?;
        destroy(Some(qp))?;
    }
    println!("ok {} rejections", REASONS.len());
    Ok(())
}

/// Ends the process if a round takes too long, because its threads hang in the kernel then.
fn watch(round: &AtomicU64) {
    let (mut last, mut same) = (0, Duration::ZERO);
    let interval = Duration::from_millis(100);
    loop {
        thread::sleep(interval);
        match round.load(Ordering::Relaxed) {
            0 => return,
            now if now == last => same += interval,
            now => (last, same) = (now, Duration::ZERO),
        }
        if same > ROUND {
            eprintln!("vrnic-stress: round {} does not end", last - 1);
            process::exit(3);
        }
    }
}

/// Connects a QP by several identifiers, and destroys it before that, at the same time, or at the
/// end.
fn one(common: &Common, to: SocketAddrV4, rng: &mut Rng, counts: &mut Counts) -> Result<()> {
    let qp = common.qp()?;
    let count = 1 + rng.below(IDS_MAX);
    let ids = (0..count).map(|_| Connection::resolved(to)).collect::<io::Result<Vec<_>>>()?;
    let destroys = rng.below(2) == 0;
    let answer = Answer::chosen(rng);
    let begun = begin(qp, &ids, &answer.request(), destroys, rng)?;
    let (mut qp, mut established) = (begun.qp, 0);
    ensure!(destroys || begun.results.iter().any(Result::is_ok), "none: {:?}", begun.results);
    if rng.below(4) > 0 {
        for (id, result) in ids.iter().zip(&begun.results) {
            let answered = !(answer == Answer::Silence && qp.is_some());
            if result.is_ok() && answered && count_news(id, counts)? {
                established += 1;
            }
        }
        ensure!(established <= 1, "{established} connections of one queue pair");
    }
    counts.refused += begun.results.iter().filter(|result| result.is_err()).count() as u64;
    counts.destroyed += u64::from(destroys);
    for id in ids {
        if rng.below(3) == 0 {
            destroy(qp.take())?;
        }
        match rng.below(3) {
            0 => id.close(),
            1 => {
                // The identifier may not be connected.
                let _ = id.disconnect();
                id.destroy().map_err(|(_, error)| error)?;
            }
            _ => id.destroy().map_err(|(_, error)| error)?,
        }
    }
    destroy(qp)
}

/// Waits for the outcome of an attempt to connect. Returns whether it was established.
fn count_news(id: &Connection, counts: &mut Counts) -> Result<bool> {
    match id.news(OUTCOME)?.context("an attempt to connect has no outcome")? {
        News::Established => counts.established += 1,
        News::Rejected(_) => {
            counts.rejected += 1;
            return Ok(false);
        }
        News::Failed => return Ok(false),
        news => bail!("the first news of a connection are {news:?}"),
    }
    Ok(true)
}

fn destroy(qp: Option<Qp>) -> Result<()> {
    let Some(qp) = qp else { return Ok(()) };
    qp.destroy().map_err(|(_, error)| error).context("a queue pair cannot be destroyed")
}

/// Attempts that were begun, and the QP if it was not destroyed.
struct Begun {
    results: Vec<io::Result<()>>,
    qp: Option<Qp>,
}

/// Connects a QP by all identifiers at the same time, each after a random delay. May destroy the QP
/// at the same time, too.
fn begin(
    qp: Qp,
    ids: &[Connection],
    private: &[u8],
    destroys: bool,
    rng: &mut Rng,
) -> Result<Begun> {
    let (ready, all) = (AtomicUsize::new(0), ids.len() + 1);
    let wait = |delay: u64| {
        ready.fetch_add(1, Ordering::AcqRel);
        while ready.load(Ordering::Acquire) < all {
            thread::yield_now();
        }
        (0..delay).for_each(|_| hint::spin_loop());
    };
    let (number, wait) = (qp.number(), &wait);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for id in ids {
            let delay = rng.below(DELAY);
            threads.push(scope.spawn(move || {
                wait(delay);
                id.connect(wishes(number, private))
            }));
        }
        wait(rng.below(DELAY));
        let qp = if destroys {
            destroy(Some(qp))?;
            None
        } else {
            Some(qp)
        };
        let results = threads.into_iter().map(joined).collect::<Result<_>>()?;
        Ok(Begun { results, qp })
    })
}

fn joined<T: Debug>(thread: ScopedJoinHandle<'_, T>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked"))
}
