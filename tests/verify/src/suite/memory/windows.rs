//! Memory windows of both types, and invalidation. In each case b binds windows and a uses them.
//!
//! Shows: memory

use anyhow::{Result, ensure};
use rustix::io::Errno;

use crate::suite::Case;
use crate::suite::fixture::window::{BINDABLE, READ_WRITE, Window, signaled};
use crate::suite::fixture::{Env, Link, Options, Region, Side, expect_errno};
use vrnic_verbs::model::{Bind, Op, SendWr, State, Status, access, event, wc_opcode};

pub(in crate::suite) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mw_type in [1, 2] {
        let mut add = |what: &str, run: fn(&Env, u32) -> Result<()>| {
            let name = format!("windows/type{mw_type}/{what}");
            cases.push(Case::new(name, move |env| run(env, mw_type)));
        };
        add("reaches_its_part_alone", reaches_its_part);
        for (what, spoil) in OUTSIDE {
            let name = format!("windows/type{mw_type}/{what}");
            cases.push(Case::new(name, move |env| outside(env, mw_type, *spoil)));
        }
        for (what, spoil) in REFUSED {
            let name = format!("windows/type{mw_type}/bind_{what}");
            cases.push(Case::new(name, move |env| refused(env, mw_type, *spoil)));
        }
        let mut add = |what: &str, run: fn(&Env, u32) -> Result<()>| {
            let name = format!("windows/type{mw_type}/{what}");
            cases.push(Case::new(name, move |env| run(env, mw_type)));
        };
        add("is_no_local_key", no_local_key);
        add("zero_based", zero_based);
        add("holds_its_region", holds_its_region);
        add("freed_while_bound", freed_while_bound);
        add("of_another_pd", another_pd);
        add("other_qp", other_qp);
    }
    cases.extend([
        Case::new("windows/type1/bound_again", bound_again),
        Case::new("windows/type1/unbound", unbound),
        Case::new("windows/type2/bound_twice", bound_twice),
        Case::new("windows/type2/key_of_any_number", key_of_any_number),
        Case::new("windows/type2/local_inv", local_inv),
        Case::new("windows/type2/bound_again_after_local_inv", bound_after_local_inv),
        Case::new("windows/type2/send_inv", send_inv),
        Case::new("windows/type2/send_inv_of_a_plain_region", send_inv_of_a_region),
        Case::new("windows/type2/local_inv_of_a_plain_region", local_inv_of_a_region),
    ]);
    cases
}

/// Places of windows in their regions.
const PART: (u64, u64) = (4000, 5000);
const REGION: u64 = 3 * 4096;

/// A connection, a region of b, and a window of a part of the region.
struct Scene {
    link: Link,
    region: Region,
    window: Window,
}

impl Scene {
    fn new(env: &Env, mw_type: u32, options: &Options) -> Result<Self> {
        let link = Link::new(env, options)?;
        let region = Region::new(&link.b.end, link.b.pd, REGION, 7, BINDABLE)?;
        let mut window = Window::new(&link.b, mw_type)?;
        window.bind(&link.b, &region, PART, READ_WRITE)?;
        Ok(Self { link, region, window })
    }

    /// Returns a scene with short timeouts, because its last access is refused.
    fn ending(env: &Env, mw_type: u32) -> Result<Self> {
        Self::new(env, mw_type, &Options::impatient())
    }

    /// Returns a request of a with the window's key, to the window's first bytes.
    fn request(&self, op: Op, near: &Region) -> SendWr {
        Side::request(op, 5, &[near.sge()]).at(self.region.addr + PART.0, self.window.rkey)
    }

    /// Checks that the window's memory can be written and read.
    fn prove(&self) -> Result<()> {
        let Link { a, .. } = &self.link;
        let near = a.region(PART.1, 0)?;
        near.fill(11)?;
        a.run(self.request(Op::Write, &near), Status::Success)?;
        self.region.check_part(PART.0, PART.1, 11, 0)?;
        self.region.fill_part(PART.0, PART.1, 12, 0)?;
        a.run(self.request(Op::Read, &near), Status::Success)?;
        near.check(12)
    }

