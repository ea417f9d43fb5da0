//! Completion events.
//!
//! Shows: completions: completion events of programs: arming, solicited events, moderation

use anyhow::{Context, Result, ensure};

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Side};
use vrnic_verbs::model::{Op, SendWr, State, Status, flags};

/// Time for which a case checks that no event comes, in milliseconds.
const QUIET_MS: u64 = 300;
/// Time limit for an event, in milliseconds.
const TIMEOUT_MS: u64 = 20_000;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("events/next_completion", next_completion),
        Case::new("events/one_event_per_request", disarms),
        Case::new("events/solicited_send", |env| solicited(env, Op::Send)),
        Case::new("events/solicited_send_imm", |env| solicited(env, Op::SendImm)),
        Case::new("events/solicited_write_imm", |env| solicited(env, Op::WriteImm)),
        Case::new("events/any_then_solicited", |env| two_requests(env, [false, true], true)),
        Case::new("events/solicited_then_any", |env| two_requests(env, [true, false], true)),
        Case::new("events/solicited_twice", |env| two_requests(env, [true, true], false)),
        Case::new("events/errors_count_as_solicited", error_is_solicited),
        Case::new("events/send_queue", send_queue),
        Case::new("events/both_cqs_on_one_channel", two_cqs),
        Case::new("events/moderated_by_count_or_time", moderated),
        Case::new("events/100_rounds", rounds),
    ]
}

fn options() -> Options {
    Options { channel: true, ..Options::default() }
}

fn arm(side: &Side, cq: u32, solicited_only: bool) -> Result<()> {
    Ok(side.end.agent.arm(cq, solicited_only)?)
}

/// Returns the CQ of the next event within `ms`.
fn event(side: &Side, ms: u64) -> Result<Option<u32>> {
    let channel = side.channel.context("no channel")?;
    Ok(side.end.agent.wait_channel(channel, ms)?)
}

fn expect_event(side: &Side, cq: u32) -> Result<()> {
    let seen = event(side, TIMEOUT_MS)?;
    ensure!(seen == Some(cq), "{}: event {seen:?}, not of CQ {cq}", side.name());
    Ok(())
}

fn expect_none(side: &Side) -> Result<()> {
    let seen = event(side, QUIET_MS)?;
    ensure!(seen.is_none(), "{}: unexpected event {seen:?}", side.name());
    Ok(())
}

/// Sends an empty message from a to b. Takes a's completion.
fn send(link: &Link, op: Op, flags: u32) -> Result<()> {
    link.b.post_recv(7, &[])?;
    let mut request = Side::request(op, 6, &[]);
    request.flags |= flags;
    link.a.run(request, Status::Success).map(drop)
}

fn next_completion(env: &Env) -> Result<()> {
    let link = Link::new(env, &options())?;
    let b = &link.b;
    expect_none(b)?;
    arm(b, b.recv_cq, false)?;
    expect_none(b)?;
    send(&link, Op::Send, 0)?;
    expect_event(b, b.recv_cq)?;
    b.expect_received(7, Status::Success).map(drop)
}

/// With moderation, an event waits for its number of completions, but not longer than its time.
fn moderated(env: &Env) -> Result<()> {
    const COUNT: u16 = 4;
    let link = Link::new(env, &options())?;
    let b = &link.b;
    let cq = b.recv_cq;
    let moderate = |period| b.end.agent.moderate(cq, COUNT, period);
    // This is longer than the time in which no event may come, and the maximum.
    let long = u16::MAX;
    moderate(long)?;
    for _ in 0..20 {
        arm(b, cq, false)?;
        for _ in 0..COUNT {
            send(&link, Op::Send, 0)?;
        }
        expect_event(b, cq)?;
        b.received(usize::from(COUNT))?;
    }
    // Too few completions for the count: the event comes after the time.
    arm(b, cq, false)?;
    send(&link, Op::Send, 0)?;
    expect_event(b, cq)?;
    b.received(1)?;
    b.end.agent.moderate(cq, 0, 0)?;
    arm(b, cq, false)?;
    send(&link, Op::Send, 0)?;
    expect_event(b, cq)
}

