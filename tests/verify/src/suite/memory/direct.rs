//! The direct verbs of vrnic: one-touch keys, holding CQs, and the two ways in which a refused
//! memory operation fails. Other devices fail these cases.
//!
//! Shows: memory

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use rustix::io::Errno;

use crate::suite::Case;
use crate::suite::fixture::window::{BINDABLE, READ_WRITE, Window, signaled};
use crate::suite::fixture::{End, Env, Link, Options, Region, Side, expect_errno, expect_in_order};
use vrnic_verbs::adapter::direct::{QpExtras, mem};
use vrnic_verbs::model::{Bind, Change, Op, SendWr, State, Status, access, change, event};

pub(in crate::suite) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mw_type in [1, 2] {
        for (what, len) in [("write", 100), ("long_write", 5 << 20)] {
            let name = format!("direct/one_touch/type{mw_type}/{what}");
            cases.push(Case::new(name, move |env| one_touch(env, mw_type, Op::Write, len)));
        }
        let name = format!("direct/one_touch/type{mw_type}/read");
        cases.push(Case::new(name, move |env| one_touch(env, mw_type, Op::Read, 100)));
    }
    for (what, op, len) in
        [("write", Op::Write, 100), ("long_write", Op::Write, 5 << 20), ("read", Op::Read, 100)]
    {
        let name = format!("direct/one_touch/region/{what}");
        cases.push(Case::new(name, move |env| one_touch_region(env, op, len)));
    }
    cases.extend([
        Case::new("direct/one_touch/region/reregistered", reregistered),
        Case::new("direct/reactive/receives_go_on", reactive),
        Case::new("direct/reactive/after_local_inv", reactive_local_inv),
        Case::new("direct/anticipatory", anticipatory),
        Case::new("direct/cq/any_vector", any_vector),
        Case::new("direct/cq/full/receives_wait", receives_wait),
        Case::new("direct/cq/full/sends_wait", sends_wait),
        Case::new("direct/cq/full/resized", resized_while_full),
        Case::new("direct/cq/full/destroyed", destroyed_while_full),
        Case::new("direct/cq/full/few_left", few_left),
        Case::new("direct/cq/full/receiver_killed", |env| killed_while_full(env, true)),
        Case::new("direct/cq/full/sender_killed", |env| killed_while_full(env, false)),
    ]);
    cases
}

/// A peer sends one message with the region's key. Local use before it does not count. A second
/// message is refused, and the region can be deregistered afterwards.
fn one_touch_region(env: &Env, op: Op, len: u64) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::impatient())?;
    let region = Region::direct(&b.end, b.pd, len, access::ALL, mem::ONE_TOUCH)?;
    let near = a.region(len, 0)?;
    near.fill(3)?;
    a.send(&b, &[near.sge()], &[region.sge()])?;
    region.check(3)?;
    access_once(&a, op, &near, &region, region.rkey)?;
    region.end()
}

/// A READ or WRITE of `a` of all of `region` with the key `rkey` succeeds. The next one is refused.
fn access_once(a: &Side, op: Op, near: &Region, region: &Region, rkey: u32) -> Result<()> {
    let (from, to) = if op == Op::Read { (region, near) } else { (near, region) };
    let request = |wr_id| Side::request(op, wr_id, &[near.sge()]).at(region.addr, rkey);
    from.fill(1)?;
    a.run(request(1), Status::Success)?;
    to.check(1)?;
    from.fill(2)?;
    a.run(request(2), Status::RemAccessErr)?;
    to.check(1)
}

/// REREG_MR makes a region valid again whose key was used, for one more message, with a new key.
fn reregistered(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let mut region = Region::direct(&b.end, b.pd, 100, access::ALL, mem::ONE_TOUCH)?;
    let near = a.region(100, 0)?;
    for round in 0..3 {
        near.fill(round)?;
        let write = Side::request(Op::Write, round, &[near.sge()]);
        a.run(write.at(region.addr, region.rkey), Status::Success)?;
        region.check(round)?;
        let what = change::ACCESS;
        let change = Change { what, access: access::ALL, ..Change::default() };
        let keys = b.end.agent.rereg_mr(region.mr, None, change)?;
        ensure!(keys.rkey != region.rkey, "the key of the last message came back");
        (region.lkey, region.rkey) = (keys.lkey, keys.rkey);
    }
    region.end()
}