    /// Checks that a write with this request is refused and changes nothing.
    fn expect_refused(&self, request: SendWr) -> Result<()> {
        self.region.fill(13)?;
        self.link.a.run(request, Status::RemAccessErr)?;
        self.region.check(13)
    }
}

fn reaches_its_part(env: &Env, mw_type: u32) -> Result<()> {
    let scene = Scene::new(env, mw_type, &Options::default())?;
    scene.region.fill(1)?;
    scene.prove()?;
    // The memory around it is unchanged.
    scene.region.check_part(0, PART.0, 1, 0)?;
    let end = PART.0 + PART.1;
    scene.region.check_part(end, REGION - end, 1, end)
}

type Spoiler = fn(&mut SendWr);

const OUTSIDE: &[(&str, Spoiler)] = &[
    ("before_it", |wr| wr.raddr -= 1),
    ("beyond_it", |wr| wr.raddr += PART.1),
    ("end_beyond_it", |wr| wr.raddr += PART.1 - 7),
    ("wraps", |wr| wr.raddr = u64::MAX - 3),
    ("old_key", |wr| wr.rkey = wr.rkey & !0xff | wr.rkey.wrapping_sub(1) & 0xff),
    ("right_that_it_lacks", |wr| {
        wr.op = Op::FetchAdd;
        // Otherwise it would be refused for its alignment.
        wr.raddr = wr.raddr.next_multiple_of(8);
    }),
];

fn outside(env: &Env, mw_type: u32, spoil: Spoiler) -> Result<()> {
    let scene = Scene::ending(env, mw_type)?;
    let near = scene.link.a.region(8, 0)?;
    let mut request = scene.request(Op::Write, &near);
    spoil(&mut request);
    scene.expect_refused(request)
}

/// Changes a valid binding, whose address is still an offset, and the region that it names.
type BindSpoiler = fn(&Side, &mut Region, &mut Bind) -> Result<()>;

const REFUSED: &[(&str, BindSpoiler)] = &[
    ("before_region", |_, _, bind| {
        bind.addr = u64::MAX;
        Ok(())
    }),
    ("beyond_region", |_, _, bind| {
        bind.length = REGION - bind.addr + 1;
        Ok(())
    }),
    ("wrapping", |_, _, bind| {
        bind.length = u64::MAX;
        Ok(())
    }),
    ("region_without_window_right", |side, region, _| {
        *region = Region::new(&side.end, side.pd, REGION, 7, access::ALL)?;
        Ok(())
    }),
    ("write_without_local_write", |side, region, _| {
        *region = Region::new(&side.end, side.pd, REGION, 7, access::MW_BIND)?;
        Ok(())
    }),
    ("region_of_another_pd", |side, region, _| {
        let pd = side.end.agent.alloc_pd()?;
        *region = Region::new(&side.end, pd, REGION, 7, BINDABLE)?;
        Ok(())
    }),
];

fn refused(env: &Env, mw_type: u32, spoil: BindSpoiler) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::impatient())?;
    let mut region = Region::new(&b.end, b.pd, REGION, 7, BINDABLE)?;
    let mut window = Window::new(&b, mw_type)?;
    let mut bind = signaled(PART.0, PART.1, READ_WRITE);
    spoil(&b, &mut region, &mut bind)?;
    bind.addr = region.addr.wrapping_add(bind.addr);
    window.post(&b, Some(&region), bind)?;
    b.expect_sent(bind.wr_id, Status::MwBindErr)?;
    // The connection has ended on both sides. Over packets, the peer learns of it by its next
    // request.
    b.expect_state(State::Err)?;
    let near = a.region(8, 0)?;
    a.post(&[Side::request(Op::Send, 6, &[near.sge()])])?;
    a.expect_sent_any(6, &[Status::WrFlushErr, Status::RemOpErr]).map(drop)
}

