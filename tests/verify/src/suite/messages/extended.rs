//! The extended interfaces. Whole groups run over them with `run --extended`. These cases test what
//! the plain interfaces do not have.
//!
//! Shows: queues

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;

use super::data::movers;
use crate::rpc::client::CallError;
use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Side, expect_errno, expect_in_order};
use vrnic_verbs::model::{Op, QpCap, SendWr, State, Status};

/// Maximum difference of two clocks in nanoseconds, in addition to the time for reading them.
const SLACK_NS: u64 = 2_000_000;

pub(in crate::suite) fn cases() -> Vec<Case> {
    let mut cases = plain();
    for (kind, single) in [("one_thread", true), ("any_thread", false)] {
        for (what, act) in IN_A_SERIES {
            let name = format!("extended/series/{kind}/{what}");
            cases.push(Case::new(name, move |env| in_a_series(env, single, *act)));
        }
    }
    cases
}

fn plain() -> Vec<Case> {
    vec![
        Case::new("extended/timestamps", timestamps),
        Case::new("extended/wallclock", wallclock),
        Case::new("extended/each_field", fields),
        Case::new("extended/abort", abort),
        Case::new("extended/all_or_none", all_or_none),
        Case::new("extended/more_than_fits", more_than_fits),
    ]
}

/// Returns a connection whose objects have the extended interfaces.
fn link(env: &Env, cap: QpCap) -> Result<Link> {
    for end in [&env.a, &env.b] {
        end.agent.use_extended()?;
    }
    Link::new(env, &Options { cap, ..Options::default() })
}

fn cap() -> QpCap {
    Options::default().cap
}

