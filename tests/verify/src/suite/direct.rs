//! The direct verbs of vrnic: one-touch keys, commands whose keys end with them, and the two ways
//! in which a refused memory operation fails. Other devices fail these cases.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use rustix::io::Errno;

use super::Case;
use super::fixture::window::{BINDABLE, READ_WRITE, Window, signaled};
use super::fixture::{
    End, Env, Link, Options, Region, Side, expect_errno, expect_error, expect_in_order,
};
use vrnic_verbs::direct::{CommandWr, QpExtras, mem};
use vrnic_verbs::model::{
    Bind, Change, Op, SendWr, State, Status, Wc, access, change, event, flags,
};

pub(super) fn cases() -> Vec<Case> {
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
        Case::new("direct/command/general", |env| command(env, &GENERAL)),
        Case::new("direct/command/iscsi", |env| command(env, &ISCSI)),
        Case::new("direct/command/inline", command_inline),
        Case::new("direct/command/many", many_commands),
        Case::new("direct/command/data_without_right", command_without_right),
        Case::new("direct/command/stale_tag", stale_tag),
        Case::new("direct/command/unknown_tag", unknown_tag),
        Case::new("direct/command/other_messages_are_no_response", no_response),
        Case::new("direct/command/plain_qp_has_none", plain_qp),
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

/// A form of commands: the layout of messages.
struct Form {
    extras: QpExtras,
    /// Number of bytes of a message.
    len: u64,
    /// Offset of the tag in a command.
    tag: u64,
    /// `tag_offset` of the work request.
    tag_offset: u32,
    /// The first byte of a command and of a response.
    opcodes: [u8; 2],
}

/// The extras of a QP without any.
const PLAIN: QpExtras = QpExtras {
    reactive: false,
    no_sq_keys: false,
    windows_only: false,
    tag_form: 0,
    tag_offset: 0,
    max_command_sge: 0,
};

const GENERAL: Form = Form {
    extras: QpExtras { tag_form: 1, tag_offset: 12, max_command_sge: 3, ..PLAIN },
    len: 40,
    tag: 20,
    tag_offset: 20,
    opcodes: [7, 8],
};

/// A basic header segment after 4 other bytes: SCSI command and SCSI response (RFC 7143, 11.2.1.2),
/// with the initiator task tag in bytes 16 to 19.
const ISCSI: Form = Form {
    extras: QpExtras { tag_form: 2, tag_offset: 4, max_command_sge: 3, ..PLAIN },
    len: 52,
    tag: 20,
    tag_offset: 0,
    opcodes: [0x01, 0x21],
};

impl Form {
    fn options(&self) -> Options {
        let options = Options { extras: Some(self.extras), ..Options::impatient() };
        options.cap(|cap| cap.inline = 64)
    }

    /// Returns the offset of the tag in responses.
    fn response_tag(&self) -> u64 {
        match self.extras.tag_form {
            1 => self.extras.tag_offset.into(),
            _ => u64::from(self.extras.tag_offset) + 16,
        }
    }

    /// Returns the offset of a message's opcode.
    fn opcode_at(&self) -> u64 {
        if self.extras.tag_form == 2 { self.extras.tag_offset.into() } else { 0 }
    }

    /// Makes a message of zeros, with its opcode and, in a response, its tag.
    fn message(&self, region: &Region, side: &Side, response: Option<u32>) -> Result<()> {
        let mut bytes = vec![0; self.len as usize];
        bytes[self.opcode_at() as usize] = self.opcodes[usize::from(response.is_some())];
        if let Some(tag) = response {
            let at = self.response_tag() as usize;
            bytes[at..at + 4].copy_from_slice(&tag.to_be_bytes());
        }
        let (buffer, offset) = (region.buffer, 0);
        Ok(side.end.agent.write(buffer, offset, bytes)?)
    }
}

/// A connection over which a sends commands, and the memory of the commands.
struct Scene {
    link: Link,
    form: &'static Form,
    /// Three pieces of data of a.
    data: [Region; 3],
    /// The command at a, and the receive for it at b.
    command: [Region; 2],
    /// The response at b, and the receive for it at a.
    response: [Region; 2],
}

const PIECE: u64 = 3000;

impl Scene {
    fn new(env: &Env, form: &'static Form) -> Result<Self> {
        // The responder's QP is an ordinary QP, which does not interpret commands.
        let b = Side::new(&env.b, &Options::impatient())?;
        let link = Link::of(Side::new(&env.a, &form.options())?, b)?;
        let Link { a, b } = &link;
        // Only a itself may use its regions. The command gives rights to the peer.
        let piece = |misalign| Region::new(&a.end, a.pd, PIECE, misalign, access::LOCAL_WRITE);
        let data = [piece(0)?, piece(1)?, piece(2000)?];
        let command = [a.region(form.len, 0)?, b.region(form.len, 0)?];
        let response = [b.region(form.len, 0)?, a.region(form.len, 0)?];
        Ok(Self { link, form, data, command, response })
    }

    fn work_request(&self, wr_id: u64, access: u32) -> CommandWr {
        CommandWr {
            wr_id,
            flags: flags::SIGNALED,
            access,
            one_touch: false,
            tag_offset: self.form.tag_offset,
            data: self.data.iter().map(Region::sge).collect(),
            message: vec![self.command[0].sge()],
        }
    }

    /// a sends a command. Returns the tag that b finds in it, which must be in a's completion, too.
    fn send(&self, command: CommandWr) -> Result<u32> {
        let Link { a, b } = &self.link;
        let wr_id = command.wr_id;
        self.form.message(&self.command[0], a, None)?;
        b.post_recv(wr_id, &[self.command[1].sge()])?;
        a.end.agent.post_command(a.qp, command)?;
        let sent = a.expect_sent(wr_id, Status::Success)?;
        b.expect_received(wr_id, Status::Success)?;
        let (buffer, offset) = (self.command[1].buffer, self.form.tag);
        let bytes = b.end.agent.read(buffer, offset, 4)?;
        let tag = u32::from_be_bytes(bytes.as_slice().try_into()?);
        ensure!(sent.key == tag, "the command carries {tag:#x}, its completion says {sent:?}");
        Ok(tag)
    }

    /// Makes b respond. Returns the receive completion of a.
    fn respond(&self, tag: u32) -> Result<Wc> {
        let Link { a, b } = &self.link;
        self.form.message(&self.response[0], b, Some(tag))?;
        a.post_recv(77, &[self.response[1].sge()])?;
        b.run(Side::request(Op::Send, 78, &[self.response[0].sge()]), Status::Success)?;
        a.expect_received(77, Status::Success)
    }

    /// b reads or writes all of the data with the tag.
    fn transfer(&self, op: Op, tag: u32, near: &Region) -> Result<()> {
        let request = SendWr { rkey: tag, ..Side::request(op, 79, &[near.sge()]) };
        self.link.b.post(&[request])
    }
}

/// Moves data in both directions with a tag, until the response makes the tag invalid.
fn command(env: &Env, form: &'static Form) -> Result<()> {
    let scene = Scene::new(env, form)?;
    let Link { a, b } = &scene.link;
    for (piece, region) in scene.data.iter().enumerate() {
        region.fill_part(0, PIECE, 1, piece as u64 * PIECE)?;
    }
    let tag = scene.send(scene.work_request(1, READ_WRITE))?;
    let near = b.region(3 * PIECE, 5)?;
    scene.transfer(Op::Read, tag, &near)?;
    b.expect_sent(79, Status::Success)?;
    near.check(1)?;
    near.fill(2)?;
    scene.transfer(Op::Write, tag, &near)?;
    b.expect_sent(79, Status::Success)?;
    for (piece, region) in scene.data.iter().enumerate() {
        region.check_part(0, PIECE, 2, piece as u64 * PIECE)?;
    }
    let wc = scene.respond(tag)?;
    ensure!(wc.invalidated && wc.key == tag, "{}: response to {tag:#x}: {wc:?}", a.name());
    scene.transfer(Op::Write, tag, &near)?;
    b.expect_sent(79, Status::RemAccessErr).map(drop)
}

fn command_inline(env: &Env) -> Result<()> {
    let scene = Scene::new(env, &GENERAL)?;
    let near = scene.link.b.region(3 * PIECE, 0)?;
    let mut request = scene.work_request(1, access::REMOTE_WRITE);
    request.flags |= flags::INLINE;
    let tag = scene.send(request)?;
    near.fill(3)?;
    scene.transfer(Op::Write, tag, &near)?;
    scene.link.b.expect_sent(79, Status::Success)?;
    scene.data[1].check_part(0, PIECE, 3, PIECE)?;
    ensure!(scene.respond(tag)?.key == tag, "the response takes another tag");
    Ok(())
}

/// Several commands at a time, answered in another order. Tags are not used again at once.
fn many_commands(env: &Env) -> Result<()> {
    let scene = Scene::new(env, &GENERAL)?;
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..20 {
        let mut tags = Vec::new();
        for wr_id in 0..8 {
            let tag = scene.send(scene.work_request(wr_id, access::REMOTE_READ))?;
            ensure!(seen.insert(tag), "round {round}: tag {tag:#x} was given before");
            tags.push(tag);
        }
        tags.reverse();
        for tag in tags {
            let wc = scene.respond(tag)?;
            ensure!(wc.invalidated && wc.key == tag, "response to {tag:#x}: {wc:?}");
        }
    }
    Ok(())
}

fn command_without_right(env: &Env) -> Result<()> {
    let scene = Scene::new(env, &GENERAL)?;
    let near = scene.link.b.region(3 * PIECE, 0)?;
    near.fill(4)?;
    let tag = scene.send(scene.work_request(1, access::REMOTE_READ))?;
    scene.transfer(Op::Write, tag, &near)?;
    scene.link.b.expect_sent(79, Status::RemAccessErr)?;
    scene.data[0].check_zero()
}

/// A response with this tag is refused, as an access with it would be.
fn expect_refused_response(scene: &Scene, tag: u32) -> Result<()> {
    let Link { a, b } = &scene.link;
    scene.form.message(&scene.response[0], b, Some(tag))?;
    a.post_recv(77, &[scene.response[1].sge()])?;
    b.run(Side::request(Op::Send, 78, &[scene.response[0].sge()]), Status::RemAccessErr)?;
    a.expect_state(State::Err)
}

fn stale_tag(env: &Env) -> Result<()> {
    let scene = Scene::new(env, &GENERAL)?;
    let tag = scene.send(scene.work_request(1, READ_WRITE))?;
    scene.respond(tag)?;
    expect_refused_response(&scene, tag)
}

fn unknown_tag(env: &Env) -> Result<()> {
    let scene = Scene::new(env, &ISCSI)?;
    expect_refused_response(&scene, 0x00ab_cd01)
}

/// Messages without a tag do not change a command.
fn no_response(env: &Env) -> Result<()> {
    let scene = Scene::new(env, &GENERAL)?;
    let tag = scene.send(scene.work_request(1, READ_WRITE))?;
    let wc = scene.respond(u32::MAX)?;
    ensure!(!wc.invalidated, "a message without a tag: {wc:?}");
    let near = scene.link.b.region(100, 0)?;
    near.fill(9)?;
    scene.transfer(Op::Write, tag, &near)?;
    scene.link.b.expect_sent(79, Status::Success)?;
    let wc = scene.respond(tag)?;
    ensure!(wc.invalidated && wc.key == tag, "response to {tag:#x}: {wc:?}");
    Ok(())
}

fn plain_qp(env: &Env) -> Result<()> {
    let Link { a, .. } = Link::new(env, &Options::default())?;
    let region = a.region(64, 0)?;
    let command = CommandWr {
        data: vec![region.sge()],
        message: vec![region.sge()],
        access: access::REMOTE_READ,
        ..CommandWr::default()
    };
    expect_error("a command on a plain QP", a.end.agent.post_command(a.qp, command))
}
