//! A process whose device fails in the middle of a transfer: each request that it has posted
//! completes once, as a success or as flushed.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::loopback::{connect, region};
use vrnic_verbs::context::Context;
use vrnic_verbs::cq::{Channel, Cq};
use vrnic_verbs::memory::buffer::Buffer;
use vrnic_verbs::memory::{Mr, Pd};
use vrnic_verbs::model::{
    DeviceInfo, Op, QpCap, RecvWr, SendWr, Sge, State, Status, flags, qp_type,
};
use vrnic_verbs::qp::{InitAttr, Qp};

/// Time limit in which the device must fail and all requests must be flushed.
const TIMEOUT: Duration = Duration::from_secs(150);
/// Bytes of a message.
const LEN: u32 = 64;
/// Number of receives. No message uses them.
const RECEIVES: u64 = 7;
/// This bit is set in the identifiers of receives.
const RECEIVE: u64 = 1 << 32;

/// A QP that is connected to itself, with its own CQ.
struct User {
    qp: Qp,
    cq: Cq,
    buffer: Buffer,
    mr: Mr,
    /// Sends that were posted, that have completed, and that have succeeded.
    posted: u64,
    completed: u64,
    done: u64,
    /// Receives that were posted, and that were flushed.
    receives: u64,
    flushed: u64,
}

impl User {
    /// Creates the objects. With room for inline data, the send queue is in the adapter's memory.
    fn new(
        (context, info, pd): (&Context, &DeviceInfo, &Pd),
        channel: Option<&Channel>,
        extended: bool,
        inline: u32,
    ) -> Result<Self> {
        let cq = Cq::new(context, 64, channel, 0, extended)?;
        let cap = QpCap { send_wr: 4, recv_wr: 16, send_sge: 1, recv_sge: 1, inline };
        let init = InitAttr::new(pd, &cq, cap);
        let (qp, _) = if extended { Qp::extended(&init) } else { Qp::new(&init) }?;
        connect(&qp, qp_type::RC, info)?;
        let (buffer, mr) = region(pd, 4096)?;
        let (posted, completed, done, receives, flushed) = (0, 0, 0, 0, 0);
        let mut user = Self { qp, cq, buffer, mr, posted, completed, done, receives, flushed };
        user.receive(RECEIVES)?;
        Ok(user)
    }

    fn receive(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let receive = RecvWr { wr_id: RECEIVE | self.receives, sges: vec![] };
            self.qp.post_recv(&[receive]).map_err(|refused| refused.error)?;
            self.receives += 1;
        }
        Ok(())
    }

    /// Posts three writes. The last one is signaled.
    fn write(&mut self) -> Result<()> {
        let (lkey, rkey) = self.mr.keys();
        for signaled in [0, 0, flags::SIGNALED] {
            let write = SendWr {
                wr_id: self.posted,
                op: Op::Write,
                flags: signaled,
                sges: vec![Sge { addr: self.buffer.addr(), length: LEN, lkey }],
                raddr: self.buffer.addr() + 2048,
                rkey,
                ..SendWr::default()
            };
            self.qp.post_send(&[write]).map_err(|refused| refused.error)?;
            self.posted += 1;
        }
        Ok(())
    }

    /// Takes completions. Checks that each is the next one of its queue.
    fn poll(&mut self) -> Result<()> {
        for wc in self.cq.poll(16)? {
            let flushed = wc.status == Status::WrFlushErr as u32;
            ensure!(wc.qpn == self.qp.number(), "of another queue pair: {wc:?}");
            if wc.wr_id & RECEIVE != 0 {
                ensure!(flushed && wc.wr_id == RECEIVE | self.flushed, "a receive ends: {wc:?}");
                self.flushed += 1;
            } else if flushed {
                ensure!(wc.wr_id == self.completed, "flushed is {}, not {wc:?}", self.completed);
                self.completed += 1;
            } else {
                let last = self.completed + 2;
                ensure!(wc.status == 0 && wc.wr_id == last, "done is {last}, not {wc:?}");
                (self.completed, self.done) = (last + 1, last + 1);
            }
        }
        Ok(())
    }

    /// Posts writes as long as they succeed.
    fn work(&mut self) -> Result<()> {
        if self.completed == self.posted && self.done == self.posted {
            self.write()?;
        }
        self.poll()
    }

    /// Returns whether the device has failed and no request is outstanding.
    fn is_over(&self) -> bool {
        self.done < self.posted && self.completed == self.posted && self.flushed == self.receives
    }
}

/// Uses the device with QPs of each kind until it fails, and for some time after that.
pub(crate) fn run() -> Result<()> {
    let context = Context::open(None)?;
    let info = context.info()?;
    let pd = Pd::new(&context)?;
    let own = (&context, &info, &pd);
    let channel = Channel::new(&context)?;
    // This QP waits for an event, which must come.
    let mut sleeper = User::new(own, Some(&channel), false, 0)?;
    sleeper.cq.arm(false)?;
    let mut users = Vec::new();
    for extended in [false, true] {
        for inline in [0, LEN] {
            users.push(User::new(own, None, extended, inline)?);
        }
    }
    users.iter_mut().try_for_each(User::work)?;
    println!("in use");
    let end = Instant::now() + TIMEOUT;
    while !users.iter().all(User::is_over) {
        ensure!(Instant::now() < end, "not all is flushed");
        users.iter_mut().try_for_each(User::work)?;
        thread::yield_now();
    }
    let event = channel.wait(end.saturating_duration_since(Instant::now()))?;
    ensure!(event == Some(sleeper.cq.identity()), "no completion event");
    sleeper.poll()?;
    ensure!(sleeper.flushed == RECEIVES, "{} of {RECEIVES} are flushed", sleeper.flushed);
    for user in &mut users {
        later(user).context("posted to the dead device")?;
    }
    println!("all is flushed");
    Ok(())
}

/// QPs of a failed device are in the error state, requests that are posted to them are flushed, and
/// its objects can be destroyed.
fn later(user: &mut User) -> Result<()> {
    let state = user.qp.query().context("query")?.state;
    ensure!(state == State::Err as u32, "a queue pair is in state {state}");
    user.write()?;
    user.receive(2)?;
    user.poll()?;
    ensure!(user.is_over(), "{} of {} are flushed", user.completed, user.posted);
    user.poll()
}