/// One message with the key succeeds. The next one is refused.
fn one_touch(env: &Env, mw_type: u32, op: Op, len: u64) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::impatient())?;
    let region = Region::new(&b.end, b.pd, len, 9, BINDABLE)?;
    let mut window = Window::new(&b, mw_type)?;
    let bind = signaled(region.addr, len, READ_WRITE);
    window.rkey = b.end.agent.bind_direct(b.qp, window.mw, region.mr, bind, mem::ONE_TOUCH)?;
    b.expect_sent(bind.wr_id, Status::Success)?;
    access_once(&a, op, &a.region(len, 0)?, &region, window.rkey)
}

/// `enum vrnicdv_cq_state`.
const CQ_ROOM: u32 = 0;
const CQ_FEW: u32 = 1;
const CQ_FULL: u32 = 2;

/// Entries of the holding CQs below.
const ENTRIES: u64 = 4;

/// Returns a link whose B has a holding CQ for its receives, or A for its sends.
fn holding(env: &Env, receives: bool, few: u32) -> Result<Link> {
    holding_between([&env.a, &env.b], receives, few)
}

fn holding_between([a, b]: [&End; 2], receives: bool, few: u32) -> Result<Link> {
    let options = Options::default();
    let side = |end: &End, first: bool| {
        let agent = &end.agent;
        let (large, small) =
            (agent.create_cq(64, None, 0)?, agent.create_holding_cq(ENTRIES as i32, few)?);
        ensure!(u64::from(small.capacity) == ENTRIES, "{} entries", small.capacity);
        let cqs = if first { [small.cq, large.cq] } else { [large.cq, small.cq] };
        Side::with_cqs(end, agent.alloc_pd()?, cqs, &options)
    };
    if receives {
        Link::of(Side::new(a, &options)?, side(b, false)?)
    } else {
        Link::of(side(a, true)?, Side::new(b, &options)?)
    }
}

/// Posts receives and SENDs with these numbers.
fn send_all(link: &Link, ids: std::ops::Range<u64>) -> Result<()> {
    let (near, far) = (link.a.region(64, 0)?, link.b.region(64, 0)?);
    for id in ids.clone() {
        link.b.post_recv(id, &[far.sge()])?;
    }
    let sends: Vec<_> = ids.map(|id| Side::request(Op::Send, id, &[near.sge()])).collect();
    link.a.post(&sends)
}

/// Waits for the event of a CQ, whose state is then this one.
fn expect_cq_event(side: &Side, cq: u32, state: u32) -> Result<()> {
    let seen = side.event()?;
    ensure!(seen.kind == event::CQ_ERR && seen.cq == Some(cq), "event {seen:?}");
    let found = side.end.agent.cq_state(cq)?;
    ensure!(found == state, "state {found}, not {state}");
    Ok(())
}

/// A holding CQ of receives is full: its program gets an event, messages wait, other QPs go on, and
/// all completions follow when the program polls.
///
/// Shows: completions: receives wait for room in a full CQ
fn receives_wait(env: &Env) -> Result<()> {
    let link = holding(env, true, 0)?;
    send_all(&link, 0..12)?;
    expect_cq_event(&link.b, link.b.recv_cq, CQ_FULL)?;
    std::thread::sleep(std::time::Duration::from_secs(3));
    Link::new(env, &Options::default())?.prove()?;
    expect_in_order(&link.b.received(12)?, 0)?;
    expect_in_order(&link.a.sent(12)?, 0)?;
    ensure!(link.b.end.agent.cq_state(link.b.recv_cq)? == CQ_ROOM, "the CQ is still full");
    link.prove()
}

