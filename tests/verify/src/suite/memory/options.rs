//! The options of vrnic for requests and regions that concern keys (docs/vrnicdv.md).
//!
//! Shows: memory

use anyhow::{Result, ensure};

use crate::suite::Case;
use crate::suite::fixture::window::{BINDABLE, READ_WRITE, Window, signaled};
use crate::suite::fixture::{Env, Link, Options, Region, Side, expect_errno};
use rustix::io::Errno;
use vrnic_verbs::adapter::direct::{QpExtras, mem};
use vrnic_verbs::model::{Bind, Op, SendWr, State, Status, access};

/// The check of the rights of an entry, in `vendor_err`.
const RIGHTS: u32 = 6;
/// The check of the instance of a key.
const STALE: u32 = 4;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("direct/options/no_sq_keys", no_sq_keys),
        Case::new("direct/options/windows_only", windows_only),
        Case::new("direct/options/same_key/type1", same_key),
        Case::new("direct/options/same_key/type2", other_key),
        Case::new("direct/options/no_local_read", no_local_read),
        Case::new("direct/options/unknown_flags", unknown_flags),
    ]
}

fn with(extras: QpExtras) -> Options {
    Options { extras: Some(extras), ..Options::impatient() }
}

/// A window is not bound by a queue pair that makes no keys. LOCAL_INV is executed.
fn no_sq_keys(env: &Env) -> Result<()> {
    let extras = QpExtras { no_sq_keys: true, reactive: true, ..QpExtras::default() };
    let Link { a, b } = Link::new(env, &with(extras))?;
    let region = Region::new(&b.end, b.pd, 4096, 0, BINDABLE)?;
    for mw_type in [1, 2] {
        let mut window = Window::new(&b, mw_type)?;
        let bind = signaled(region.addr, region.len, READ_WRITE);
        window.post(&b, Some(&region), bind)?;
        let wc = b.expect_sent(bind.wr_id, Status::MwBindErr)?;
        ensure!(wc.vendor_err == RIGHTS, "{wc:?}");
        b.to(State::Rts)?;
    }
    a.prove_towards(&b)
}

/// The peer reaches a window, but not its region.
fn windows_only(env: &Env) -> Result<()> {
    let extras = QpExtras { windows_only: true, ..QpExtras::default() };
    for mw_type in [1, 2] {
        let Link { a, b } = Link::new(env, &with(extras))?;
        let region = Region::new(&b.end, b.pd, 100, 0, BINDABLE | access::ALL)?;
        let mut window = Window::new(&b, mw_type)?;
        window.bind(&b, &region, (0, 100), READ_WRITE)?;
        let near = a.region(100, 0)?;
        for (key, op, status) in [
            (window.rkey, Op::Write, Status::Success),
            (window.rkey, Op::Read, Status::Success),
            (region.rkey, Op::Write, Status::RemAccessErr),
        ] {
            near.fill(u64::from(key))?;
            let request = Side::request(op, 1, &[near.sge()]);
            a.run(request.at(region.addr, key), status)?;
        }
    }
    Ok(())
}

/// A window of type 1 keeps its key when it is bound again.
fn same_key(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &with(QpExtras::default()))?;
    let region = Region::new(&b.end, b.pd, 200, 0, BINDABLE)?;
    let mut window = Window::new(&b, 1)?;
    window.bind(&b, &region, (0, 100), READ_WRITE)?;
    let bind = Bind { wr_id: 70, ..signaled(region.addr + 100, 100, READ_WRITE) };
    let key = b.end.agent.bind_direct(b.qp, window.mw, region.mr, bind, mem::SAME_KEY)?;
    ensure!(key == window.rkey, "key {key:#x}, not {:#x}", window.rkey);
    b.expect_sent(70, Status::Success)?;
    let near = a.region(100, 0)?;
    near.fill(3)?;
    let write = Side::request(Op::Write, 71, &[near.sge()]);
    a.run(write.at(region.addr + 100, key), Status::Success)?;
    region.check_part(100, 100, 3, 0)
}

/// The library's key of a window of type 2 is not the present one, because a posted request has
/// changed it.
fn other_key(env: &Env) -> Result<()> {
    let extras = QpExtras { reactive: true, ..QpExtras::default() };
    let Link { a, b } = Link::new(env, &with(extras))?;
    let region = Region::new(&b.end, b.pd, 100, 0, BINDABLE)?;
    let mut window = Window::new(&b, 2)?;
    window.bind(&b, &region, (0, 100), READ_WRITE)?;
    b.run(SendWr { rkey: window.rkey, ..Side::request(Op::LocalInv, 72, &[]) }, Status::Success)?;
    let bind = Bind { wr_id: 73, ..signaled(region.addr, 100, READ_WRITE) };
    b.end.agent.bind_direct(b.qp, window.mw, region.mr, bind, mem::SAME_KEY)?;
    let wc = b.expect_sent(73, Status::MwBindErr)?;
    ensure!(wc.vendor_err == STALE, "{wc:?}");
    b.to(State::Rts)?;
    a.prove_towards(&b)
}

/// A region without local reads is written by the peer, by a receive and by a READ. Nothing is sent
/// from it.
fn no_local_read(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::impatient())?;
    let region = Region::direct(&b.end, b.pd, 100, access::ALL, mem::NO_LOCAL_READ)?;
    let near = a.region(100, 0)?;
    near.fill(1)?;
    a.send(&b, &[near.sge()], &[region.sge()])?;
    region.check(1)?;
    near.fill(2)?;
    let write = Side::request(Op::Write, 80, &[near.sge()]);
    a.run(write.at(region.addr, region.rkey), Status::Success)?;
    region.check(2)?;
    near.fill(3)?;
    let read = Side::request(Op::Read, 81, &[region.sge()]);
    b.run(read.at(near.addr, near.rkey), Status::Success)?;
    region.check(3)?;
    b.run(Side::request(Op::Send, 82, &[region.sge()]), Status::LocProtErr)?;
    Ok(())
}

fn unknown_flags(env: &Env) -> Result<()> {
    let side = Side::new(&env.a, &Options::default())?;
    let made = side.end.agent.alloc_buffer(4096, 0)?;
    for flags in [mem::SAME_KEY, 1 << 3] {
        let made = side.end.agent.reg_direct(side.pd, made.addr, 4096, access::ALL, flags);
        expect_errno("a region with this flag", made, Errno::INVAL)?;
    }
    Ok(())
}
