//! Credits: queues that cannot overflow, and CQs that are resized.
//!
//! Shows: completions

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Side, expect_full, expect_in_order, one_of};
use vrnic_verbs::model::{Op, RecvWr, SendWr, Status, flags};

/// Number of messages of the cases with traffic.
const MESSAGES: u64 = 3000;
/// Number of outstanding requests in these cases.
const DEPTH: u64 = 32;
/// Sizes of a CQ in these cases. No size is less than [`DEPTH`].
const SIZES: [i32; 6] = [32, 500, 64, 4096, 33, 128];

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("credits/receive_queue", receive_queue),
        Case::new("credits/receive_credits_come_with_polling", polling_gives_credits),
        Case::new("credits/send_queue", send_queue),
        Case::new("credits/cq_that_ignores_overruns", ignored_overruns),
        Case::new("credits/resize_cq", resize),
        Case::new("credits/resize_cq_below_what_it_holds", shrink_too_far),
        Case::new("credits/resize_cq_limits", limits),
        Case::new("credits/resize_cq_under_traffic", under_traffic),
    ]
}

fn options(depth: u32, cqe: i32) -> Options {
    let options = Options { cqe, ..Options::default() };
    options.cap(|cap| (cap.send_wr, cap.recv_wr) = (depth, depth))
}

/// Posts receives without buffers until one is refused with ENOMEM. Returns how many were posted.
fn fill_receives(side: &Side, first: u64) -> Result<u64> {
    for wr_id in first.. {
        let posted = side.try_post_recv(&[RecvWr { wr_id, sges: Vec::new() }])?;
        if let Some(refused) = posted.refused {
            ensure!(refused.errno == Some(Errno::NOMEM.raw_os_error()), "refused with {refused}");
            return Ok(wr_id - first);
        }
    }
    unreachable!("the loop ends by returning")
}

fn send(link: &Link, wr_id: u64) -> Result<()> {
    link.a.run(Side::request(Op::Send, wr_id, &[]), Status::Success).map(drop)
}

/// A full receive queue refuses receives, whatever its fill, over many laps, and without effect on
/// the connection.
fn receive_queue(env: &Env) -> Result<()> {
    let link = Link::new(env, &options(16, 64))?;
    let depth = u64::from(link.b.cap.recv_wr);
    ensure!(fill_receives(&link.b, 0)? == depth, "not as many as granted");
    let (mut posted, mut received) = (depth, 0);
    for taken in (1..=depth).chain(1..8).chain([depth]) {
        ensure!(fill_receives(&link.b, posted)? == 0, "a full queue took one");
        for _ in 0..taken {
            send(&link, received)?;
            link.b.expect_received(received, Status::Success)?;
            received += 1;
        }
        let more = fill_receives(&link.b, posted)?;
        ensure!(more == taken, "{more} places for {taken} receives that completed");
        posted += more;
    }
    Ok(())
}

/// The place of a receive is free when its completion was polled, and not before.
fn polling_gives_credits(env: &Env) -> Result<()> {
    let link = Link::new(env, &options(16, 64))?;
    let depth = fill_receives(&link.b, 0)?;
    for wr_id in 0..3 {
        send(&link, wr_id)?;
    }
    ensure!(fill_receives(&link.b, depth)? == 0, "completions not polled gave places");
    ensure!(link.b.received(2)?.len() == 2);
    ensure!(fill_receives(&link.b, depth)? == 2, "two completions give two places");
    Ok(())
}

/// Tests credits of sends: the place of an unsignaled request is freed with the next completion.
fn send_queue(env: &Env) -> Result<()> {
    let link = Link::new(env, &options(16, 64))?;
    let depth = u64::from(link.a.cap.send_wr);
    let (near, far) = (link.a.region(64, 0)?, link.b.region(64, 0)?);
    let requests: Vec<_> = (0..depth + 1)
        .map(|wr_id| {
            let flags = if wr_id + 1 == depth { flags::SIGNALED } else { 0 };
            let write = Side::request(Op::Write, wr_id, &[near.sge()]);
            SendWr { flags, ..write.at(far.addr, far.rkey) }
        })
        .collect();
    for _ in 0..50 {
        let posted = link.a.try_post(&requests)?;
        expect_full(&posted, depth)?;
        link.a.expect_sent(depth - 1, Status::Success)?;
    }
    Ok(())
}

