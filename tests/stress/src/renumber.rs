//! iWARP QPs whose numbers are used again at once: threads create, connect and destroy QPs on an
//! adapter that has few.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;

use crate::answer::Answer;
use crate::common::Common;
use vrnic_verbs::cm::{Connection, Wishes};
use vrnic_verbs::qp::Qp;

/// Number of threads. The adapter should have fewer QPs.
const THREADS: u32 = 4;
/// Time for which a connection must stay if neither end closes it.
const STAYS: Duration = Duration::from_millis(2);
/// Time limit in which another thread destroys a QP.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The server, and how long.
#[derive(Debug, Args)]
pub(crate) struct Renumber {
    /// Address of `vrnic-stress answer`.
    address: Ipv4Addr,
    /// Port of `vrnic-stress answer`.
    #[arg(long, default_value_t = 7174)]
    port: u16,
    /// Seconds for which the threads run.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

/// Creates, connects and destroys QPs in several threads. The end of a QP must not end the
/// connection of another QP.
pub(crate) fn run(options: &Renumber) -> Result<()> {
    let to = SocketAddrV4::new(options.address, options.port);
    let (common, end) = (Common::new()?, Instant::now() + Duration::from_secs(options.seconds));
    let all = thread::scope(|scope| -> Result<u32> {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| one(&common, to, end))).collect();
        let joined = |thread: thread::ScopedJoinHandle<'_, Result<u32>>| {
            thread.join().map_err(|_| anyhow!("a thread panicked"))?
        };
        threads.into_iter().try_fold(0, |sum, thread| Ok(sum + joined(thread)?))
    })?;
    println!("ok {all} queue pairs");
    Ok(())
}

fn one(common: &Common, to: SocketAddrV4, end: Instant) -> Result<u32> {
    // The server does not answer, so a connection gets no event before it is ended.
    let (mut count, private) = (0, Answer::Silence.request());
    while Instant::now() < end {
        let id = Connection::resolved(to)?;
        let qp = next(common)?;
        let wishes = Wishes { qpn: qp.number(), srq: false, depth: 1, private: &private };
        let begun = Instant::now();
        id.connect(wishes).context("a new queue pair")?;
        let news = id.news(STAYS)?;
        // The server gives requests up after two seconds. This program may have stood that long.
        let own = begun.elapsed() > Duration::from_secs(1);
        ensure!(
            news.is_none() || own,
            "{news:?} after {count}: the connection of another one has ended"
        );
        qp.destroy().map_err(|(_, error)| error)?;
        id.destroy().map_err(|(_, error)| error)?;
        count += 1;
    }
    Ok(count)
}

/// Creates a QP as soon as one is free.
fn next(common: &Common) -> io::Result<Qp> {
    let start = Instant::now();
    loop {
        match common.qp() {
            Err(error) if start.elapsed() > TIMEOUT => return Err(error),
            Err(_) => thread::yield_now(),
            made => return made,
        }
    }
}
