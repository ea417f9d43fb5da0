//! Faults that the responder finds: the completion of the requester, the event of the responder.
//! Memory that may not be accessed is never changed.
//!
//! Shows: data

use anyhow::{Result, ensure};

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Region, Side};
use vrnic_verbs::model::{Op, SendWr, Sge, State, Status, access, event};

pub(in crate::suite) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in [Op::Write, Op::WriteImm, Op::Read, Op::FetchAdd] {
        for (what, spoil) in SPOILERS {
            let name = format!("remote_errors/{}/{what}", op.name());
            cases.push(Case::new(name, move |env| spoiled(env, op, *spoil)));
        }
        let name = format!("remote_errors/{}/region_lacks_right", op.name());
        cases.push(Case::new(name, move |env| region_lacks_right(env, op)));
        let name = format!("remote_errors/{}/qp_lacks_right", op.name());
        cases.push(Case::new(name, move |env| qp_lacks_right(env, op)));
    }
    for (name, offset) in [("1", 1), ("4", 4), ("7", 7)] {
        let name = format!("remote_errors/atomic_misaligned_by_{name}");
        cases.push(Case::new(name, move |env| misaligned(env, offset)));
    }
    cases.extend([
        Case::new("remote_errors/zero_length_needs_no_key", zero_length),
        Case::new("remote_errors/receive_too_short", receive_too_short),
        Case::new("remote_errors/receive_too_short_by_one", receive_too_short_by_one),
        Case::new("remote_errors/receive_bad_lkey", receive_bad_lkey),
        Case::new("remote_errors/receive_region_read_only", receive_read_only),
        Case::new("remote_errors/receive_deregistered", receive_deregistered),
        Case::new("remote_errors/requests_behind_have_no_effect", behind),
    ]);
    cases
}

/// Changes the address or the key of a valid request. Gets the responder for further objects.
type Spoiler = fn(&Side, &Region, &mut SendWr) -> Result<()>;

const SPOILERS: &[(&str, Spoiler)] = &[
    ("bad_rkey", |_, _, wr| {
        wr.rkey = !wr.rkey;
        Ok(())
    }),
    ("rkey_zero", |_, _, wr| {
        wr.rkey = 0;
        Ok(())
    }),
    ("old_instance_of_rkey", |_, _, wr| {
        wr.rkey ^= 1;
        Ok(())
    }),
    ("before_region", |_, _, wr| {
        wr.raddr -= 8;
        Ok(())
    }),
    ("beyond_region", |_, far, wr| {
        wr.raddr = far.addr + far.len;
        Ok(())
    }),
    ("end_beyond_region", |_, far, wr| {
        let len: u64 = wr.sges.iter().map(|s| u64::from(s.length)).sum();
        // An atomic must be aligned, otherwise it is not an access error.
        wr.raddr = far.addr + far.len - if len == 8 { 0 } else { len - 1 };
        Ok(())
    }),
    ("wraps_address_space", |_, _, wr| {
        wr.raddr = u64::MAX - 7;
        Ok(())
    }),
    ("deregistered", |_, far, _| far.deregister()),
    ("other_pd", |side, far, wr| {
        let pd = side.end.agent.alloc_pd()?;
        let other = Region::new(&side.end, pd, far.len, 0, access::ALL)?;
        (wr.raddr, wr.rkey) = (other.addr, other.rkey);
        Ok(())
    }),
];

/// Returns a request of this kind for all of `far` (for an atomic: its first word).
fn remote(op: Op, wr_id: u64, near: &Region, far: &Region) -> SendWr {
    let len = if matches!(op, Op::FetchAdd | Op::CmpSwp) { 8 } else { near.len };
    let request = Side::request(op, wr_id, &[near.part(0, len)]).at(far.addr, far.rkey);
    SendWr { compare_add: 1, ..request }
}

/// Posts the bad request and a good one. Checks that the requester gets `status` and a flush, that
/// the responder gets `event`, that both QPs are in error, and that `far` is unchanged.
fn expect_refused(link: &Link, bad: SendWr, far: &Region, status: Status, kind: u32) -> Result<()> {
    let Link { a, b } = link;
    far.fill(2)?;
    if bad.op.takes_receive() {
        b.post_recv(71, &[])?;
    }
    let good = a.region(8, 0)?;
    good.fill(3)?;
    let wr_id = bad.wr_id;
    let behind = remote(Op::Write, 99, &good, far);
    a.post(&[bad, behind])?;
    a.expect_sent(wr_id, status)?;
    a.expect_sent(99, Status::WrFlushErr)?;
    a.expect_state(State::Err)?;
    b.expect_state(State::Err)?;
    if !a.end.info.is_rxe() {
        b.expect_qp_event(kind)?;
    }
    far.check(2)
}

fn spoiled(env: &Env, op: Op, spoil: Spoiler) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let (near, far) = (link.a.region(2000, 0)?, link.b.region(2000, 64)?);
    near.fill(1)?;
    let mut request = remote(op, 70, &near, &far);
    spoil(&link.b, &far, &mut request)?;
    expect_refused(&link, request, &far, Status::RemAccessErr, event::QP_ACCESS_ERR)?;
    near.check(1)
}

