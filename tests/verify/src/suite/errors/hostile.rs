//! A program that writes garbage into all memory that it shares with the device. It may damage its
//! own connections. A neighbour on the same device and the other machine must not be affected.
//!
//! Shows: hostile

use anyhow::{Result, ensure};
use rustix::io::Errno;

use crate::rpc::client::Agent;
use crate::rpc::vrnic::{RegMrFaulting, Target};
use crate::suite::Case;
use crate::suite::fixture::window::{BINDABLE, READ_WRITE, Window, signaled};
use crate::suite::fixture::{End, Env, Link, Options, Region, Side, expect_errno};
use vrnic_verbs::adapter::transfer::RANGES;
use vrnic_verbs::model::{Op, Status};

/// Time to write garbage, in milliseconds.
const DURATION_MS: u64 = 2_000;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("hostile/doorbell_pages", |env| hostile(env, Target::Device, 1)),
        Case::new("hostile/rings", |env| hostile(env, Target::Rings, 2)),
        Case::new("hostile/rings_again", |env| hostile(env, Target::Rings, 3)),
        Case::new("hostile/process_exits_in_garbage", exits),
        Case::new("hostile/plausible_entries", plausible),
        Case::new("hostile/region_whose_answer_faults", faulting_region),
        Case::new("hostile/resized_cq_whose_answer_faults", faulting_resize),
        Case::new("hostile/ranges_of_xrc_targets", ranges_of_targets),
    ]
}

/// Returns a hostile process at end a with several connections to a victim process at end b. Their
/// peers may get errors, but must not be damaged.
fn intruder(env: &Env) -> Result<(End, Vec<Link>)> {
    let (bad, peer) = (env.another_a()?, env.another_b()?);
    let links = (0..4)
        .map(|_| Link::between(&bad, &peer, &Options::impatient()))
        .collect::<Result<Vec<_>>>()?;
    Ok((bad, links))
}

/// Shows: hostile: any bytes in doorbell pages
fn hostile(env: &Env, garbage: Target, seed: u64) -> Result<()> {
    let good = Link::new(env, &Options::default())?;
    let (bad, links) = intruder(env)?;
    let guarded = links[0].b.region(1 << 16, 0)?;
    guarded.fill(5)?;
    let (source, target) = (good.a.region(1 << 16, 1)?, good.b.region(1 << 16, 2)?);
    source.fill(seed)?;
    let request = Side::request(Op::Write, 0, &[source.sge()]).at(target.addr, target.rkey);
    let garbage = bad.agent.begin().scribble(garbage, seed, DURATION_MS)?;
    let traffic = good.a.end.agent.begin().stream(good.a.stream(request, 2000, 8))?;
    let written = garbage.finish()?;
    ensure!(written.stores > 0 && written.mappings > 0, "nothing was written: {written:?}");
    traffic.finish()?;
    target.check(seed)?;
    guarded.check(5)?;
    good.prove()?;
    Link::new(env, &Options::default())?.prove()
}

/// The kernel can clean up after a process whose queues contain garbage.
fn exits(env: &Env) -> Result<()> {
    for seed in 10..13 {
        let (bad, _links) = intruder(env)?;
        bad.agent.scribble(Target::Rings, seed, 300)?;
    }
    Link::new(env, &Options::default())?.prove()
}

/// Entries with few wrong fields pass more of the device's checks. A connection ends with the first
/// entry that is refused, so there are many connections.
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
        bad.agent.scribble(Target::Entries, seed, 200)?;
        guarded.check(5)?;
        good.prove()?;
    }
    Link::new(env, &Options::default())?.prove()
}

/// Returns the key that a new region gets after `key` was allocated: keys are counted up.
fn guess(key: u32) -> u32 {
    ((key >> 8) + 1) << 8 | 1
}

/// A process binds a window to a region that the kernel is still registering, and whose response
/// cannot be written. The binding must fail. Otherwise the kernel could not remove the region while
/// it has a window, and would unpin its memory.
///
/// Shows: hostile: a region whose answer cannot be written to the program
fn faulting_region(env: &Env) -> Result<()> {
    let side = Link::new(env, &Options::impatient())?.a;
    let window = Window::new(&side, 2)?;
    let known = Region::new(&side.end, side.pd, 4096, 0, BINDABLE)?;
    ensure!(
        known.lkey == guess(window.rkey),
        "keys are allocated in another order, so they must be guessed in another way"
    );
    let bind = signaled(known.addr, known.len, READ_WRITE);
    let (errno, bound) = side.end.agent.reg_mr_faulting(RegMrFaulting {
        pd: side.pd,
        addr: known.addr,
        length: known.len,
        access: BINDABLE,
        guess: guess(known.lkey),
        cq: side.send_cq,
        qp: side.qp,
        mw: window.mw,
        rkey: window.rkey + 1,
        bind,
    })?;
    let status: Vec<_> = bound.iter().map(|wc| wc.status).collect();
    ensure!(status == [Status::MwBindErr as u32], "the binding ended with {bound:?}");
    ensure!(errno == Some(Errno::FAULT.raw_os_error()), "the registration failed with {errno:?}");
    window.free(&side)?;
    Link::new(env, &Options::default())?.prove()
}

/// A queue keeps its old ring if the process cannot be told about the new one.
fn faulting_resize(env: &Env) -> Result<()> {
    const LOG_SIZE: u8 = 6;
    let link = Link::new(env, &Options::default())?;
    let agent = &link.a.end.agent;
    let ring = agent.alloc_buffer(64 << LOG_SIZE, 0)?;
    let (cq, buffer) = (link.a.send_cq, ring.buffer);
    let errno = agent.resize_cq_faulting(cq, buffer, LOG_SIZE)?;
    ensure!(errno == Some(Errno::FAULT.raw_os_error()), "the command failed with {errno:?}");
    link.prove()
}

/// The kernel's handle of an XRC target is not the driver's own struct. No operation on address
/// ranges accepts it, whether the process has created or opened the target.
///
/// Shows: hostile: XRC targets in operations of address ranges
fn ranges_of_targets(env: &Env) -> Result<()> {
    let (agent, other) = (&env.a.agent, &env.another_a()?.agent);
    let xrcd = open_domain(agent)?;
    let target = agent.create_target(xrcd)?;
    let opened = agent.open_target(xrcd, target.qpn)?;
    let elsewhere = other.open_target(open_domain(other)?, target.qpn)?;
    for (agent, qp) in [(agent, target.qp), (agent, opened.qp), (other, elsewhere.qp)] {
        let dm = agent.alloc_dm(4096, 0)?;
        expect_errno("taking a range", agent.alloc_range(qp), Errno::INVAL)?;
        for number in [0, 1, RANGES - 1] {
            let errnos = agent.misuse_range(qp, number, dm)?;
            ensure!(errnos == [Some(Errno::INVAL.raw_os_error()); 4], "{number}: {errnos:?}");
        }
    }
    Link::new(env, &Options::default())?.prove()
}

/// Returns the XRC domain of a file that all processes can open.
fn open_domain(agent: &Agent) -> Result<u32> {
    const CREATE: i32 = 0o100;
    Ok(agent.open_xrcd(Some("/proc/self/exe".to_owned()), CREATE)?)
}