fn no_local_key(env: &Env, mw_type: u32) -> Result<()> {
    let scene = Scene::ending(env, mw_type)?;
    let Link { a, b } = &scene.link;
    let far = a.region(8, 0)?;
    let mut sge = scene.region.part(PART.0, 8);
    sge.lkey = scene.window.rkey;
    b.run(Side::request(Op::Write, 9, &[sge]).at(far.addr, far.rkey), Status::LocProtErr)?;
    far.check_zero()
}

fn zero_based(env: &Env, mw_type: u32) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let region = Region::new(&b.end, b.pd, REGION, 7, BINDABLE)?;
    let mut window = Window::new(&b, mw_type)?;
    window.bind(&b, &region, PART, READ_WRITE | access::ZERO_BASED)?;
    let near = a.region(100, 0)?;
    near.fill(21)?;
    let (raddr, rkey) = (PART.1 - 100, window.rkey);
    a.run(Side::request(Op::Write, 5, &[near.sge()]).at(raddr, rkey), Status::Success)?;
    region.check_part(PART.0 + PART.1 - 100, 100, 21, 0)
}

/// A region with windows cannot be deregistered.
fn holds_its_region(env: &Env, mw_type: u32) -> Result<()> {
    let scene = Scene::new(env, mw_type, &Options::default())?;
    let Link { b, .. } = &scene.link;
    let deregistered = b.end.agent.dereg_mr(scene.region.mr);
    expect_errno("dereg_mr under a window", deregistered, Errno::BUSY)?;
    scene.prove()?;
    scene.window.free(b)?;
    scene.region.deregister()
}

fn freed_while_bound(env: &Env, mw_type: u32) -> Result<()> {
    let scene = Scene::ending(env, mw_type)?;
    let near = scene.link.a.region(8, 0)?;
    scene.window.free(&scene.link.b)?;
    scene.expect_refused(scene.request(Op::Write, &near))
}

fn another_pd(env: &Env, mw_type: u32) -> Result<()> {
    let scene = Scene::ending(env, mw_type)?;
    // Another connection, whose QPs have other PDs.
    let other = Link::new(env, &Options::impatient())?;
    let near = other.a.region(8, 0)?;
    scene.region.fill(13)?;
    other.a.run(scene.request(Op::Write, &near), Status::RemAccessErr)?;
    scene.region.check(13)?;
    scene.prove()
}

/// Each QP of the PD may use a window of type 1. Only the QP that has bound it may use a window of
/// type 2.
fn other_qp(env: &Env, mw_type: u32) -> Result<()> {
    let scene = Scene::new(env, mw_type, &Options::impatient())?;
    let second = Link::of(
        Side::new(&scene.link.a.end, &Options::impatient())?,
        Side::within(&scene.link.b.end, scene.link.b.pd, &Options::impatient())?,
    )?;
    let near = second.a.region(8, 0)?;
    second.a.post(&[scene.request(Op::Write, &near)])?;
    let status = if mw_type == 1 { Status::Success } else { Status::RemAccessErr };
    second.a.expect_sent(5, status)?;
    scene.prove()
}

fn bound_again(env: &Env) -> Result<()> {
    let mut scene = Scene::ending(env, 1)?;
    let near = scene.link.a.region(8, 0)?;
    let old = scene.request(Op::Write, &near);
    scene.window.bind(&scene.link.b, &scene.region, PART, READ_WRITE)?;
    scene.prove()?;
    scene.expect_refused(old)
}

fn unbound(env: &Env) -> Result<()> {
    let mut scene = Scene::ending(env, 1)?;
    let near = scene.link.a.region(8, 0)?;
    let nothing = signaled(0, 0, 0);
    scene.window.post(&scene.link.b, None, nothing)?;
    scene.link.b.expect_sent(nothing.wr_id, Status::Success)?;
    scene.expect_refused(scene.request(Op::Write, &near))?;
    scene.region.deregister()
}