/// After its event, a CQ raises no further event until it is armed again.
fn disarms(env: &Env) -> Result<()> {
    let link = Link::new(env, &options())?;
    let b = &link.b;
    for _ in 0..3 {
        arm(b, b.recv_cq, false)?;
        send(&link, Op::Send, 0)?;
        expect_event(b, b.recv_cq)?;
        send(&link, Op::Send, 0)?;
        expect_none(b)?;
        b.received(2)?;
    }
    Ok(())
}

/// A CQ is armed twice, for solicited completions or for any, as by two threads. A plain completion
/// raises an event if one of the requests was for any; the event ends both requests.
fn two_requests(env: &Env, solicited_only: [bool; 2], any: bool) -> Result<()> {
    let link = Link::new(env, &options())?;
    let b = &link.b;
    for _ in 0..3 {
        for solicited in solicited_only {
            arm(b, b.recv_cq, solicited)?;
        }
        send(&link, Op::Send, 0)?;
        if any {
            expect_event(b, b.recv_cq)?;
            arm(b, b.recv_cq, true)?;
            send(&link, Op::Send, 0)?;
            b.received(1)?;
        }
        expect_none(b)?;
        send(&link, Op::Send, flags::SOLICITED)?;
        expect_event(b, b.recv_cq)?;
        b.received(2)?;
    }
    Ok(())
}

/// A CQ that is armed for solicited completions raises no event for others.
fn solicited(env: &Env, op: Op) -> Result<()> {
    let link = Link::new(env, &options())?;
    let b = &link.b;
    arm(b, b.recv_cq, true)?;
    send(&link, op, 0)?;
    expect_none(b)?;
    send(&link, op, flags::SOLICITED)?;
    expect_event(b, b.recv_cq)?;
    b.received(2)?;
    Ok(())
}

fn error_is_solicited(env: &Env) -> Result<()> {
    let link = Link::new(env, &options())?;
    let b = &link.b;
    b.post_recv(7, &[])?;
    arm(b, b.recv_cq, true)?;
    b.to(State::Err)?;
    expect_event(b, b.recv_cq)?;
    b.expect_received(7, Status::WrFlushErr).map(drop)
}

fn send_queue(env: &Env) -> Result<()> {
    let link = Link::new(env, &options())?;
    let a = &link.a;
    arm(a, a.send_cq, false)?;
    let (near, far) = (a.region(64, 0)?, link.b.region(64, 0)?);
    let request = Side::request(Op::Write, 6, &[near.sge()]).at(far.addr, far.rkey);
    a.post(&[SendWr { flags: 0, ..request.clone() }])?;
    expect_none(a)?;
    a.post(&[request])?;
    expect_event(a, a.send_cq)?;
    a.expect_sent(6, Status::Success).map(drop)
}

fn two_cqs(env: &Env) -> Result<()> {
    let link = Link::new(env, &options())?;
    let b = &link.b;
    arm(b, b.recv_cq, false)?;
    arm(b, b.send_cq, false)?;
    send(&link, Op::Send, 0)?;
    expect_event(b, b.recv_cq)?;
    link.a.post_recv(7, &[])?;
    b.post(&[Side::request(Op::Send, 8, &[])])?;
    expect_event(b, b.send_cq)?;
    b.expect_received(7, Status::Success)?;
    b.expect_sent(8, Status::Success).map(drop)
}

/// The loop of a server: arm, wait, poll, answer.
fn rounds(env: &Env) -> Result<()> {
    let link = Link::new(env, &options())?;
    let Link { a, b } = &link;
    for round in 0..100 {
        for (from, to) in [(a, b), (b, a)] {
            to.post_recv(round, &[])?;
            arm(to, to.recv_cq, false)?;
            from.post(&[Side::request(Op::Send, round, &[])])?;
            expect_event(to, to.recv_cq).with_context(|| format!("round {round}"))?;
            to.expect_received(round, Status::Success)?;
            from.expect_sent(round, Status::Success)?;
        }
    }
    Ok(())
}
