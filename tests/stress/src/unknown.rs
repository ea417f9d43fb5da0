//! Operations of RFC 7306 on a peer that does not support them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::answer::Answer;
use crate::common::Common;
use crate::loopback::region;
use vrnic_verbs::cm::{Connection, News, Wishes};
use vrnic_verbs::model::{Op, QpAttr, SendWr, Sge, State, Status, Wc, flags, mask};
use vrnic_verbs::qp::Qp;

/// Time limit for the outcome of a request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Time in which a server notices that a connection is established, which it does after its reply.
/// The kernel of siw crashes if the connection fails before that.
const NOTED: Duration = Duration::from_secs(5);
/// The operations that siw does not know.
const OPERATIONS: [Op; 3] = [Op::FetchAdd, Op::CmpSwp, Op::WriteImm];

/// A server of `vrnic-stress answer` on a device without RFC 7306.
#[derive(Debug, Args)]
pub(crate) struct Unknown {
    /// Address of the server.
    address: Ipv4Addr,
    /// Port of the server.
    #[arg(long, default_value_t = 7174)]
    port: u16,
}

/// Checks that each operation fails with the same status, and ends its connection. All connections
/// are made first, because Linux siw makes no more after it has ended one with a Terminate.
pub(crate) fn run(options: &Unknown) -> Result<()> {
    let to = SocketAddrV4::new(options.address, options.port);
    let common = Common::new()?;
    let begin = |_| connected(&common, to);
    let ends = OPERATIONS.iter().map(begin).collect::<Result<Vec<_>>>()?;
    sleep(NOTED);
    for (op, (qp, connection)) in OPERATIONS.into_iter().zip(ends) {
        one(&common, &qp, op).with_context(|| op.name())?;
        let news = connection.news(TIMEOUT)?;
        ensure!(news == Some(News::Disconnected), "{}: {news:?} behind the failure", op.name());
        connection.destroy().map_err(|(_, error)| error)?;
        qp.destroy().map_err(|(_, error)| error)?;
    }
    println!("ok");
    Ok(())
}

fn connected(common: &Common, to: SocketAddrV4) -> Result<(Qp, Connection)> {
    let (qp, connection) = (common.qp()?, Connection::resolved(to)?);
    let private = Answer::Keep.request();
    connection.connect(Wishes { qpn: qp.number(), srq: false, depth: 1, private: &private })?;
    let news = connection.news(TIMEOUT)?;
    ensure!(news == Some(News::Established), "{news:?}");
    // libibverbs must also know that the QP can send.
    let ready = QpAttr { state: State::Rts as u32, ..QpAttr::default() };
    qp.modify(&ready, mask::STATE)?;
    Ok((qp, connection))
}

fn one(common: &Common, qp: &Qp, op: Op) -> Result<()> {
    let (buffer, mr) = region(&common.pd, 8)?;
    // siw has a WRITE, too. Without bytes it needs no key.
    let length = if op == Op::WriteImm { 0 } else { 8 };
    let sges = vec![Sge { addr: buffer.addr(), length, lkey: mr.keys().0 }];
    let request = SendWr { op, flags: flags::SIGNALED, sges, ..SendWr::default() };
    qp.post_send(&[request]).map_err(|refused| refused.error)?;
    let done = outcome(common)?;
    ensure!(done.status == Status::RemInvReqErr as u32, "{done:?}");
    Ok(mr.destroy().map_err(|(_, error)| error)?)
}

fn outcome(common: &Common) -> Result<Wc> {
    let end = Instant::now() + TIMEOUT;
    while Instant::now() < end {
        if let Some(done) = common.cq.poll(1)?.pop() {
            return Ok(done);
        }
        std::thread::yield_now();
    }
    bail!("no completion")
}