/// A CQ that ignores overruns loses the completions for which it has no room. Everything else goes
/// on.
///
/// Shows: completions: CQs that ignore overruns
fn ignored_overruns(env: &Env) -> Result<()> {
    let a = Side::new(&env.a, &options(64, 64))?;
    let agent = &env.b.agent;
    let pd = agent.alloc_pd()?;
    let [send_cq, recv_cq] = [(); 2].map(|()| agent.create_overrunning_cq(4));
    let (send_cq, recv_cq) = (send_cq?, recv_cq?);
    let b = Side::with_cqs(&env.b, pd, [send_cq.cq, recv_cq.cq], &options(64, 4))?;
    let link = Link::of(a, b)?;
    let room = u64::from(recv_cq.capacity);
    for lap in 0..2 {
        let first = lap * 100;
        for wr_id in first..first + room + 5 {
            link.b.post_recv(wr_id, &[])?;
            send(&link, wr_id)?;
        }
        (first..first + room)
            .try_for_each(|wr_id| link.b.expect_received(wr_id, Status::Success).map(drop))?;
        let more = agent.poll(recv_cq.cq, 1, 0)?;
        ensure!(more.is_empty(), "more completions than entries: {more:?}");
    }
    Ok(())
}

/// A CQ with entries in it grows, shrinks and grows again: the entries stay, in order.
///
/// Shows: completions: CQs that are resized under traffic
fn resize(env: &Env) -> Result<()> {
    let link = Link::new(env, &options(64, 16))?;
    let b = &link.b;
    let depth = fill_receives(b, 0)?;
    let (mut sent, mut taken) = (0, 0);
    for (step, size) in [200, 20, 4000, 16, 64].into_iter().enumerate() {
        for _ in 0..7 {
            send(&link, sent)?;
            sent += 1;
        }
        let capacity = b.end.agent.resize_cq(b.recv_cq, size)?;
        ensure!(capacity >= size as u32, "{capacity} entries for {size}");
        // Leaves two to four entries for the next size.
        let some = 6 - step % 2;
        expect_in_order(&b.received(some)?, taken)?;
        taken += some as u64;
    }
    expect_in_order(&b.received((sent - taken) as usize)?, taken)?;
    ensure!(sent < depth, "the case needs more receives");
    b.expect_quiet(50)
}

/// A CQ cannot shrink below the number of its entries. It keeps its size then.
fn shrink_too_far(env: &Env) -> Result<()> {
    let link = Link::new(env, &options(64, 64))?;
    let b = &link.b;
    fill_receives(b, 0)?;
    for wr_id in 0..20 {
        send(&link, wr_id)?;
    }
    let shrink = |cqe| b.end.agent.resize_cq(b.recv_cq, cqe);
    one_of("resize to 8 of 20 entries", shrink(8), &[Errno::INVAL, Errno::NOMEM])?;
    expect_in_order(&b.received(15)?, 0)?;
    ensure!(shrink(8)? == 8);
    expect_in_order(&b.received(5)?, 15)?;
    for wr_id in 20..28 {
        send(&link, wr_id)?;
    }
    expect_in_order(&b.received(8)?, 20).context("a full ring of the new size")
}

fn limits(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let cq = agent.create_cq(10, None, 0)?.cq;
    let max_cqe = i32::try_from(env.a.info.max_cqe)?;
    for cqe in [0, -1, max_cqe + 1, i32::MAX] {
        one_of(&format!("resize to {cqe}"), agent.resize_cq(cq, cqe), &[Errno::INVAL])?;
    }
    for cqe in [1, 1000, 2] {
        let capacity = agent.resize_cq(cq, cqe)?;
        ensure!((cqe..2 * cqe.max(1)).contains(&i32::try_from(capacity)?), "{capacity} for {cqe}");
    }
    Ok(agent.destroy_cq(cq)?)
}

/// Both CQs of a connection are resized during a transfer: each completion comes once, in order.
fn under_traffic(env: &Env) -> Result<()> {
    let link = Link::new(env, &options(64, 64))?;
    let sizes = SIZES.to_vec();
    let receiving = link.b.end.agent.begin().receive_resizing(
        link.b.qp,
        link.b.recv_cq,
        MESSAGES,
        DEPTH,
        sizes.clone(),
    )?;
    let stream = link.a.stream(Side::request(Op::Send, 0, &[]), MESSAGES, DEPTH);
    let there = link.a.end.agent.stream_resizing(stream, sizes)?;
    let here = receiving.finish()?;
    ensure!(here > 20 && there > 20, "{here} and {there} resizes are too few");
    link.prove()
}
