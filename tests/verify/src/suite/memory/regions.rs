//! Regions of special forms, and regions that change.
//!
//! Shows: memory

use anyhow::{Result, ensure};
use rustix::io::Errno;

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Region, Side, expect_errno};
use vrnic_verbs::model::{Change, Op, SendWr, Sge, Status, access, change};

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("regions/zero_based_remote", zero_based_remote),
        Case::new("regions/zero_based_local", zero_based_local),
        Case::new("regions/zero_based_ends", zero_based_ends),
        Case::new("regions/null", null),
        Case::new("regions/dmabuf", dmabuf),
        Case::new("regions/rereg_access", rereg_access),
        Case::new("regions/rereg_access_takes_away", rereg_access_takes_away),
        Case::new("regions/rereg_translation", rereg_translation),
        Case::new("regions/rereg_pd", rereg_pd),
        Case::new("regions/refused_rereg_changes_nothing", refused_rereg),
        Case::new("regions/no_bytes", no_bytes),
    ]
}

const ZERO_BASED: u32 = access::ALL | access::ZERO_BASED;

/// Returns a request between `near` and the address `raddr` of the key `rkey`.
fn request(op: Op, near: &Region, raddr: u64, rkey: u32) -> SendWr {
    Side::request(op, 1, &[near.sge()]).at(raddr, rkey)
}

/// Addresses of a zero-based region count from its first byte, at any offset in a page.
fn zero_based_remote(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    for misalign in [0, 1, 4095] {
        let near = a.region(1000, 0)?;
        let far = Region::new(&b.end, b.pd, 3 * 4096, misalign, ZERO_BASED)?;
        for offset in [0, 5, 3 * 4096 - 1000] {
            near.fill(offset)?;
            a.run(request(Op::Write, &near, offset, far.rkey), Status::Success)?;
            far.check_part(offset, 1000, offset, 0)?;
            far.fill_part(offset, 1000, offset + 1, 0)?;
            a.run(request(Op::Read, &near, offset, far.rkey), Status::Success)?;
            near.check(offset + 1)?;
        }
    }
    Ok(())
}

fn zero_based_local(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let near = Region::new(&a.end, a.pd, 8192, 17, ZERO_BASED)?;
    let far = b.region(100, 0)?;
    near.fill_part(5000, 100, 7, 0)?;
    a.send(&b, &[Sge { addr: 5000, ..near.part(0, 100) }], &[far.sge()])?;
    far.check(7)
}

fn zero_based_ends(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::impatient())?;
    let near = a.region(8, 0)?;
    let far = Region::new(&b.end, b.pd, 4096, 0, ZERO_BASED)?;
    a.run(request(Op::Write, &near, 4089, far.rkey), Status::RemAccessErr)?;
    far.check_zero()
}

/// A region without memory reads as zeros, and loses what is written.
fn null(env: &Env) -> Result<()> {
    let options = Options::default().cap(|cap| (cap.send_sge, cap.recv_sge) = (3, 3));
    let Link { a, b } = Link::new(env, &options)?;
    let nulls = [a.end.agent.alloc_null_mr(a.pd)?, b.end.agent.alloc_null_mr(b.pd)?];
    let nothing = |nth: usize, addr, length| Sge { addr, length, lkey: nulls[nth].lkey };
    let (near, far) = (a.region(13_000, 0)?, b.region(13_000, 0)?);
    let written = b.region(4000, 0)?;
    let write = Side::request(Op::Write, 3, &[nothing(0, 0, 4000)]);
    for (len, seed) in [(10, 1), (4000, 2)] {
        near.fill(seed)?;
        let gather = [near.part(0, len), nothing(0, 0, 4000), near.part(len, len)];
        let most = far.part(0, 2 * len + 3980);
        a.send(&b, &gather, &[nothing(1, u64::MAX - 9, 10), most, nothing(1, 5, 10)])?;
        far.check_part(0, len - 10, seed, 10)?;
        far.check_part(len + 3990, len - 10, seed, len)?;
        written.fill(seed)?;
        a.run(write.clone().at(written.addr, written.rkey), Status::Success)?;
        written.check_zero()?;
        let read = [nothing(0, 1, 3), near.part(0, 5)];
        written.fill(seed)?;
        let read = Side::request(Op::Read, 4, &read).at(written.addr, written.rkey);
        a.run(read, Status::Success)?;
        near.check_part(0, 5, seed, 3)?;
    }
    for (end, null) in [&a.end, &b.end].into_iter().zip(nulls) {
        end.agent.dereg_mr(null.mr)?;
    }
    Ok(())
}

