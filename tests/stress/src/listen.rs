//! iWARP listeners that end while requests arrive, and while connections that they have accepted
//! are open.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;

use crate::common::Common;
use vrnic_verbs::cm::{Connection, Listener, News, Request, Wishes};
use vrnic_verbs::qp::Qp;

/// Time limit for a request or an outcome.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Time for which connections must stay after their listener has ended.
const STAYS: Duration = Duration::from_millis(300);
/// The own address, and how often.
#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// An address of this machine.
    address: Ipv4Addr,
    /// The port of the listener.
    #[arg(long, default_value_t = 7175)]
    port: u16,
    /// Listeners, one after the other.
    #[arg(long, default_value_t = 6)]
    rounds: u32,
    /// Threads that connect.
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Connections of each of them.
    #[arg(long, default_value_t = 20)]
    each: u32,
    /// Requests that may wait for the listener.
    #[arg(long, default_value_t = 128)]
    backlog: i32,
    /// Requests that the listener takes before it answers them.
    #[arg(long, default_value_t = 1)]
    together: u32,
}

/// One end of a connection.
struct End {
    connection: Connection,
    qp: Qp,
}

impl End {
    fn destroy(self) -> Result<()> {
        self.connection.destroy().map_err(|(_, error)| error)?;
        Ok(self.qp.destroy().map_err(|(_, error)| error)?)
    }
}

/// Connects to one listener after the other. The connections of each listener stay when it ends.
pub(crate) fn run(options: &Listen) -> Result<()> {
    let common = Common::new()?;
    let mut ends = 0;
    for round in 0..options.rounds {
        ends += one(&common, options).with_context(|| format!("round {round}"))?;
    }
    println!("ok {ends} ends of connections stayed");
    Ok(())
}

fn one(common: &Common, options: &Listen) -> Result<usize> {
    let listener = Listener::at(options.port, options.backlog)?;
    let to = SocketAddrV4::new(options.address, options.port);
    let ends = thread::scope(|scope| -> Result<Vec<End>> {
        let threads: Vec<_> = (0..options.threads)
            .map(|_| scope.spawn(move || call(common, to, options.each)))
            .collect();
        let mut ends = Vec::new();
        let mut left = options.threads * options.each;
        while left > 0 {
            let count = left.min(options.together.max(1));
            ends.extend(accept(common, &listener, count)?);
            left -= count;
        }
        for thread in threads {
            ends.extend(thread.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        Ok(ends)
    })?;
    // One more request arrives while the listener ends.
    let late = begin(common, to)?;
    listener.destroy()?;
    late.destroy()?;
    thread::sleep(STAYS);
    for end in &ends {
        let news = end.connection.news(Duration::ZERO)?;
        ensure!(
            matches!(news, None | Some(News::Established)),
            "{news:?} of a connection when its listener ended"
        );
    }
    let count = ends.len();
    ends.into_iter().try_for_each(End::destroy)?;
    Ok(count)
}

/// Begins to connect a new QP.
fn begin(common: &Common, to: SocketAddrV4) -> Result<End> {
    let (qp, connection) = (common.qp()?, Connection::resolved(to)?);
    connection.connect(Wishes { qpn: qp.number(), srq: false, depth: 1, private: &[] })?;
    Ok(End { connection, qp })
}

/// Begins `count` connections, and then waits for all of them.
fn call(common: &Common, to: SocketAddrV4, count: u32) -> Result<Vec<End>> {
    let ends = (0..count).map(|_| begin(common, to)).collect::<Result<Vec<_>>>()?;
    for end in &ends {
        let news = end.connection.news(TIMEOUT)?.context("a connection is not established")?;
        ensure!(news == News::Established, "{news:?} of a connection");
    }
    Ok(ends)
}

/// Takes `count` requests, and accepts them after that.
fn accept(common: &Common, listener: &Listener, count: u32) -> Result<Vec<End>> {
    let next = |_| listener.next(TIMEOUT)?.context("a listener gets no more requests");
    let requests = (0..count).map(next).collect::<Result<Vec<_>>>()?;
    let accept = |request: Request| {
        let qp = common.qp()?;
        let wishes = Wishes { qpn: qp.number(), srq: false, depth: 1, private: &[] };
        Ok(End { connection: request.accept(wishes)?, qp })
    };
    requests.into_iter().map(accept).collect()
}
