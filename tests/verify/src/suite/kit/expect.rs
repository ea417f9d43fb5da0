//! Posting, and completions and errors that must come.

use anyhow::{Result, anyhow, bail, ensure};

use super::side::Side;
use crate::model::{AsyncEvent, Op, RecvWr, SendWr, Sge, Status, Wc, flags};
use crate::rpc::client::CallError;
use crate::rpc::values::Posted;

/// Time limit for a completion, in milliseconds. Far more than it needs: a loaded
/// machine that emulates the guests is slow.
const PATIENCE_MS: u64 = 30_000;

impl Side {
    /// Posts send work requests, which must be accepted.
    pub(crate) fn post(&self, requests: &[SendWr]) -> Result<()> {
        let posted = self.try_post(requests)?;
        match posted.refused {
            None => Ok(()),
            Some(f) => Err(anyhow!("{}: post_send refused #{}: {f}", self.name(), posted.count)),
        }
    }

    /// Posts send work requests.
    pub(crate) fn try_post(&self, requests: &[SendWr]) -> Result<Posted> {
        let requests = requests.to_vec();
        Ok(self.end.agent.post_send(self.qp, requests, None)?)
    }

    /// Posts a receive, which must be accepted.
    pub(crate) fn post_recv(&self, wr_id: u64, sges: &[Sge]) -> Result<()> {
        let posted = self.try_post_recv(&[RecvWr { wr_id, sges: sges.to_vec() }])?;
        match posted.refused {
            None => Ok(()),
            Some(f) => Err(anyhow!("{}: post_recv refused: {f}", self.name())),
        }
    }

    /// Posts receives.
    pub(crate) fn try_post_recv(&self, requests: &[RecvWr]) -> Result<Posted> {
        let requests = requests.to_vec();
        Ok(self.end.agent.post_recv(self.qp, requests)?)
    }

    /// `count` completions of a CQ; fails if they do not come.
    fn completions(&self, cq: u32, count: usize) -> Result<Vec<Wc>> {
        let done = self.end.agent.poll(cq, count, PATIENCE_MS)?;
        ensure!(
            done.len() == count,
            "{}: {} completions, not {count}: {done:?}",
            self.name(),
            done.len()
        );
        Ok(done)
    }

    /// `count` completions of the send queue.
    pub(crate) fn sent(&self, count: usize) -> Result<Vec<Wc>> {
        self.completions(self.send_cq, count)
    }

    /// `count` completions of the receive queue.
    pub(crate) fn received(&self, count: usize) -> Result<Vec<Wc>> {
        self.completions(self.recv_cq, count)
    }

    /// The next send completion: work request `wr_id`, with that status.
    pub(crate) fn expect_sent(&self, wr_id: u64, status: Status) -> Result<Wc> {
        let wc = self.sent(1)?[0];
        expect_wc(self, "send", &wc, wr_id, &[status])?;
        Ok(wc)
    }

    /// Expects one of several statuses.
    pub(crate) fn expect_sent_any(&self, wr_id: u64, statuses: &[Status]) -> Result<Wc> {
        let wc = self.sent(1)?[0];
        expect_wc(self, "send", &wc, wr_id, statuses)?;
        Ok(wc)
    }

    /// The next receive completion: work request `wr_id`, with that status.
    pub(crate) fn expect_received(&self, wr_id: u64, status: Status) -> Result<Wc> {
        let wc = self.received(1)?[0];
        expect_wc(self, "receive", &wc, wr_id, &[status])?;
        Ok(wc)
    }

    /// Fails if anything completes on either queue within `ms`.
    pub(crate) fn expect_quiet(&self, ms: u64) -> Result<()> {
        for cq in [self.send_cq, self.recv_cq] {
            let done = self.end.agent.poll(cq, 1, ms)?;
            ensure!(done.is_empty(), "{}: unexpected completion {done:?}", self.name());
        }
        Ok(())
    }

    /// The next asynchronous event must be of that kind and of this QP.
    pub(crate) fn expect_qp_event(&self, kind: u32) -> Result<()> {
        let event = self.event()?;
        ensure!(
            event.kind == kind && event.qp == Some(self.qp),
            "{}: event {event:?}, not kind {kind} of QP {}",
            self.name(),
            self.qp
        );
        Ok(())
    }

    /// The next asynchronous event.
    pub(crate) fn event(&self) -> Result<AsyncEvent> {
        let event = self.end.agent.wait_async(PATIENCE_MS)?;
        event.ok_or_else(|| anyhow!("{}: no asynchronous event came", self.name()))
    }

    /// A signaled work request.
    pub(crate) fn request(op: Op, wr_id: u64, sges: &[Sge]) -> SendWr {
        SendWr { wr_id, op, flags: flags::SIGNALED, sges: sges.to_vec(), ..SendWr::default() }
    }

    /// Proves that the connection works: 100 bytes each way, content checked.
    pub(crate) fn prove_towards(&self, peer: &Self) -> Result<()> {
        for (from, to, seed) in [(self, peer, 0x9001), (peer, self, 0x9002)] {
            let (source, target) = (from.region(100, 3)?, to.region(100, 5)?);
            source.fill(seed)?;
            to.post_recv(seed, &[target.sge()])?;
            from.post(&[Self::request(Op::Send, seed, &[source.sge()])])?;
            from.expect_sent(seed, Status::Success)?;
            to.expect_received(seed, Status::Success)?;
            target.check(seed)?;
        }
        Ok(())
    }
}

fn expect_wc(side: &Side, queue: &str, wc: &Wc, wr_id: u64, statuses: &[Status]) -> Result<()> {
    let fits = statuses.iter().any(|s| *s as u32 == wc.status);
    ensure!(
        fits && wc.wr_id == wr_id && wc.qpn == side.qpn,
        "{}: {queue} completion {wc:?}, not request {wr_id} of QP {} with {statuses:?}",
        side.name(),
        side.qpn
    );
    Ok(())
}

/// The call must fail with that errno.
pub(crate) fn expect_errno<T: std::fmt::Debug>(
    what: &str,
    result: Result<T, CallError>,
    errno: rustix::io::Errno,
) -> Result<()> {
    one_of(what, result, &[errno])
}

/// The call must fail with one of these errnos.
pub(crate) fn one_of<T: std::fmt::Debug>(
    what: &str,
    result: Result<T, CallError>,
    errnos: &[rustix::io::Errno],
) -> Result<()> {
    match result {
        Ok(value) => bail!("{what}: succeeded with {value:?}, should fail with {errnos:?}"),
        Err(e) if e.errno().is_some_and(|n| errnos.iter().any(|w| w.raw_os_error() == n)) => Ok(()),
        Err(e) => bail!("{what}: {e}, should fail with {errnos:?}"),
    }
}

/// The call must fail, with any errno of a verb.
pub(crate) fn expect_error<T: std::fmt::Debug>(
    what: &str,
    result: Result<T, CallError>,
) -> Result<()> {
    match result {
        Ok(value) => bail!("{what}: succeeded with {value:?}, should fail"),
        Err(e) if e.errno().is_some() => Ok(()),
        Err(e) => bail!("{what}: {e}"),
    }
}