/// A window of type 2 must be invalidated before it is bound again.
fn bound_twice(env: &Env) -> Result<()> {
    let mut scene = Scene::ending(env, 2)?;
    let again = signaled(scene.region.addr, 100, READ_WRITE);
    scene.window.post(&scene.link.b, Some(&scene.region), again)?;
    scene.link.b.expect_sent(again.wr_id, Status::MwBindErr).map(drop)
}

/// A program chooses the low 8 bits of the key of a window of type 2. The others are the window's,
/// whatever the program says.
///
/// Shows: memory: windows whose program chooses the key's low bits
fn key_of_any_number(env: &Env) -> Result<()> {
    let mut scene = Scene::new(env, 2, &Options::default())?;
    let Link { b, .. } = &scene.link;
    let other = Window::new(b, 2)?;
    for number in [17, 1024, u32::MAX, other.rkey] {
        invalidate(&scene)?;
        let bind = signaled(scene.region.addr + PART.0, PART.1, READ_WRITE);
        b.end.agent.post_bind(b.qp, scene.window.mw, number, Some(scene.region.mr), bind)?;
        b.expect_sent(bind.wr_id, Status::Success)?;
        scene.window.rkey = scene.window.rkey & !0xff | number & 0xff;
        scene.prove()?;
    }
    Ok(())
}

/// b invalidates its own key.
fn invalidate(scene: &Scene) -> Result<()> {
    let Link { b, .. } = &scene.link;
    let request = SendWr { rkey: scene.window.rkey, ..Side::request(Op::LocalInv, 8, &[]) };
    let wc = b.run(request, Status::Success)?;
    ensure!(wc.opcode == wc_opcode::LOCAL_INV, "completion of a LOCAL_INV: {wc:?}");
    Ok(())
}

fn local_inv(env: &Env) -> Result<()> {
    let scene = Scene::ending(env, 2)?;
    let near = scene.link.a.region(8, 0)?;
    invalidate(&scene)?;
    scene.expect_refused(scene.request(Op::Write, &near))?;
    scene.region.deregister()
}

fn bound_after_local_inv(env: &Env) -> Result<()> {
    let mut scene = Scene::new(env, 2, &Options::default())?;
    for _ in 0..300 {
        // More often than a key has instances.
        invalidate(&scene)?;
        scene.window.bind(&scene.link.b, &scene.region, PART, READ_WRITE)?;
    }
    scene.prove()
}

fn send_inv(env: &Env) -> Result<()> {
    let scene = Scene::ending(env, 2)?;
    let Link { a, b } = &scene.link;
    let (near, far) = (a.region(100, 0)?, b.region(100, 0)?);
    near.fill(31)?;
    b.post_recv(3, &[far.sge()])?;
    let rkey = scene.window.rkey;
    a.run(SendWr { rkey, ..Side::request(Op::SendInv, 4, &[near.sge()]) }, Status::Success)?;
    let wc = b.expect_received(3, Status::Success)?;
    ensure!(wc.invalidated && wc.key == rkey, "receive of a SEND_INV of {rkey:#x}: {wc:?}");
    far.check(31)?;
    let near = a.region(8, 0)?;
    scene.expect_refused(scene.request(Op::Write, &near))
}

fn send_inv_of_a_region(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::impatient())?;
    let (near, far) = (a.region(8, 0)?, b.region(8, 0)?);
    b.post_recv(3, &[far.sge()])?;
    a.run(
        SendWr { rkey: far.rkey, ..Side::request(Op::SendInv, 4, &[near.sge()]) },
        Status::RemAccessErr,
    )?;
    b.expect_qp_event(event::QP_ACCESS_ERR)
}

fn local_inv_of_a_region(env: &Env) -> Result<()> {
    let Link { b, .. } = Link::new(env, &Options::impatient())?;
    let region = b.region(8, 0)?;
    b.run(SendWr { rkey: region.rkey, ..Side::request(Op::LocalInv, 4, &[]) }, Status::MwBindErr)?;
    Ok(())
}
