//! A program that writes garbage into everything it shares with the device. It may ruin its own
//! connections; a neighbour on the same device and the other machine must not notice.

use anyhow::{Result, ensure};

use super::Case;
use super::kit::{End, Env, Link, Options, Side};
use crate::model::Op;
use crate::rpc::calls::{Scribble, Stream, Target};

/// How long garbage is written, in milliseconds.
const DURATION_MS: u64 = 2_000;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("hostile/doorbell_pages", |env| hostile(env, Target::Device, 1)),
        Case::new("hostile/rings", |env| hostile(env, Target::Rings, 2)),
        Case::new("hostile/rings_again", |env| hostile(env, Target::Rings, 3)),
        Case::new("hostile/process_exits_in_garbage", exits),
        Case::new("hostile/plausible_entries", plausible),
    ]
}

/// A hostile process at end a with several connections to a victim process at end b. Their peers are
/// expected to see errors, not harm.
fn intruder(env: &Env) -> Result<(End, Vec<Link>)> {
    let (bad, peer) = (env.another_a()?, env.another_b()?);
    let links = (0..4)
        .map(|_| Link::between(&bad, &peer, &Options::impatient()))
        .collect::<Result<Vec<_>>>()?;
    Ok((bad, links))
}

fn hostile(env: &Env, target: Target, seed: u64) -> Result<()> {
    let good = Link::new(env, &Options::default())?;
    let (bad, links) = intruder(env)?;
    let guarded = links[0].b.region(1 << 16, 0)?;
    guarded.fill(5)?;
    let (source, destination) = (good.a.region(1 << 16, 1)?, good.b.region(1 << 16, 2)?);
    source.fill(seed)?;
    let mut request = Side::request(Op::Write, 0, &[source.sge()]);
    (request.raddr, request.rkey) = (destination.addr, destination.rkey);
    let garbage = bad.agent.begin(Scribble { target, seed, duration_ms: DURATION_MS })?;
    let traffic = good.a.end.agent.begin(Stream {
        qp: good.a.qp,
        cq: good.a.send_cq,
        request,
        count: 2000,
        depth: 8,
        step: 0,
        timeout_ms: 60_000,
    })?;
    let written = garbage.finish()?;
    ensure!(written.stores > 0 && written.mappings > 0, "nothing was written: {written:?}");
    traffic.finish()?;
    destination.check(seed)?;
    guarded.check(5)?;
    good.a.prove_towards(&good.b)?;
    let fresh = Link::new(env, &Options::default())?;
    fresh.a.prove_towards(&fresh.b)
}

/// The kernel can clean up behind a process whose queues hold garbage.
fn exits(env: &Env) -> Result<()> {
    for seed in 10..13 {
        let (bad, _links) = intruder(env)?;
        bad.agent.call(Scribble { target: Target::Rings, seed, duration_ms: 300 })?;
    }
    let fresh = Link::new(env, &Options::default())?;
    fresh.a.prove_towards(&fresh.b)
}

/// Entries that are wrong in few places get far into the device: each connection lives until the first
/// that is refused, so there are many.
fn plausible(env: &Env) -> Result<()> {
    let good = Link::new(env, &Options::default())?;
    for seed in 20..32 {
        let (bad, links) = intruder(env)?;
        let guarded = links[0].b.region(1 << 16, 0)?;
        guarded.fill(5)?;
        for link in &links {
            link.a.region(1 << 16, 0)?;
            (0..8).try_for_each(|wr_id| link.b.post_recv(wr_id, &[]))?;
        }
        bad.agent.call(Scribble { target: Target::Entries, seed, duration_ms: 200 })?;
        guarded.check(5)?;
        good.a.prove_towards(&good.b)?;
    }
    let fresh = Link::new(env, &Options::default())?;
    fresh.a.prove_towards(&fresh.b)
}
