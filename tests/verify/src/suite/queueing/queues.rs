//! Queues: chains, unsignaled work, full queues, rings that wrap, many QPs.
//!
//! Shows: queues

#[cfg(feature = "vrnic")]
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Side, expect_errno, expect_full, expect_in_order};
use vrnic_verbs::model::{Op, QpCap, RecvWr, SendWr, Status, event, flags};

/// Number of QPs of the case with many QPs. Their slots fit into one doorbell page.
const MANY: usize = 500;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("queues/chain_of_mixed_operations", mixed_chain),
        Case::new("queues/unsignaled", unsignaled),
        Case::new("queues/signal_all", signal_all),
        Case::new("queues/send_queue_full", send_queue_full),
        Case::new("queues/receive_queue_full", receive_queue_full),
        Case::new("queues/wrap_1000_in_16", wrap),
        Case::new("queues/shared_cq", shared_cq),
        Case::new("queues/cq_overflow", cq_overflow),
        Case::new("queues/full_depth_of_large_writes", deep),
        Case::new("queues/both_directions_at_once", both_directions),
        Case::new("queues/two_processes_at_once", two_processes),
        Case::new("queues/500_qps", many_qps),
        #[cfg(feature = "vrnic")]
        Case::new("queues/rate_limit", rate_limit),
        Case::new("queues/thread_domain", thread_domain),
        #[cfg(feature = "vrnic")]
        Case::new("queues/allocator", allocator),
    ]
}

/// QPs for one thread work as others do, and their domains cannot be freed while they exist.
fn thread_domain(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let (pd, td) = (agent.alloc_pd()?, agent.alloc_td()?);
    let parent = agent.alloc_parent(pd, td, false)?;
    let a = Side::within(&env.a, parent, &Options::default())?;
    let link = Link::of(a, Side::new(&env.b, &Options::default())?)?;
    for _ in 0..3 {
        link.prove()?;
    }
    expect_errno("dealloc_td under a parent", agent.dealloc_td(td), Errno::BUSY)?;
    expect_errno("dealloc_pd under a parent", agent.dealloc_pd(pd), Errno::BUSY)
}

/// The rings of a QP in a parent domain with an allocator are in the program's memory, and are
/// given back to it. The domain is in use as long.
///
/// Shows: queues: programs give memory for rings
#[cfg(feature = "vrnic")]
fn allocator(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let (pd, td) = (agent.alloc_pd()?, agent.alloc_td()?);
    let parent = agent.alloc_parent(pd, td, true)?;
    let a = Side::within(&env.a, parent, &Options::default())?;
    let rings = agent.allocated()?;
    // A send queue may be in the adapter's memory.
    let expected = matches!(rings[..], [1] | [1, 1]);
    ensure!(expected, "the program has allocated memory for {rings:?}");
    expect_errno("dealloc_pd in use", agent.dealloc_pd(parent), Errno::BUSY)?;
    let link = Link::of(a, Side::new(&env.b, &Options::default())?)?;
    for _ in 0..3 {
        link.prove()?;
    }
    agent.destroy_qp(link.a.qp)?;
    let rings = agent.allocated()?;
    ensure!(rings.is_empty(), "memory for {rings:?} was not given back");
    Ok(agent.dealloc_pd(parent)?)
}

/// One post of 30 requests of five kinds, each with its own bytes.
fn mixed_chain(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let ops = [Op::Write, Op::Send, Op::Read, Op::WriteImm, Op::FetchAdd];
    let (near, far) = (a.region(30 * 64, 0)?, b.region(30 * 64, 0)?);
    near.fill(1)?;
    far.fill(2)?;
    let mut chain = Vec::new();
    for i in 0..30 {
        let op = ops[i as usize % ops.len()];
        let len = if op == Op::FetchAdd { 8 } else { 64 };
        if op.takes_receive() {
            b.post_recv(100 + i, &[far.part(i * 64, 64)])?;
        }
        let request = Side::request(op, i, &[near.part(i * 64, len)]);
        chain.push(request.at(far.addr + i * 64, far.rkey));
    }
    a.post(&chain)?;
    for (i, wc) in a.sent(30)?.iter().enumerate() {
        let op = ops[i % ops.len()];
        ensure!(wc.wr_id == i as u64, "completion {i} is of request {}", wc.wr_id);
        ensure!(wc.status == 0 && wc.opcode == op.wc_opcode(), "request {i}: {wc:?}");
    }
    ensure!(b.received(12)?.iter().all(|wc| wc.status == 0), "a receive failed");
    for i in 0..30 {
        match ops[i as usize % ops.len()] {
            Op::Read => near.check_part(i * 64, 64, 2, i * 64)?,
            Op::FetchAdd => near.check_part(i * 64, 8, 2, i * 64)?,
            _ => far.check_part(i * 64, 64, 1, i * 64)?,
        }
    }
    Ok(())
}