/// DMA buffers at both ends: they are sent, received into, written and read. Nothing outside the
/// region changes.
///
/// Shows: memory: memory of DMA buffers
fn dmabuf(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    for (len, misalign) in [(100, 0), (4096, 1), (300_000, 4095)] {
        let near = Region::of_dmabuf(&a.end, a.pd, len, misalign, access::ALL)?;
        let far = Region::of_dmabuf(&b.end, b.pd, len, misalign / 2, access::ALL)?;
        near.fill(len)?;
        a.send(&b, &[near.sge()], &[far.sge()])?;
        far.check(len)?;
        for (op, source, target) in [(Op::Write, &near, &far), (Op::Read, &far, &near)] {
            source.fill(len + op as u64)?;
            a.run(request(op, &near, far.addr, far.rkey), Status::Success)?;
            target.check(len + op as u64)?;
        }
        near.end()?;
        far.end()?;
    }
    Ok(())
}

/// Changes `region` of `side`. Its keys may change only if the translation does.
fn rereg(side: &Side, region: &mut Region, pd: Option<u32>, change: Change) -> Result<()> {
    let keys = side.end.agent.rereg_mr(region.mr, pd, change)?;
    let kept = (region.lkey, region.rkey) == (keys.lkey, keys.rkey);
    let moved = change.what & change::TRANSLATION != 0;
    (region.lkey, region.rkey) = (keys.lkey, keys.rkey);
    ensure!(kept || moved, "rereg_mr with flags {} changed the keys", change.what);
    Ok(())
}

/// Shows: memory: regions get other rights by reregistration
fn rereg_access(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let near = a.region(100, 0)?;
    let mut far = Region::new(&b.end, b.pd, 100, 0, access::LOCAL_WRITE)?;
    let more = Change { what: change::ACCESS, access: access::ALL, ..Change::default() };
    rereg(&b, &mut far, None, more)?;
    near.fill(3)?;
    a.run(request(Op::Write, &near, far.addr, far.rkey), Status::Success)?;
    far.check(3)
}

fn rereg_access_takes_away(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::impatient())?;
    let near = a.region(100, 0)?;
    let mut far = b.region(100, 0)?;
    let less = Change { what: change::ACCESS, access: access::LOCAL_WRITE, ..Change::default() };
    rereg(&b, &mut far, None, less)?;
    a.run(request(Op::Write, &near, far.addr, far.rkey), Status::RemAccessErr)?;
    far.check_zero()
}

fn rereg_translation(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let near = a.region(9000, 0)?;
    let mut far = b.region(100, 0)?;
    let other = b.region(9000, 33)?;
    let elsewhere = Change {
        what: change::TRANSLATION,
        addr: other.addr,
        length: other.len,
        ..Change::default()
    };
    rereg(&b, &mut far, None, elsewhere)?;
    near.fill(4)?;
    a.run(request(Op::Write, &near, other.addr, far.rkey), Status::Success)?;
    other.check(4)?;
    far.check_zero()
}

/// To another PD, back, and to another PD again: the peer's key is valid only in its PD.
fn rereg_pd(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::impatient())?;
    let near = a.region(100, 0)?;
    let mut far = b.region(100, 0)?;
    let pd = b.end.agent.alloc_pd()?;
    let to = Change { what: change::PD, ..Change::default() };
    rereg(&b, &mut far, Some(pd), to)?;
    rereg(&b, &mut far, Some(b.pd), to)?;
    near.fill(6)?;
    a.run(request(Op::Write, &near, far.addr, far.rkey), Status::Success)?;
    far.check(6)?;
    rereg(&b, &mut far, Some(pd), to)?;
    near.fill(7)?;
    a.run(request(Op::Write, &near, far.addr, far.rkey), Status::RemAccessErr)?;
    far.check(6)
}

fn refused_rereg(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let near = a.region(100, 0)?;
    let far = b.region(100, 0)?;
    // No memory exists there.
    let nowhere =
        Change { what: change::TRANSLATION, addr: 4096, length: 4096, ..Change::default() };
    let refused = b.end.agent.rereg_mr(far.mr, None, nowhere);
    expect_errno("rereg_mr of no memory", refused.map(|keys| keys.rkey), Errno::FAULT)?;
    near.fill(5)?;
    a.post(&[request(Op::Write, &near, far.addr, far.rkey)])?;
    let wc = a.sent(1)?[0];
    ensure!(wc.status == Status::Success as u32, "after a refused rereg_mr: {wc:?}");
    far.check(5)
}

/// A region has a byte at least, also if its address is good.
fn no_bytes(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    for side in [&a, &b] {
        let region = side.region(100, 0)?;
        for addr in [region.addr, region.addr + 50] {
            let refused = side.end.agent.reg_mr(side.pd, addr, 0, access::ALL);
            expect_errno("reg_mr of no bytes", refused.map(|mr| mr.mr), Errno::INVAL)?;
        }
    }
    let (source, target) = (a.region(64, 0)?, b.region(64, 0)?);
    source.fill(5)?;
    a.send(&b, &[source.sge()], &[target.sge()])?;
    target.check(5)
}
