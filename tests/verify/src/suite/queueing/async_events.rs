//! Asynchronous events of QPs: those that must come once, and those that must not come.
//!
//! Shows: completions

use anyhow::{Result, ensure};

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Side};
use vrnic_verbs::model::{Op, State, Status, event};

/// Time for which a case checks that no event comes, in milliseconds.
const QUIET_MS: u64 = 300;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("async_events/communication_established", established),
        Case::new("async_events/none_when_ready_to_send", not_established),
        Case::new("async_events/qp_fatal", fatal),
        Case::new("async_events/none_in_ordinary_work", ordinary),
    ]
}

fn expect_none(side: &Side) -> Result<()> {
    let seen = side.end.agent.wait_async(QUIET_MS)?;
    ensure!(seen.is_none(), "{}: unexpected event {seen:?}", side.name());
    Ok(())
}

fn send(from: &Side, to: &Side, wr_id: u64) -> Result<()> {
    to.post_recv(wr_id, &[])?;
    from.run(Side::request(Op::Send, wr_id, &[]), Status::Success)?;
    to.expect_received(wr_id, Status::Success).map(drop)
}

/// The first message that arrives at a QP in RTR raises an event that the connection is
/// established. Later messages raise none.
fn established(env: &Env) -> Result<()> {
    let (a, b) = (Side::new(&env.a, &Options::default())?, Side::new(&env.b, &Options::default())?);
    b.to_init()?;
    b.to_rtr(&env.a, a.qpn)?;
    a.connect(&env.b, b.qpn)?;
    expect_none(&b)?;
    send(&a, &b, 1)?;
    b.expect_qp_event(event::COMM_EST)?;
    b.expect_state(State::Rtr)?;
    send(&a, &b, 2)?;
    expect_none(&b)?;
    b.to_rts()?;
    send(&b, &a, 3)?;
    expect_none(&a)
}

/// A QP in RTS needs no such event, because its program knows that the connection is established.
fn not_established(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    send(&a, &b, 1)?;
    expect_none(&b)?;
    expect_none(&a)
}

/// A QP whose CQ has overflowed cannot report its failure by a completion, so it raises an event.
fn fatal(env: &Env) -> Result<()> {
    let a = Side::new(&env.a, &Options::impatient())?;
    let b = Side::new(&env.b, &Options { cqe: 1, ..Options::impatient() })?;
    let Link { a, b } = Link::of(a, b)?;
    for wr_id in 0..64 {
        b.post_recv(wr_id, &[])?;
    }
    let sends: Vec<_> = (0..64).map(|wr_id| Side::request(Op::Send, wr_id, &[])).collect();
    a.post(&sends)?;
    a.sent(64)?;
    let events = [b.event()?, b.event()?];
    let queue = events.iter().any(|e| e.kind == event::CQ_ERR && e.cq == Some(b.recv_cq));
    let qp = events.iter().any(|e| e.kind == event::QP_FATAL && e.qp == Some(b.qp));
    ensure!(queue && qp, "events {events:?}");
    b.expect_state(State::Err)?;
    expect_none(&b)
}

/// Connecting, moving data, disconnecting and destroying raise no events. There are no events about
/// paths, either.
fn ordinary(env: &Env) -> Result<()> {
    for _ in 0..10 {
        let link = Link::new(env, &Options::default())?;
        link.prove()?;
        for side in [&link.a, &link.b] {
            side.to(State::Sqd)?;
            side.to(State::Rts)?;
            side.to(State::Err)?;
            side.to(State::Reset)?;
            side.destroy()?;
        }
    }
    let (a, b) = (Side::new(&env.a, &Options::default())?, Side::new(&env.b, &Options::default())?);
    expect_none(&a)?;
    expect_none(&b)
}