/// Of many unsignaled requests only the signaled ones complete. They also free the entries of the
/// others.
fn unsignaled(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default().cap(|cap| cap.send_wr = 16))?;
    let (near, far) = (a.region(1024, 0)?, b.region(1024, 0)?);
    for round in 0..50 {
        near.fill(round)?;
        let chain: Vec<_> = (0..16)
            .map(|i| {
                let flags = if i == 15 { flags::SIGNALED } else { 0 };
                let write = Side::request(Op::Write, 16 * round + i, &[near.part(i * 64, 64)]);
                SendWr { flags, ..write.at(far.addr + i * 64, far.rkey) }
            })
            .collect();
        a.post(&chain).with_context(|| format!("round {round}"))?;
        a.expect_sent(16 * round + 15, Status::Success)?;
        far.check(round)?;
    }
    a.expect_quiet(50)
}

/// With `sq_sig_all` even a request without the flag completes.
fn signal_all(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options { signal_all: true, ..Options::default() })?;
    let (near, far) = (a.region(64, 0)?, b.region(64, 0)?);
    let request = Side::request(Op::Write, 70, &[near.sge()]).at(far.addr, far.rkey);
    a.run(SendWr { flags: 0, ..request }, Status::Success).map(drop)
}

/// One request too many is refused with ENOMEM, the requests before it are posted, and the queue
/// still works. The receiver posts nothing, so that no request leaves the queue early.
fn send_queue_full(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default().cap(|cap| cap.send_wr = 16))?;
    let depth = a.cap.send_wr as usize;
    let near = a.region(64, 0)?;
    let request = |i| Side::request(Op::Send, i, &[near.sge()]);
    let posted = a.try_post(&(0..depth as u64 + 1).map(request).collect::<Vec<_>>())?;
    expect_full(&posted, depth as u64)?;
    let far = b.region(64, 0)?;
    for i in 0..depth as u64 {
        b.post_recv(i, &[far.sge()])?;
    }
    expect_in_order(&a.sent(depth)?, 0)?;
    b.received(depth)?;
    a.prove_towards(&b)
}

fn receive_queue_full(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default().cap(|cap| cap.recv_wr = 16))?;
    let depth = b.cap.recv_wr as usize;
    let far = b.region(100, 0)?;
    let request = |i| RecvWr { wr_id: i, sges: vec![far.sge()] };
    let posted = b.try_post_recv(&(0..depth as u64 + 1).map(request).collect::<Vec<_>>())?;
    expect_full(&posted, depth as u64)?;
    let near = a.region(100, 0)?;
    for i in 0..depth as u64 {
        near.fill(i)?;
        a.run(Side::request(Op::Send, i, &[near.sge()]), Status::Success)?;
        b.expect_received(i, Status::Success)?;
        far.check(i)?;
    }
    a.prove_towards(&b)
}