/// The same for a CQ of sends.
fn sends_wait(env: &Env) -> Result<()> {
    let link = holding(env, false, 0)?;
    send_all(&link, 0..12)?;
    expect_cq_event(&link.a, link.a.send_cq, CQ_FULL)?;
    Link::new(env, &Options::default())?.prove()?;
    expect_in_order(&link.a.sent(12)?, 0)?;
    expect_in_order(&link.b.received(12)?, 0)?;
    link.prove()
}

/// `ibv_resize_cq` makes room for the completions that wait.
fn resized_while_full(env: &Env) -> Result<()> {
    let link = holding(env, true, 0)?;
    send_all(&link, 0..12)?;
    expect_cq_event(&link.b, link.b.recv_cq, CQ_FULL)?;
    link.b.end.agent.resize_cq(link.b.recv_cq, 16)?;
    expect_in_order(&link.a.sent(12)?, 0)?;
    ensure!(link.b.end.agent.cq_state(link.b.recv_cq)? == CQ_ROOM, "the CQ is still full");
    expect_in_order(&link.b.received(12)?, 0)?;
    link.prove()
}

/// A QP and its full CQ can be destroyed, and the peer's messages end with an error.
fn destroyed_while_full(env: &Env) -> Result<()> {
    let link = holding(env, true, 0)?;
    send_all(&link, 0..12)?;
    expect_cq_event(&link.b, link.b.recv_cq, CQ_FULL)?;
    let agent = &link.b.end.agent;
    agent.destroy_qp(link.b.qp)?;
    agent.destroy_cq(link.b.recv_cq)?;
    let ends = link.a.sent(12)?;
    ensure!(ends.last().is_some_and(|wc| wc.status != 0), "the last message has arrived: {ends:?}");
    Link::new(env, &Options::default())?.prove()
}

/// The process whose CQ is full is killed while its QP waits for room. The other process finds that
/// out, and both guests work on.
fn killed_while_full(env: &Env, receiver: bool) -> Result<()> {
    let (a, b) = (env.another_a()?, env.another_b()?);
    let link = holding_between([&a, &b], receiver, 0)?;
    send_all(&link, 0..12)?;
    let (gone, cq, left) = match receiver {
        true => (&link.b, link.b.recv_cq, &link.a),
        false => (&link.a, link.a.send_cq, &link.b),
    };
    expect_cq_event(gone, cq, CQ_FULL)?;
    ensure!(gone.end.agent.crash().is_err(), "the agent survived");
    // The kernel needs some time to end the process.
    std::thread::sleep(std::time::Duration::from_secs(1));
    if receiver {
        let ends = left.sent(12)?;
        ensure!(ends.last().is_some_and(|wc| wc.status != 0), "all have arrived: {ends:?}");
    } else {
        left.received(ENTRIES as usize)?;
    }
    left.destroy()?;
    Link::new(env, &Options::default())?.prove()
}

/// The event of few free entries, again after `ibv_modify_cq`.
fn few_left(env: &Env) -> Result<()> {
    let link = holding(env, true, 1)?;
    for first in [0, ENTRIES - 1] {
        send_all(&link, first..first + ENTRIES - 1)?;
        expect_cq_event(&link.b, link.b.recv_cq, CQ_FEW)?;
        expect_in_order(&link.b.received(ENTRIES as usize - 1)?, first)?;
        link.b.end.agent.moderate(link.b.recv_cq, 0, 0)?;
        ensure!(link.b.end.agent.cq_state(link.b.recv_cq)? == CQ_ROOM, "few are still left");
    }
    let bad = link.b.end.agent.create_holding_cq(ENTRIES as i32, ENTRIES as u32);
    expect_errno("an event for as many entries as there are", bad, Errno::INVAL)
}

