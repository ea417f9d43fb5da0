//! Faults in requests that the requester itself has posted: the completion reports them, and the
//! peer is not affected.
//!
//! Shows: data

use anyhow::{Result, ensure};

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Region, Side};
use vrnic_verbs::model::{Op, SendWr, Sge, State, Status, access};

pub(in crate::suite) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in [Op::Send, Op::Write, Op::Read] {
        for (what, spoil) in SPOILERS {
            let name = format!("local_errors/{}/{what}", op.name());
            cases.push(Case::new(name, move |env| spoiled(env, op, *spoil)));
        }
    }
    cases.extend([
        Case::new("local_errors/read_into_read_only_region", |env| read_only(env, Op::Read)),
        Case::new("local_errors/atomic_into_read_only_region", |env| read_only(env, Op::FetchAdd)),
        Case::new("local_errors/second_segment_bad", second_segment),
        Case::new("local_errors/message_too_long", too_long),
        Case::new("local_errors/atomic_of_4_bytes", |env| atomic_of(env, 4)),
        Case::new("local_errors/atomic_of_9_bytes", |env| atomic_of(env, 9)),
        Case::new("local_errors/unknown_operation", unknown_operation),
        Case::new("local_errors/unknown_flags", unknown_flags),
        Case::new("local_errors/too_many_segments", too_many_segments),
        Case::new("local_errors/flush_in_order", flush),
        Case::new("local_errors/error_state_flushes_receives", flush_receives),
    ]);
    cases
}

/// Makes a valid segment of a region invalid. Gets the side for further objects.
type Spoiler = fn(&Side, &Region) -> Result<Sge>;

const SPOILERS: &[(&str, Spoiler)] = &[
    ("bad_lkey", |_, region| Ok(Sge { lkey: !region.lkey, ..region.sge() })),
    ("lkey_zero", |_, region| Ok(Sge { lkey: 0, ..region.sge() })),
    ("old_instance_of_lkey", |_, region| Ok(Sge { lkey: region.lkey ^ 1, ..region.sge() })),
    ("before_region", |_, region| Ok(Sge { addr: region.addr - 1, ..region.sge() })),
    ("beyond_region", |_, region| Ok(Sge { addr: region.addr + 1, ..region.sge() })),
    ("wraps_address_space", |_, region| Ok(Sge { addr: u64::MAX - 10, ..region.sge() })),
    ("deregistered", |_, region| region.deregister().map(|()| region.sge())),
    ("other_pd", |side, region| {
        let pd = side.end.agent.alloc_pd()?;
        let other = Region::new(&side.end, pd, region.len, 0, access::ALL)?;
        Ok(other.sge())
    }),
];

fn remote(op: Op, wr_id: u64, sges: &[Sge], far: &Region) -> SendWr {
    Side::request(op, wr_id, sges).at(far.addr, far.rkey)
}

/// The request with the invalid segment fails with LOC_PROT_ERR, later requests are flushed, and
/// the QP is in error. The peer's QP and memory are unchanged.
fn expect_protection_error(link: &Link, bad: SendWr, far: &Region) -> Result<()> {
    let Link { a, b } = link;
    far.fill(2)?;
    let good = a.region(16, 0)?;
    let behind = remote(Op::Write, 99, &[good.sge()], far);
    let (wr_id, read) = (bad.wr_id, bad.op == Op::Read);
    a.post(&[bad, behind])?;
    a.expect_sent(wr_id, Status::LocProtErr)?;
    a.expect_sent(99, Status::WrFlushErr)?;
    a.expect_state(State::Err)?;
    expect_peer(b)?;
    match read {
        // A READ may fail only when its response arrives. The WRITE may have been executed by then.
        true => Ok(()),
        false => far.check(2),
    }
}

fn spoiled(env: &Env, op: Op, spoil: Spoiler) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let (near, far) = (link.a.region(5000, 3)?, link.b.region(5000, 0)?);
    let sge = spoil(&link.a, &near)?;
    if op.takes_receive() {
        link.b.post_recv(1, &[far.sge()])?;
    }
    expect_protection_error(&link, remote(op, 70, &[sge], &far), &far)
}

/// READs and atomics write to local memory, so their region must allow it.
fn read_only(env: &Env, op: Op) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let near = Region::new(&link.a.end, link.a.pd, 8, 0, 0)?;
    let far = link.b.region(16, 0)?;
    far.fill(2)?;
    let request = remote(op, 70, &[near.sge()], &far);
    link.a.run(request, Status::LocProtErr)?;
    near.check_zero()
}

fn second_segment(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient().cap(|cap| cap.send_sge = 2))?;
    let (near, far) = (link.a.region(5000, 3)?, link.b.region(5000, 0)?);
    let bad = Sge { lkey: !near.lkey, ..near.part(100, 100) };
    let request = remote(Op::Send, 70, &[near.part(0, 100), bad], &far);
    link.b.post_recv(1, &[far.sge()])?;
    link.a.run(request, Status::LocProtErr)?;
    expect_peer(&link.b)
}

