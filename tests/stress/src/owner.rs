//! The owner of an iWARP QP, and a process of another user that knows the QP's number.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::answer::Answer;
use crate::common::Common;
use vrnic_verbs::cm::{Connection, Listener, News, Wishes};

/// Time limit of each step.
const STEP: Duration = Duration::from_secs(30);

/// The server, and when to connect.
#[derive(Debug, Args)]
pub(crate) struct Own {
    /// Address of `vrnic-stress answer`.
    address: Ipv4Addr,
    /// Port of `vrnic-stress answer`.
    #[arg(long, default_value_t = 7174)]
    port: u16,
    /// Connect when this file exists.
    #[arg(long)]
    when: PathBuf,
}

/// The QP of another process.
#[derive(Debug, Args)]
pub(crate) struct Seize {
    /// Address of this machine.
    address: Ipv4Addr,
    /// A free port.
    #[arg(long, default_value_t = 7176)]
    port: u16,
    /// The number of the QP.
    qpn: u32,
}

fn wishes(qpn: u32, private: &[u8]) -> Wishes<'_> {
    Wishes { qpn, srq: false, depth: 1, private }
}

/// Creates a QP, prints its number, waits, and connects it.
pub(crate) fn own(options: &Own) -> Result<()> {
    let common = Common::new()?;
    let qp = common.qp()?;
    println!("queue pair {}", qp.number());
    let end = Instant::now() + STEP;
    while !options.when.exists() {
        ensure!(Instant::now() < end, "{} does not appear", options.when.display());
        thread::sleep(Duration::from_millis(50));
    }
    let id = Connection::resolved(SocketAddrV4::new(options.address, options.port))?;
    id.connect(wishes(qp.number(), &Answer::Keep.request()))?;
    let news = id.news(STEP)?;
    ensure!(news == Some(News::Established), "{news:?} of the owner's connection");
    println!("ok");
    Ok(())
}

/// Tries to connect the QP of another process, and to accept a request with it. Both calls must
/// fail. The request that was sent with the process's own QP is rejected.
pub(crate) fn seize(options: &Seize) -> Result<()> {
    let common = Common::new()?;
    let own = common.qp()?;
    let to = SocketAddrV4::new(options.address, options.port);
    let listener = Listener::at(options.port, 1)?;
    let refused = |result: io::Result<()>, call: &str| {
        let errno = result.err().and_then(|error| error.raw_os_error());
        ensure!(errno == Some(libc::EPERM), "{call} ended with {errno:?}");
        Ok(())
    };
    let id = Connection::resolved(to)?;
    refused(id.connect(wishes(options.qpn, &[])), "connecting")?;
    let client = Connection::resolved(to)?;
    client.connect(wishes(own.number(), &[]))?;
    let request = listener.next(STEP)?.context("no request")?;
    refused(request.accept(wishes(options.qpn, &[])).map(drop), "accepting")?;
    let news = client.news(STEP)?;
    ensure!(matches!(news, Some(News::Rejected(_))), "{news:?} of a request that was not accepted");
    println!("ok");
    Ok(())
}