/// Rings of 16 entries wrap many times. The content is checked at each step.
fn wrap(env: &Env) -> Result<()> {
    let options = Options { cqe: 20, ..Options::default() };
    let options = options.cap(|cap| (cap.send_wr, cap.recv_wr) = (16, 16));
    let Link { a, b } = Link::new(env, &options)?;
    let (near, far) = (a.region(16 * 32, 0)?, b.region(16 * 32, 0)?);
    for round in 0..63 {
        near.fill(round)?;
        for i in 0..16 {
            b.post_recv(round * 16 + i, &[far.part(i * 32, 32)])?;
        }
        let chain: Vec<_> = (0..16)
            .map(|i| Side::request(Op::Send, round * 16 + i, &[near.part(i * 32, 32)]))
            .collect();
        a.post(&chain)?;
        expect_in_order(&a.sent(16)?, round * 16)?;
        expect_in_order(&b.received(16)?, round * 16)?;
        far.check(round).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// One CQ for both queues of two QPs: entries name their QP.
fn shared_cq(env: &Env) -> Result<()> {
    let first = Side::new(&env.a, &Options::default())?;
    let cqs = [first.send_cq; 2];
    let second = Side::with_cqs(&env.a, first.pd, cqs, &Options::default())?;
    let one = Link::of(first, Side::new(&env.b, &Options::default())?)?;
    let two = Link::of(second, Side::new(&env.b, &Options::default())?)?;
    let near = one.a.region(64, 0)?;
    for (link, wr_id) in [(&one, 1), (&two, 2)] {
        let far = link.b.region(64, 0)?;
        link.b.post_recv(9, &[far.sge()])?;
        link.a.post(&[Side::request(Op::Send, wr_id, &[near.sge()])])?;
        link.b.expect_received(9, Status::Success)?;
    }
    let done = one.a.sent(2)?;
    for (wc, (qpn, wr_id)) in done.iter().zip([(one.a.qpn, 1), (two.a.qpn, 2)]) {
        ensure!(wc.qpn == qpn && wc.wr_id == wr_id && wc.status == 0, "{wc:?}");
    }
    // The receive queue of the second QP uses the same CQ.
    two.a.post_recv(3, &[near.sge()])?;
    let far = two.b.region(64, 0)?;
    two.b.run(Side::request(Op::Send, 4, &[far.sge()]), Status::Success)?;
    let wc = one.a.sent(1)?[0];
    ensure!(wc.qpn == two.a.qpn && wc.wr_id == 3 && wc.status == 0, "{wc:?}");
    Ok(())
}

/// More completions than a CQ holds: an event comes, no entry is overwritten, the QP fails.
fn cq_overflow(env: &Env) -> Result<()> {
    let agent = &env.b.agent;
    let (large, small) = (agent.create_cq(64, None, 0)?, agent.create_cq(4, None, 0)?);
    let room = u64::from(small.capacity);
    let count = room + 8;
    let options = Options::default().cap(|cap| cap.recv_wr = count as u32);
    let b = Side::with_cqs(&env.b, agent.alloc_pd()?, [large.cq, small.cq], &options)?;
    let options = Options::impatient().cap(|cap| cap.send_wr = count as u32);
    let Link { a, b } = Link::of(Side::new(&env.a, &options)?, b)?;
    let (near, far) = (a.region(64, 0)?, b.region(64, 0)?);
    for i in 0..count {
        b.post_recv(i, &[far.sge()])?;
    }
    let requests: Vec<SendWr> =
        (0..count).map(|i| Side::request(Op::Send, i, &[near.sge()])).collect();
    a.post(&requests)?;
    let seen = b.event()?;
    ensure!(seen.kind == event::CQ_ERR && seen.cq == Some(b.recv_cq), "event {seen:?}");
    expect_in_order(&b.received(room as usize)?, 0).context("an entry was overwritten")?;
    a.sent(count as usize)?;
    Ok(())
}

/// A full queue of large WRITEs, each to another place.
fn deep(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let (count, len) = (64, 128 << 10);
    let (near, far) = (a.region(count * len, 5)?, b.region(count * len, 11)?);
    near.fill(6)?;
    let chain: Vec<_> = (0..count)
        .map(|i| {
            Side::request(Op::Write, i, &[near.part(i * len, len)]).at(far.addr + i * len, far.rkey)
        })
        .collect();
    a.post(&chain)?;
    ensure!(a.sent(64)?.iter().all(|wc| wc.status == 0), "a WRITE failed");
    far.check(6)
}

/// Streams of WRITEs in both directions at the same time.
fn both_directions(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    crossed(&[&link])
}

/// Runs streams both ways with a second process at either end.
fn two_processes(env: &Env) -> Result<()> {
    let (a2, b2) = (env.another_a()?, env.another_b()?);
    let link = Link::new(env, &Options::default())?;
    let other = Link::between(&a2, &b2, &Options::default())?;
    crossed(&[&link, &other])
}

/// Runs streams in both directions over each link, all at the same time.
fn crossed(links: &[&Link]) -> Result<()> {
    let mut regions = Vec::new();
    let mut pending = Vec::new();
    for link in links {
        for (from, to) in [(&link.a, &link.b), (&link.b, &link.a)] {
            let (source, target) = (from.region(8 * 4096, 1)?, to.region(8 * 4096, 2)?);
            source.fill(from.qpn.into())?;
            regions.push((from, to, source, target));
        }
    }
    for (from, _, source, target) in &regions {
        let request = Side::request(Op::Write, 0, &[source.sge()]).at(target.addr, target.rkey);
        pending.push(from.end.agent.begin().stream(from.stream(request, 2000, 16))?);
    }
    for call in pending {
        call.finish()?;
    }
    regions.iter().try_for_each(|(from, _, _, target)| target.check(from.qpn.into()))
}

/// Many connections between two processes. Each carries different bytes.
fn many_qps(env: &Env) -> Result<()> {
    let cap = QpCap { send_wr: 4, recv_wr: 4, ..Options::default().cap };
    let options = Options { cap, cqe: 8, ..Options::default() };
    let (first_a, first_b) = (Side::new(&env.a, &options)?, Side::new(&env.b, &options)?);
    let (pd_a, pd_b) = (first_a.pd, first_b.pd);
    let mut links = vec![Link::of(first_a, first_b)?];
    while links.len() < MANY {
        let what = || format!("QP {}", links.len());
        let a = Side::within(&env.a, pd_a, &options).with_context(what)?;
        let b = Side::within(&env.b, pd_b, &options).with_context(what)?;
        links.push(Link::of(a, b).with_context(what)?);
    }
    let len = 40 * MANY as u64;
    let (near, far) = (links[0].a.region(len, 0)?, links[0].b.region(len, 0)?);
    near.fill(11)?;
    for (i, link) in links.iter().enumerate() {
        let i = i as u64;
        link.b.post_recv(i, &[far.part(i * 40, 40)])?;
        link.a.post(&[Side::request(Op::Send, i, &[near.part(i * 40, 40)])])?;
    }
    for (i, link) in links.iter().enumerate() {
        link.a.expect_sent(i as u64, Status::Success)?;
        link.b.expect_received(i as u64, Status::Success)?;
    }
    far.check(11)
}

/// Messages of a QP begin no faster than its rate limit, and the limit can be changed. Only a lower
/// limit of the time is checked, because a loaded machine is slow.
///
/// Shows: queues: rate limits of queue pairs
#[cfg(feature = "vrnic")]
fn rate_limit(env: &Env) -> Result<()> {
    const LEN: u64 = 1000;
    const COUNT: u64 = 12;
    let Link { a, b } = Link::new(env, &Options::default())?;
    let (near, far) = (a.region(LEN, 0)?, b.region(LEN, 0)?);
    near.fill(7)?;
    let write = |i| Side::request(Op::Write, i, &[near.sge()]).at(far.addr, far.rkey);
    let agent = &a.end.agent;
    // 1000 messages and 100 messages per second. The first one begins at once, and a millisecond
    // that was not used may be made up for.
    for (kilobits, least) in [(8_000, 10), (800, 100), (0, 0)] {
        agent.limit_qp_rate(a.qp, kilobits, 0)?;
        let start = Instant::now();
        a.post(&(0..COUNT).map(write).collect::<Vec<_>>())?;
        expect_in_order(&a.sent(COUNT as usize)?, 0)?;
        let took = start.elapsed();
        ensure!(took >= Duration::from_millis(least), "{kilobits} kbit/s: {took:?}");
    }
    far.check(7)?;
    expect_errno("a burst", agent.limit_qp_rate(a.qp, 8_000, 1500), Errno::INVAL)
}