/// The peer of a QP that has failed is unchanged. Over iWARP its connection has ended.
fn expect_peer(b: &Side) -> Result<()> {
    match b.end.cm {
        Some(_) => b.becomes(State::Err),
        None => b.expect_state(State::Rts),
    }
}

/// More than the largest message: refused at once, or completed with LOC_LEN_ERR.
fn too_long(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient().cap(|cap| cap.send_sge = 3))?;
    let (near, far) = (link.a.region(5000, 3)?, link.b.region(5000, 0)?);
    let max_len = env.a.info.max_msg_sz;
    let sge = Sge { length: max_len / 2 + 1, ..near.sge() };
    let request = remote(Op::Write, 70, &[sge, sge], &far);
    refused_or(&link.a, request, &[Status::LocLenErr, Status::LocProtErr])
}

/// The error may come at once or in the completion.
fn refused_or(a: &Side, request: SendWr, statuses: &[Status]) -> Result<()> {
    let wr_id = request.wr_id;
    if a.try_post(&[request])?.refused.is_none() {
        a.expect_sent_any(wr_id, statuses)?;
        a.expect_state(State::Err)?;
    }
    Ok(())
}

/// An atomic has a segment of 8 bytes.
fn atomic_of(env: &Env, length: u64) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let (near, far) = (link.a.region(16, 0)?, link.b.region(8, 0)?);
    far.set_word(0, 5)?;
    let mut request = remote(Op::FetchAdd, 70, &[near.part(0, length)], &far);
    request.compare_add = 1;
    refused_or(&link.a, request, &[Status::LocLenErr])?;
    ensure!(far.word(0)? == 5, "the word changed");
    Ok(())
}

fn unknown_operation(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let request = Side::request(Op::Tso, 70, &[]);
    refused_or(&link.a, request, &[Status::LocQpOpErr])
}

/// Flags that the adapter does not have are refused at once, without other effects.
fn unknown_flags(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let Link { a, b } = &link;
    let (near, far) = (a.region(64, 0)?, b.region(64, 0)?);
    near.fill(1)?;
    // IBV_SEND_IP_CSUM, and an unknown one.
    for unknown in [1 << 4, 1 << 30] {
        let request = remote(Op::Write, 70, &[near.sge()], &far);
        let request = SendWr { flags: request.flags | unknown, ..request };
        let posted = a.try_post(&[request])?;
        ensure!(posted.refused.is_some(), "flag {unknown:#x} accepted");
    }
    a.prove_towards(b)?;
    far.check_zero()
}

/// More segments than the QP has room for are refused at once, on both queues.
fn too_many_segments(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let Link { a, b } = &link;
    let near = a.region(64, 0)?;
    let list = |n: u32| vec![near.part(0, 1); n as usize + 1];
    let posted = a.try_post(&[Side::request(Op::Send, 70, &list(a.cap.send_sge))])?;
    ensure!(posted.refused.is_some(), "{} segments accepted", a.cap.send_sge + 1);
    let receive = vrnic_verbs::model::RecvWr { wr_id: 71, sges: list(a.cap.recv_sge) };
    let posted = a.try_post_recv(&[receive])?;
    ensure!(posted.refused.is_some(), "{} receive segments accepted", a.cap.recv_sge + 1);
    a.prove_towards(b)
}

/// Requests after a failed one complete in order with WR_FLUSH_ERR, signaled or not, and so do
/// requests that are posted later, and receives.
fn flush(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let a = &link.a;
    let (near, far) = (a.region(64, 0)?, link.b.region(64, 0)?);
    a.post_recv(200, &[near.sge()])?;
    let bad = Sge { lkey: !near.lkey, ..near.sge() };
    let mut chain = vec![remote(Op::Write, 0, &[bad], &far)];
    for i in 1..10 {
        let mut request = remote(Op::Write, i, &[near.sge()], &far);
        if i % 2 == 0 {
            request.flags = 0;
        }
        chain.push(request);
    }
    a.post(&chain)?;
    a.expect_sent(0, Status::LocProtErr)?;
    for i in 1..10 {
        a.expect_sent(i, Status::WrFlushErr)?;
    }
    a.expect_received(200, Status::WrFlushErr)?;
    a.run(remote(Op::Write, 10, &[near.sge()], &far), Status::WrFlushErr)?;
    a.post_recv(201, &[near.sge()])?;
    a.expect_received(201, Status::WrFlushErr).map(drop)
}

fn flush_receives(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let b = &link.b;
    for wr_id in 0..10 {
        b.post_recv(wr_id, &[])?;
    }
    b.to(State::Err)?;
    for wr_id in 0..10 {
        b.expect_received(wr_id, Status::WrFlushErr)?;
    }
    b.expect_quiet(50)
}