/// CQs whose creator leaves the choice are spread over all vectors, report their vector, and raise
/// events. A CQ whose creator names a vector has this vector.
fn any_vector(env: &Env) -> Result<()> {
    let (agent, vectors) = (&env.a.agent, env.a.info.comp_vectors);
    let channel = agent.create_channel()?;
    let create = |vector: u32, any_vector| {
        let vector = vector as i32;
        agent.create_cq_direct(64, Some(channel), vector, any_vector)
    };
    let mut used = BTreeSet::new();
    for _ in 0..8 * vectors {
        used.insert(create(0, true)?.1);
    }
    ensure!(used.iter().copied().eq(0..vectors), "of {vectors} vectors {used:?} were chosen");
    for vector in 0..vectors {
        let (_, on) = create(vector, false)?;
        ensure!(on == vector, "on vector {on}, asked for {vector}");
    }
    expect_errno("a vector that is not there", create(vectors, false), Errno::INVAL)?;
    expect_errno("any vector and this one", create(1, true), Errno::INVAL)?;
    let (made, _) = create(0, true)?;
    let options = Options::default();
    let a = Side::with_cqs(&env.a, agent.alloc_pd()?, [made.cq; 2], &options)?;
    let link = Link::of(a, Side::new(&env.b, &options)?)?;
    agent.arm(made.cq, false)?;
    link.prove()?;
    let event = agent.wait_channel(channel, 30_000)?;
    ensure!(event == Some(made.cq), "the event of CQ {event:?}, not {}", made.cq);
    Ok(())
}

fn reactive_options() -> Options {
    let extras = QpExtras { reactive: true, ..QpExtras::default() };
    Options { extras: Some(extras), ..Options::default() }
}

/// After a refused operation of b: later sends are flushed, everything else works, and after a
/// return to RTS the send queue works, too.
fn survives(a: &Side, b: &Side, refused: u64) -> Result<()> {
    let (near, far) = (a.region(100, 0)?, b.region(100, 0)?);
    b.post(&[Side::request(Op::Send, 41, &[far.sge()])])?;
    b.expect_sent(refused, Status::MwBindErr)?;
    b.expect_sent(41, Status::WrFlushErr)?;
    b.expect_state(State::Sqe)?;
    b.run(Side::request(Op::Send, 42, &[far.sge()]), Status::WrFlushErr)?;
    // The peer notices nothing.
    near.fill(5)?;
    a.send(b, &[near.sge()], &[far.sge()])?;
    far.check(5)?;
    far.fill(6)?;
    a.run(Side::request(Op::Read, 45, &[near.sge()]).at(far.addr, far.rkey), Status::Success)?;
    near.check(6)?;
    b.to(State::Rts)?;
    a.prove_towards(b)
}

fn reactive(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &reactive_options())?;
    let region = Region::new(&b.end, b.pd, 4096, 0, access::ALL)?;
    let mut window = Window::new(&b, 1)?;
    for wr_id in [50, 51] {
        // The region cannot be bound.
        let bind = Bind { wr_id, ..signaled(region.addr, region.len, READ_WRITE) };
        window.post(&b, Some(&region), bind)?;
        survives(&a, &b, wr_id)?;
    }
    Ok(())
}

fn reactive_local_inv(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &reactive_options())?;
    b.post(&[SendWr { rkey: 0xffff_ff00, ..Side::request(Op::LocalInv, 52, &[]) }])?;
    survives(&a, &b, 52)
}

/// Without reactive failure the connection ends at both sides.
fn anticipatory(env: &Env) -> Result<()> {
    let options = Options { extras: Some(QpExtras::default()), ..Options::impatient() };
    let Link { a, b } = Link::new(env, &options)?;
    let far = b.region(8, 0)?;
    a.post_recv(61, &[])?;
    b.post_recv(62, &[])?;
    let bad = SendWr { rkey: 0xffff_ff00, ..Side::request(Op::LocalInv, 63, &[]) };
    b.post(&[bad, Side::request(Op::Send, 64, &[far.sge()])])?;
    b.expect_sent(63, Status::MwBindErr)?;
    b.expect_sent(64, Status::WrFlushErr)?;
    b.expect_received(62, Status::WrFlushErr)?;
    a.expect_received(61, Status::WrFlushErr)?;
    a.expect_state(State::Err)?;
    b.expect_state(State::Err)
}
