//! Receivers that are not ready, and peers that do not answer.
//!
//! Shows: data

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Region, Side};
use vrnic_verbs::model::{Op, SendWr, State, Status};

/// Time limit in which an impatient sender must fail.
const GIVE_UP: Duration = Duration::from_secs(10);

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("rnr/late_receive", |env| late_receive(env, Op::Send)),
        Case::new("rnr/late_receive_for_write_imm", |env| late_receive(env, Op::WriteImm)),
        Case::new("rnr/exhausted", |env| rnr_exhausted(env, Op::Send)),
        Case::new("rnr/exhausted_by_write_imm", |env| rnr_exhausted(env, Op::WriteImm)),
        Case::new("rnr/no_retry", rnr_none),
        Case::new("rnr/write_needs_no_receive", write_without_receive),
        Case::new("retry/wrong_qpn", |env| absent(env, Op::Send)),
        Case::new("retry/wrong_qpn_write", |env| absent(env, Op::Write)),
        Case::new("retry/wrong_qpn_read", |env| absent(env, Op::Read)),
        Case::new("retry/peer_in_reset", peer_in_reset),
        Case::new("retry/peer_in_error", peer_in_error),
        Case::new("retry/peer_destroyed", peer_destroyed),
        Case::new("retry/peer_process_killed", peer_killed),
        Case::new("retry/peer_comes_late", peer_late),
    ]
}

fn regions(link: &Link) -> Result<(Region, Region)> {
    let (near, far) = (link.a.region(1000, 1)?, link.b.region(1000, 2)?);
    near.fill(1)?;
    far.fill(2)?;
    Ok((near, far))
}

fn request(op: Op, wr_id: u64, near: &Region, far: &Region) -> SendWr {
    Side::request(op, wr_id, &[near.sge()]).at(far.addr, far.rkey)
}

/// A receive is posted after the message was sent. The sender retries without limit.
fn late_receive(env: &Env, op: Op) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let (near, far) = regions(&link)?;
    link.a.post(&[request(op, 70, &near, &far)])?;
    link.a.expect_quiet(200)?;
    link.b.post_recv(71, &[far.sge()])?;
    link.a.expect_sent(70, Status::Success)?;
    link.b.expect_received(71, Status::Success)?;
    far.check(1)
}

/// No receive is posted: the sender fails, and the receiver is unchanged.
fn rnr_exhausted(env: &Env, op: Op) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let (near, far) = regions(&link)?;
    let start = Instant::now();
    link.a.post(&[request(op, 70, &near, &far), request(op, 72, &near, &far)])?;
    link.a.expect_sent(70, Status::RnrRetryExcErr)?;
    link.a.expect_sent(72, Status::WrFlushErr)?;
    ensure!(start.elapsed() < GIVE_UP, "took {:?}", start.elapsed());
    link.a.expect_state(State::Err)?;
    link.b.expect_state(State::Rts)?;
    if op == Op::Send {
        far.check(2)?;
    }
    Ok(())
}

/// With a retry count of zero, the first RNR NAK makes the sender fail.
fn rnr_none(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options { rnr_retry: 0, ..Options::default() })?;
    let (near, far) = regions(&link)?;
    link.a.run(request(Op::Send, 70, &near, &far), Status::RnrRetryExcErr).map(drop)
}

fn write_without_receive(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options { rnr_retry: 0, ..Options::default() })?;
    let (near, far) = regions(&link)?;
    link.a.run(request(Op::Write, 70, &near, &far), Status::Success)?;
    far.check(1)
}

/// The sender must fail in time, and all later requests are flushed.
fn expect_gives_up(a: &Side, requests: &[SendWr]) -> Result<()> {
    let start = Instant::now();
    a.post(requests)?;
    a.expect_sent(requests[0].wr_id, Status::RetryExcErr)?;
    for request in &requests[1..] {
        a.expect_sent(request.wr_id, Status::WrFlushErr)?;
    }
    ensure!(start.elapsed() < GIVE_UP, "gave up after {:?}", start.elapsed());
    a.expect_state(State::Err)
}

/// No QP has the destination number.
fn absent(env: &Env, op: Op) -> Result<()> {
    let (a, b) =
        (Side::new(&env.a, &Options::impatient())?, Side::new(&env.b, &Options::impatient())?);
    let far = b.region(1000, 0)?;
    a.connect(&env.b, 0x00fe_dcba)?;
    let near = a.region(1000, 0)?;
    expect_gives_up(&a, &[request(op, 1, &near, &far), request(op, 2, &near, &far)])
}

fn peer_in_reset(env: &Env) -> Result<()> {
    let (a, b) =
        (Side::new(&env.a, &Options::impatient())?, Side::new(&env.b, &Options::impatient())?);
    a.connect(&env.b, b.qpn)?;
    let (near, far) = (a.region(1000, 0)?, b.region(1000, 0)?);
    expect_gives_up(&a, &[request(Op::Write, 1, &near, &far)])
}

fn peer_in_error(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let (near, far) = regions(&link)?;
    link.b.to(State::Err)?;
    expect_gives_up(&link.a, &[request(Op::Write, 1, &near, &far)])?;
    far.check(2)
}

fn peer_destroyed(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let (near, far) = regions(&link)?;
    link.a.run(request(Op::Write, 1, &near, &far), Status::Success)?;
    link.b.destroy()?;
    expect_gives_up(&link.a, &[request(Op::Write, 2, &near, &far)])
}

/// The peer's process ends without destroying its objects, so the kernel destroys them.
fn peer_killed(env: &Env) -> Result<()> {
    let other = env.another_b()?;
    let link = Link::between(&env.a, &other, &Options::impatient())?;
    let (near, far) = regions(&link)?;
    link.a.run(request(Op::Write, 1, &near, &far), Status::Success)?;
    let gone = other.agent.crash();
    ensure!(gone.is_err(), "the agent survived");
    // The kernel needs some time to end the process. Until then its memory exists.
    sleep(Duration::from_secs(5));
    expect_gives_up(&link.a, &[request(Op::Write, 2, &near, &far)])
}

/// The peer becomes ready while the sender retries.
fn peer_late(env: &Env) -> Result<()> {
    // 4.096 µs · 2^19 = 2.1 s, seven times.
    let options = Options { timeout: 19, retry_cnt: 7, ..Options::default() };
    let (a, b) = (Side::new(&env.a, &options)?, Side::new(&env.b, &options)?);
    a.connect(&env.b, b.qpn)?;
    let link = Link { a, b };
    let (near, far) = regions(&link)?;
    link.a.post(&[request(Op::Write, 1, &near, &far)])?;
    link.a.expect_quiet(100)?;
    link.b.connect(&env.a, link.a.qpn)?;
    link.a.expect_sent(1, Status::Success)?;
    far.check(1)
}