/// Returns the right that an operation needs at the responder.
fn right(op: Op) -> u32 {
    match op {
        Op::Read => access::REMOTE_READ,
        Op::CmpSwp | Op::FetchAdd => access::REMOTE_ATOMIC,
        _ => access::REMOTE_WRITE,
    }
}

fn region_lacks_right(env: &Env, op: Op) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let near = link.a.region(2000, 0)?;
    let far = Region::new(&link.b.end, link.b.pd, 2000, 0, access::ALL & !right(op))?;
    let request = remote(op, 70, &near, &far);
    expect_refused(&link, request, &far, Status::RemAccessErr, event::QP_ACCESS_ERR)
}

/// A QP without the right for the operation refuses it as an invalid request (IBTA volume 1,
/// 9.7.4.1).
fn qp_lacks_right(env: &Env, op: Op) -> Result<()> {
    let a = Side::new(&env.a, &Options::impatient())?;
    let options = Options { access: access::ALL & !right(op), ..Options::impatient() };
    let link = Link::of(a, Side::new(&env.b, &options)?)?;
    let (near, far) = (link.a.region(2000, 0)?, link.b.region(2000, 0)?);
    let request = remote(op, 70, &near, &far);
    expect_refused(&link, request, &far, Status::RemInvReqErr, event::QP_REQ_ERR)
}

fn misaligned(env: &Env, offset: u64) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let (near, far) = (link.a.region(8, 0)?, link.b.region(64, 0)?);
    let mut request = remote(Op::FetchAdd, 70, &near, &far);
    request.raddr += offset;
    // A Terminate of iWARP contains another kind of error (RFC 7306, section 8).
    let (status, kind) = match env.a.cm {
        Some(_) => (Status::RemOpErr, event::QP_FATAL),
        None => (Status::RemInvReqErr, event::QP_REQ_ERR),
    };
    expect_refused(&link, request, &far, status, kind)
}

/// A message without bytes accesses nothing, so nothing is checked.
fn zero_length(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let near = link.a.region(8, 0)?;
    for op in [Op::Write, Op::Read] {
        link.a
            .run(Side::request(op, 70, &[near.part(0, 0)]).at(1, 0x00ba_d000), Status::Success)?;
    }
    link.prove()
}

/// Sends `len` bytes to a receive with these segments. Checks the statuses of both sides.
fn send_into(
    link: &Link,
    len: u64,
    sges: &[Sge],
    (sent, received): (Status, Status),
) -> Result<()> {
    let Link { a, b } = link;
    let near = a.region(len, 0)?;
    near.fill(1)?;
    b.post_recv(71, sges)?;
    b.post_recv(72, &[])?;
    let sent = match (sent, a.end.cm) {
        // A Terminate of iWARP reports that its sender has failed, but not which message failed.
        (Status::RemOpErr, Some(_)) => Status::FatalErr,
        (sent, _) => sent,
    };
    a.run(Side::request(Op::Send, 70, &[near.sge()]), sent)?;
    b.expect_received(71, received)?;
    b.expect_received(72, Status::WrFlushErr)?;
    a.expect_state(State::Err)?;
    b.expect_state(State::Err)
}

const TOO_SHORT: (Status, Status) = (Status::RemInvReqErr, Status::LocLenErr);
const NO_ACCESS: (Status, Status) = (Status::RemOpErr, Status::LocProtErr);

fn receive_too_short(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let far = link.b.region(100, 0)?;
    send_into(&link, 100_000, &[far.sge()], TOO_SHORT)
}

fn receive_too_short_by_one(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let far = link.b.region(100, 0)?;
    send_into(&link, 101, &[far.sge()], TOO_SHORT)
}

fn receive_bad_lkey(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let far = link.b.region(100, 0)?;
    send_into(&link, 100, &[Sge { lkey: !far.lkey, ..far.sge() }], NO_ACCESS)?;
    far.check_zero()
}

fn receive_read_only(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let far = Region::new(&link.b.end, link.b.pd, 100, 0, 0)?;
    send_into(&link, 100, &[far.sge()], NO_ACCESS)?;
    far.check_zero()
}

fn receive_deregistered(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let far = link.b.region(100, 0)?;
    far.deregister()?;
    send_into(&link, 100, &[far.sge()], NO_ACCESS)?;
    far.check_zero()
}

/// WRITEs after a refused WRITE are not executed. WRITEs before it are.
fn behind(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let Link { a, b } = &link;
    let (near, far) = (a.region(64, 0)?, b.region(20 * 64, 0)?);
    near.fill(1)?;
    far.fill(2)?;
    let mut chain: Vec<_> = (0..20).map(|i| remote(Op::Write, i, &near, &far)).collect();
    for (i, request) in chain.iter_mut().enumerate() {
        request.raddr += 64 * i as u64;
    }
    chain[10].rkey = !chain[10].rkey;
    a.post(&chain)?;
    for (i, wc) in a.sent(20)?.iter().enumerate() {
        let want = match i {
            0..10 => Status::Success,
            10 => Status::RemAccessErr,
            _ => Status::WrFlushErr,
        };
        ensure!(wc.status == want as u32 && wc.wr_id == i as u64, "completion {i}: {wc:?}");
    }
    (0..10).try_for_each(|i| far.check_part(64 * i, 64, 1, 0))?;
    far.check_part(640, 640, 2, 640)
}
