//! Commands of the direct verbs: their keys, and the responses that end them.
//!
//! Shows: memory

use anyhow::{Result, ensure};

use crate::suite::Case;
use crate::suite::fixture::window::READ_WRITE;
use crate::suite::fixture::{Env, Link, Options, Region, Side, expect_error};
use vrnic_verbs::adapter::direct::{CommandWr, QpExtras};
use vrnic_verbs::model::{Op, SendWr, State, Status, Wc, access, flags};

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("direct/command/general", |env| command(env, &GENERAL)),
        Case::new("direct/command/iscsi", |env| command(env, &ISCSI)),
        Case::new("direct/command/inline", command_inline),
        Case::new("direct/command/many", many_commands),
        Case::new("direct/command/data_without_right", command_without_right),
        Case::new("direct/command/stale_tag", stale_tag),
        Case::new("direct/command/unknown_tag", unknown_tag),
        Case::new("direct/command/other_messages_are_no_response", no_response),
        Case::new("direct/command/plain_qp_has_none", plain_qp),
    ]
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