/// Timestamps come from the clock that can be queried, and increase.
fn timestamps(env: &Env) -> Result<()> {
    let link = link(env, cap())?;
    let mut last = (0, 0);
    for _ in 0..5 {
        let before = (env.a.agent.clocks()?.raw, env.b.agent.clocks()?.raw);
        let (sent, received) = link.a.send(&link.b, &[], &[])?;
        let after = (env.a.agent.clocks()?.raw, env.b.agent.clocks()?.raw);
        for (what, before, wc, after) in
            [("a", before.0, sent, after.0), ("b", before.1, received, after.1)]
        {
            let at = wc.timestamp;
            ensure!((before..=after).contains(&at), "{what}: {at} not in {before}..={after}");
        }
        ensure!(sent.timestamp > last.0 && received.timestamp > last.1, "a clock went back");
        last = (sent.timestamp, received.timestamp);
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The time of day of a completion is the time at which the process sees it, also if the relation
/// between the clocks was determined some time ago.
fn wallclock(env: &Env) -> Result<()> {
    let link = link(env, cap())?;
    for pause in [0, 10, 40, 1200] {
        std::thread::sleep(Duration::from_millis(pause));
        let before = env.a.agent.clocks()?.day;
        let (sent, _) = link.a.send(&link.b, &[], &[])?;
        let after = env.a.agent.clocks()?.day;
        let window = before - SLACK_NS..=after + SLACK_NS;
        ensure!(window.contains(&sent.wallclock), "{} not in {window:?}", sent.wallclock);
    }
    Ok(())
}

/// The fields of both completions of each kind of message.
fn fields(env: &Env) -> Result<()> {
    let link = link(env, cap())?;
    let (near, far) = (link.a.region(64, 0)?, link.b.region(64, 0)?);
    let ops = movers(env).iter().copied().filter(|op| op.takes_receive());
    for op in ops {
        link.b.post_recv(1, &[far.sge()])?;
        let request = Side::request(op, 2, &[near.sge()]).at(far.addr, far.rkey);
        let sent = link.a.run(SendWr { imm: 0x0102_0304, ..request }, Status::Success)?;
        ensure!(sent.opcode == op.wc_opcode() && sent.imm.is_none(), "{sent:?}");
        let received = link.b.expect_received(1, Status::Success)?;
        let imm = op.has_immediate().then_some(0x0102_0304);
        ensure!(received.byte_len == 64 && received.imm == imm, "{op:?}: {received:?}");
        ensure!(received.opcode == 128 + u32::from(op == Op::WriteImm), "{op:?}: {received:?}");
    }
    Ok(())
}

fn together(side: &Side, requests: &[SendWr], abort: bool) -> Result<(), CallError> {
    side.end.agent.post_together(side.qp, requests.to_vec(), abort)
}

/// Aborted requests have no effect: no byte is written, no request completes, no place in the queue
/// is used.
fn abort(env: &Env) -> Result<()> {
    let cap = QpCap { send_wr: 16, inline: 32, ..cap() };
    let link = link(env, cap)?;
    let depth = u64::from(link.a.cap.send_wr);
    let (near, far) = (link.a.region(64, 0)?, link.b.region(64, 0)?);
    let writes: Vec<_> = (0..depth)
        .map(|wr_id| Side::request(Op::Write, wr_id, &[near.sge()]).at(far.addr, far.rkey))
        .collect();
    for round in 0..40 {
        near.fill(2 * round)?;
        together(&link.a, &writes, false)?;
        ensure!(link.a.sent(depth as usize)?.iter().all(|wc| wc.status == 0), "a WRITE failed");
        near.fill(2 * round + 1)?;
        together(&link.a, &writes[..(round % depth) as usize + 1], true)?;
        link.a.expect_quiet(if round % 10 == 0 { 20 } else { 0 })?;
        far.check(2 * round)?;
    }
    Ok(())
}

/// One of several requests is invalid: none is posted.
fn all_or_none(env: &Env) -> Result<()> {
    let link = link(env, cap())?;
    let (near, far) = (link.a.region(64, 0)?, link.b.region(64, 0)?);
    far.fill(1)?;
    near.fill(2)?;
    let write = |wr_id, segments: usize| {
        Side::request(Op::Write, wr_id, &vec![near.sge(); segments]).at(far.addr, far.rkey)
    };
    let bad = [write(1, 1), write(2, 1), write(3, 17), write(4, 1)];
    expect_errno("17 segments", together(&link.a, &bad, false), Errno::INVAL)?;
    link.a.expect_quiet(50)?;
    far.check(1)?;
    together(&link.a, &[write(5, 1)], false)?;
    link.a.expect_sent(5, Status::Success)?;
    far.check(2)
}

/// More requests than the queue has room for: ENOMEM, and none is posted.
fn more_than_fits(env: &Env) -> Result<()> {
    let link = link(env, QpCap { send_wr: 8, ..cap() })?;
    let depth = link.a.cap.send_wr as usize;
    let sends: Vec<_> = (0..=depth as u64).map(|id| Side::request(Op::Send, id, &[])).collect();
    expect_errno("one too many", together(&link.a, &sends, false), Errno::NOMEM)?;
    for wr_id in 0..depth as u64 {
        link.b.post_recv(wr_id, &[])?;
    }
    together(&link.a, &sends[..depth], false)?;
    expect_in_order(&link.a.sent(depth)?, 0)?;
    link.b.received(depth)?;
    Ok(())
}

/// What a program does between the completions of a series. `b` has the series, whose completions
/// are of its first connection; it has a second one, with `other`. Returns how many completions of
/// the first one are still to come, of this number.
type Act = fn(b: &Side, other: &Side, left: usize) -> Result<usize>;

const IN_A_SERIES: &[(&str, Act)] = &[
    ("nothing", |_, _, left| Ok(left)),
    ("posts", |b, _, left| {
        b.post_recv(200, &[])?;
        Ok(left)
    }),
    ("arms", |b, _, left| {
        b.end.agent.arm(b.send_cq, false)?;
        Ok(left)
    }),
    ("creates_a_queue_pair", |b, _, left| {
        let new = Side::with_cqs(&b.end, b.pd, [b.send_cq; 2], &Options::default())?;
        new.to_init()?;
        new.destroy()?;
        Ok(left)
    }),
    ("destroys_another_queue_pair", |_, other, left| {
        other.destroy()?;
        Ok(left)
    }),
    ("destroys_its_queue_pair", |b, _, _| {
        b.destroy()?;
        Ok(0)
    }),
    ("resets_another_queue_pair", |_, other, left| {
        if other.end.cm.is_none() {
            other.to(State::Reset)?;
        }
        Ok(left)
    }),
    ("resets_its_queue_pair", |b, _, left| {
        // What the connection manager has connected has its own end.
        if b.end.cm.is_some() {
            return Ok(left);
        }
        b.to(State::Reset)?;
        Ok(0)
    }),
    ("polls_another_queue", |b, _, left| {
        let none = b.end.agent.poll(b.recv_cq, 1, 0)?;
        ensure!(none.is_empty(), "{none:?}");
        Ok(left)
    }),
];

/// A program takes completions one by one, and does something in between. No call hangs, and the
/// completions that are left come.
fn in_a_series(env: &Env, single: bool, act: Act) -> Result<()> {
    const MESSAGES: usize = 4;
    env.b.agent.use_extended()?;
    let agent = &env.b.agent;
    let options = Options::default();
    let channel = agent.create_channel()?;
    let cq = match single {
        true => agent.create_single_threaded_cq(256, channel)?.cq,
        false => agent.create_cq(256, Some(channel), 0)?.cq,
    };
    let pd = agent.alloc_pd()?;
    let idle = agent.create_cq(16, None, 0)?.cq;
    let side = || Side::with_cqs(&env.b, pd, [cq; 2], &options);
    let (first, second) = (side()?, side()?);
    let one = Link::of(Side::new(&env.a, &options)?, first)?;
    let two = Link::of(Side::new(&env.a, &options)?, second)?;
    for wr_id in 0..MESSAGES as u64 {
        one.b.post_recv(wr_id, &[])?;
        one.a.run(Side::request(Op::Send, wr_id, &[]), Status::Success)?;
    }
    let begun = agent.begin_series(cq)?.context("no completion")?;
    let b = Side { send_cq: cq, recv_cq: idle, ..one.b };
    let left = act(&b, &two.b, MESSAGES - 1)?;
    let mut seen = vec![begun.wr_id];
    while let Some(next) = agent.next_of_series(cq)? {
        seen.push(next.wr_id);
    }
    agent.end_series(cq)?;
    let expected: Vec<_> = (0..=left as u64).collect();
    ensure!(seen == expected, "completions of {seen:?}, not of {expected:?}");
    // The queue is as usable as before.
    let third = Link::of(Side::new(&env.a, &options)?, side()?)?;
    agent.arm(cq, false)?;
    third.b.post_recv(300, &[])?;
    third.a.run(Side::request(Op::Send, 300, &[]), Status::Success)?;
    let event = agent.wait_channel(channel, 20_000)?;
    ensure!(event == Some(cq), "event {event:?}, not of CQ {cq}");
    third.b.expect_received(300, Status::Success).map(drop)
}
