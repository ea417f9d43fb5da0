//! Objects of another process, or of another connection, cannot be reached.
//!
//! Shows: hostile

use anyhow::Result;

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Side};
use vrnic_verbs::model::{Op, Sge, State, Status};

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("isolation/rkey_of_another_process", foreign_rkey),
        Case::new("isolation/lkey_of_another_process", foreign_lkey),
        Case::new("isolation/qp_of_another_connection", not_the_peer),
        Case::new("isolation/process_exit_frees_everything", exit_frees),
    ]
}

/// A peer names memory of a process to which it is not connected.
fn foreign_rkey(env: &Env) -> Result<()> {
    let other = env.another_b()?;
    let link = Link::new(env, &Options::impatient())?;
    let victim = Side::new(&other, &Options::default())?.region(4096, 0)?;
    victim.fill(7)?;
    let near = link.a.region(4096, 0)?;
    let write = Side::request(Op::Write, 1, &[near.sge()]).at(victim.addr, victim.rkey);
    link.a.run(write, Status::RemAccessErr)?;
    victim.check(7)
}

/// A process names memory of another process as its own.
fn foreign_lkey(env: &Env) -> Result<()> {
    let other = env.another_a()?;
    for op in [Op::Write, Op::Read] {
        let link = Link::new(env, &Options::impatient())?;
        let victim = Side::new(&other, &Options::default())?.region(4096, 0)?;
        let far = link.b.region(4096, 0)?;
        victim.fill(7)?;
        far.fill(8)?;
        let sge = Sge { addr: victim.addr, length: 4096, lkey: victim.lkey };
        link.a.run(Side::request(op, 1, &[sge]).at(far.addr, far.rkey), Status::LocProtErr)?;
        victim.check(7)?;
        far.check(8)?;
    }
    Ok(())
}

/// A QP is connected to b, while b is connected to another QP: b does not answer, and its
/// connection goes on.
fn not_the_peer(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let far = link.b.region(4096, 0)?;
    far.fill(7)?;
    let intruder = Side::new(&env.another_a()?, &Options::impatient())?;
    intruder.connect(&env.b, link.b.qpn)?;
    let near = intruder.region(4096, 0)?;
    let write = Side::request(Op::Write, 1, &[near.sge()]).at(far.addr, far.rkey);
    intruder.run(write, Status::RetryExcErr)?;
    far.check(7)?;
    link.b.expect_state(State::Rts)?;
    link.prove()
}

/// Processes that are started, leave objects of all kinds, and end.
fn exit_frees(env: &Env) -> Result<()> {
    for _ in 0..10 {
        let (a, b) = (env.another_a()?, env.another_b()?);
        let options = Options { channel: true, ..Options::default() };
        let link = Link::between(&a, &b, &options)?;
        link.prove()?;
        link.a.post_recv(1, &[])?;
    }
    Link::new(env, &Options::default())?.prove()
}
