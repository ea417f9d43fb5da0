//! FLUSH, which only the extended interface can post.
//!
//! Shows: data

use anyhow::{Result, ensure};

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Region, Side};
use vrnic_verbs::model::{Op, SendWr, Status, access};

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![Case::new("flush/range_and_region", flush), Case::new("flush/refused", flush_refused)]
}

/// Runs a request that must fail on a link of its own, whose peer's QP has these rights.
pub(in crate::suite) fn fails(env: &Env, access: u32, wr: Request, status: Status) -> Result<()> {
    let a = Side::new(&env.a, &Options::impatient())?;
    let link = Link::of(a, Side::new(&env.b, &Options { access, ..Options::impatient() })?)?;
    let near = link.a.region(64, 0)?;
    let far = Region::new(&link.b.end, link.b.pd, 64, 0, FLUSHABLE)?;
    far.fill(2)?;
    let plain = Region::new(&link.b.end, link.b.pd, 64, 0, access::LOCAL_WRITE)?;
    link.a.run(wr(&near, &far, &plain), status)?;
    far.check(2)
}

/// Returns a request, from the requester's memory, the peer's memory, and memory of the peer
/// without rights.
pub(in crate::suite) type Request = fn(&Region, &Region, &Region) -> SendWr;

/// The rights of regions and QPs for which a FLUSH is allowed.
pub(in crate::suite) const FLUSHABLE: u32 = access::ALL | access::FLUSH_GLOBAL;

/// The placement of a FLUSH for memory that all see, and for persistent memory; and the level of
/// the whole region.
const GLOBAL: u64 = 1;
const PERSISTENT: u64 = 2;
const REGION: u64 = 1 << 4;

/// Returns a FLUSH of 64 bytes.
fn flush_of(flags: u64, addr: u64, rkey: u32) -> SendWr {
    let request = Side::request(Op::Flush, 70, &[]).at(addr, rkey);
    SendWr { compare_add: 64, swap: flags, ..request }
}

/// A FLUSH of a range and of a whole region after a WRITE.
fn flush(env: &Env) -> Result<()> {
    env.a.agent.use_extended()?;
    let a = Side::new(&env.a, &Options::default())?;
    let options = Options { access: FLUSHABLE, ..Options::default() };
    let link = Link::of(a, Side::new(&env.b, &options)?)?;
    let near = link.a.region(64, 0)?;
    let far = Region::new(&link.b.end, link.b.pd, 64, 0, FLUSHABLE)?;
    for (seed, flags) in [(3, GLOBAL), (4, GLOBAL | REGION)] {
        near.fill(seed)?;
        let write = Side::request(Op::Write, 69, &[near.sge()]).at(far.addr, far.rkey);
        link.a.run(write, Status::Success)?;
        let wc = link.a.run(flush_of(flags, far.addr, far.rkey), Status::Success)?;
        ensure!(wc.opcode == Op::Flush.wc_opcode(), "opcode {}", wc.opcode);
        far.check(seed)?;
    }
    link.prove()
}

fn flush_refused(env: &Env) -> Result<()> {
    env.a.agent.use_extended()?;
    let (all, none) = (FLUSHABLE, access::ALL);
    let denied = Status::RemAccessErr;
    fails(env, all, |_, far, _| flush_of(GLOBAL, far.addr, !far.rkey), denied)?;
    fails(env, all, |_, far, _| flush_of(GLOBAL, far.addr + 1, far.rkey), denied)?;
    fails(env, all, |_, _, plain| flush_of(GLOBAL, plain.addr, plain.rkey), denied)?;
    fails(env, all, |_, _, plain| flush_of(GLOBAL | REGION, 0, plain.rkey), denied)?;
    fails(env, none, |_, far, _| flush_of(GLOBAL, far.addr, far.rkey), Status::RemInvReqErr)?;
    fails(env, all, |_, far, _| flush_of(PERSISTENT, far.addr, far.rkey), Status::RemInvReqErr)?;
    // No region has the right.
    let all = all | access::FLUSH_PERSISTENT;
    fails(env, all, |_, far, _| flush_of(PERSISTENT, far.addr, far.rkey), Status::RemAccessErr)
}
