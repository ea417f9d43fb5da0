//! Commands with regions that end with the command.
//!
//! Shows: memory

use vrnic_abi::admin::{
    Opcode as Admin, QpFlags, Status as AdminStatus, TagForm, command as admin,
};
use vrnic_abi::cq::{self, Cqe, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::iscsi::EndCommand;
use vrnic_abi::qp::{Access, State};
use vrnic_abi::sq::{CommandFlags, CommandSeg, Opcode, Sge};
use vrnic_adapter::limits::MAX_MR;
use vrnic_adapter::limits::MAX_QP_COMMANDS;
use vrnic_adapter::memory::tpt::{ByteRange, Denied, RemoteUse, User};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{REGION, Setup};
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use crate::world::{Pair, state_of_failed_peer, told_by_peer};

const READ: u32 = Access::REMOTE_READ.bits();
const WRITE: u32 = Access::REMOTE_WRITE.bits();
/// Address of the buffers of B's receives.
const INBOX: u64 = 1 << 20;
/// Address of A's commands, and of the responses to them.
const OUTBOX: u64 = 2 << 20;
const BHS_LEN: usize = 48;

fn pair(form: TagForm, offset: u32) -> Pair {
    Pair::with(Setup { tags: (form, offset), ..Setup::default() }, |_| {})
}

/// Returns a SEND_CMD of A with these data segments and this message.
pub(crate) fn command(
    data: &[Sge],
    message: &[u8],
    tag_offset: u32,
    access: u32,
    flags: CommandFlags,
) -> Wr {
    let seg = CommandSeg {
        access: access.into(),
        tag_offset: tag_offset.into(),
        data_count: (data.len() as u16).into(),
        flags: flags.bits(),
        ..CommandSeg::default()
    };
    let mut body = seg.as_bytes().to_vec();
    data.iter().for_each(|sge| body.extend(sge.as_bytes()));
    Wr { body, inline: Some(message.to_vec()), ..Wr::new(Opcode::SendCmd, &[]) }
}

/// Sends a command from A. Returns the key in its completion, and the message that B received.
fn send(p: &mut Pair, wr: &Wr, len: usize) -> (u32, Vec<u8>) {
    p.b.post_recv(1, &[p.b.sge(INBOX, 4096)]);
    let cqe = p.complete(wr);
    assert_eq!((status(&cqe), cqe.opcode), (Status::Success, cq::Opcode::SendCmd as u8));
    let received = p.received().expect("command");
    assert_eq!((received.byte_len.get() as usize, received.flags.get()), (len, 0));
    (cqe.key.get(), p.b.bytes(INBOX, len))
}

/// Runs a work request of B. Returns its completion.
fn on_b(p: &mut Pair, wr: &Wr) -> Cqe {
    p.b.post_send(wr);
    p.settle();
    p.b.send_cq.poll().expect("completion on B")
}

/// Sends a response from B. Returns A's receive completion.
fn respond(p: &mut Pair, message: &[u8]) -> Cqe {
    p.a.post_recv(2, &[p.a.sge(INBOX, 4096)]);
    let wr = Wr::new(Opcode::Send, &[]).inline(message);
    assert_eq!(status(&on_b(p, &wr)), Status::Success);
    p.a.recv_cq.poll().expect("response")
}

fn refused(cqe: &Cqe, with: Status, why: Denied) {
    let why = if with == Status::RemAccessErr { told_by_peer(why) } else { why as u32 };
    assert_eq!((status(cqe), cqe.vendor_err.get()), (with, why));
}

/// The data of a command starts at offset 0 and goes on over its segments. The peer reaches it
/// until the response has arrived.
#[test]
fn general_form() {
    let mut p = pair(TagForm::General, 3);
    // Three segments, one of them empty.
    let data = [p.a.sge(100, 10), p.a.sge(0, 0), p.a.sge(5000, 5000)];
    let wr = command(&data, b"command ____ etc", 8, READ | WRITE, CommandFlags::empty());
    let (key, message) = send(&mut p, &wr, 16);
    assert_eq!(message[..8], *b"command ");
    assert_eq!(message[8..12], key.to_be_bytes());
    assert_eq!(message[12..], *b" etc");
    p.b.fill(0, b"0123456789abcdef");
    let write = Wr::new(Opcode::Write, &[p.b.sge(0, 16)]).to(4, key);
    assert_eq!(status(&on_b(&mut p, &write)), Status::Success);
    assert_eq!(p.a.bytes(104, 6), b"012345");
    assert_eq!(p.a.bytes(5000, 10), b"6789abcdef");
    let read = Wr::new(Opcode::Read, &[p.b.sge(64, 12)]).to(8, key);
    assert_eq!(status(&on_b(&mut p, &read)), Status::Success);
    assert_eq!(p.b.bytes(64, 12), b"456789abcdef");
    // A message without a tag does not end the command.
    for message in [&[0u8; 6][..], &[9, 9, 9, 0xff, 0xff, 0xff, 0xff]] {
        let cqe = respond(&mut p, message);
        assert_eq!((status(&cqe), cqe.flags.get(), cqe.key.get()), (Status::Success, 0, 0));
    }
    let mut response = vec![1, 2, 3];
    response.extend(key.to_be_bytes());
    let cqe = respond(&mut p, &response);
    assert_eq!(status(&cqe), Status::Success);
    assert_eq!((cqe.flags.get(), cqe.key.get()), (cq::Flags::INVALIDATED.bits(), key));
    let stats = p.ga.stats();
    assert_eq!((stats.command_wqes.get(), stats.remote_invalidations.get()), (1, 1));
    // The command has ended: its data cannot be reached, and no other response is accepted.
    refused(&on_b(&mut p, &read), Status::RemAccessErr, Denied::Invalid);
    assert_eq!(p.ga.drain_events(), [(Kind::QpAccessError, p.a.qpn)]);
}

/// The sender ends a command that gets no response: the peer reaches its data no more, and there is
/// room for other commands.
#[test]
fn a_command_ends_without_a_response() {
    let mut p = pair(TagForm::General, 0);
    let wr = command(&[p.a.sge(0, 8)], b"tag_", 0, READ, CommandFlags::empty());
    let (key, _) = send(&mut p, &wr, 4);
    let used = p.ga.adapter.tpt().used();
    let end = |key: u32| p.ga.command::<admin::EndCommand>(&EndCommand::new(p.a.qpn, key));
    let unknown = Err(Refused(AdminStatus::NotFound, 0));
    assert_eq!((end(key ^ 1), end(p.a.key), end(0)), (unknown, unknown, unknown));
    assert_eq!(end(key), Ok(()));
    assert_eq!(end(key), unknown);
    assert_eq!(p.ga.adapter.tpt().used(), used - 1);
    let read = Wr::new(Opcode::Read, &[p.b.sge(0, 8)]).to(0, key);
    refused(&on_b(&mut p, &read), Status::RemAccessErr, Denied::Invalid);
}

/// A response is refused if its tag is unknown, stale or another QP's. Both sides get an error.
#[test]
fn tags_that_name_no_command() {
    type Case = fn(u32, &Pair) -> (u32, Denied);
    let cases: [Case; 3] = [
        |_, _| (0x12_3456, Denied::Invalid),
        |key, _| (key ^ 1, Denied::Stale),
        |_, p| (p.a.key, Denied::Kind),
    ];
    for case in cases {
        let mut p = pair(TagForm::General, 0);
        let wr = command(&[p.a.sge(0, 8)], b"tag_", 0, READ, CommandFlags::empty());
        let (key, _) = send(&mut p, &wr, 4);
        let (tag, why) = case(key, &p);
        p.a.post_recv(2, &[p.a.sge(INBOX, 64)]);
        let response = Some(tag.to_be_bytes().to_vec());
        let wr = Wr { inline: response, ..Wr::new(Opcode::Send, &[]) };
        refused(&on_b(&mut p, &wr), Status::RemAccessErr, why);
        let cqe = p.a.recv_cq.poll().expect("flush");
        assert_eq!(status(&cqe), Status::WrFlushErr);
        assert_eq!(p.ga.drain_events(), [(Kind::QpAccessError, p.a.qpn)]);
    }
}

/// The iSCSI form: the tag is the initiator task tag of a 48-byte header, which follows the 28
/// bytes of iSER. Only PDUs that end an iSCSI command end the command here.
#[test]
fn iscsi_form() {
    const HEAD: usize = 28;
    let mut p = pair(TagForm::Iscsi, HEAD as u32);
    let mut pdu = vec![0; HEAD + BHS_LEN];
    pdu[HEAD] = 0x01;
    let data = [p.a.sge(0, 4096), p.a.sge(8192, 4096)];
    let wr = command(&data, &pdu, 0, WRITE, CommandFlags::empty());
    let (key, message) = send(&mut p, &wr, pdu.len());
    assert_eq!(message[HEAD + 16..HEAD + 20], key.to_be_bytes());
    pdu[HEAD + 16..HEAD + 20].copy_from_slice(&key.to_be_bytes());
    // An R2T PDU and a Data-In PDU without status have the tag, and do not end the command.
    for (opcode, flags) in [(0x31, 0x80), (0x25, 0x80)] {
        (pdu[HEAD], pdu[HEAD + 1]) = (opcode, flags);
        assert_eq!(respond(&mut p, &pdu).flags.get(), 0);
    }
    let write = Wr::new(Opcode::Write, &[p.b.sge(0, 4096)]).to(4000, key);
    assert_eq!(status(&on_b(&mut p, &write)), Status::Success);
    (pdu[HEAD], pdu[HEAD + 1]) = (0x21, 0x80);
    let cqe = respond(&mut p, &pdu);
    assert_eq!((cqe.flags.get(), cqe.key.get()), (cq::Flags::INVALIDATED.bits(), key));
    refused(&on_b(&mut p, &write), Status::RemAccessErr, Denied::Invalid);
}

/// Only a kernel QP may use guest addresses.
///
/// Shows: memory: a command's data by guest addresses instead of keys
#[test]
fn physical_segments() {
    let tags = (TagForm::General, 0);
    let mut p = Pair::with(Setup { kernel: true, tags, ..Setup::default() }, |_| {});
    let wr = |p: &Pair| {
        let data = [Sge { lkey: 0.into(), ..p.a.sge(300, 8) }];
        command(&data, b"tag_", 0, WRITE, CommandFlags::PHYSICAL)
    };
    let first = wr(&p);
    let (key, _) = send(&mut p, &first, 4);
    p.b.fill(0, b"physical");
    let write = Wr::new(Opcode::Write, &[p.b.sge(0, 8)]).to(0, key);
    assert_eq!(status(&on_b(&mut p, &write)), Status::Success);
    assert_eq!(p.a.bytes(300, 8), b"physical");
    let mut p = pair(TagForm::General, 0);
    let first = wr(&p);
    refused(&p.complete(&first), Status::MwBindErr, Denied::Foreign);
}

/// After a single access to the data of a command with ONE_TOUCH, its key is invalid. The response
/// still ends the command.
#[test]
fn one_touch_commands() {
    let mut p = pair(TagForm::General, 0);
    let wr = command(&[p.a.sge(0, 64)], b"tag_", 0, WRITE, CommandFlags::ONE_TOUCH);
    let (key, _) = send(&mut p, &wr, 4);
    let write = Wr::new(Opcode::Write, &[p.b.sge(0, 8)]).to(0, key);
    assert_eq!(status(&on_b(&mut p, &write)), Status::Success);
    assert_eq!(respond(&mut p, &key.to_be_bytes()).key.get(), key);
    let (key, _) = send(&mut p, &wr, 4);
    let write = write.to(0, key);
    assert_eq!(status(&on_b(&mut p, &write)), Status::Success);
    refused(&on_b(&mut p, &write), Status::RemAccessErr, Denied::Invalid);
}

/// Each reason for which a SEND_CMD is refused.
#[test]
fn refused_commands() {
    type Case = fn(&Pair) -> Wr;
    const NONE: CommandFlags = CommandFlags::empty();
    let cases: [(TagForm, Case, Denied); 6] = [
        (TagForm::None, |p| command(&[p.a.sge(0, 8)], b"tag_", 0, WRITE, NONE), Denied::Kind),
        // The place of the tag is outside of the message.
        (TagForm::General, |p| command(&[p.a.sge(0, 8)], b"tag_", 1, WRITE, NONE), Denied::Bounds),
        (TagForm::Iscsi, |p| command(&[p.a.sge(0, 8)], &[0; 19], 0, WRITE, NONE), Denied::Bounds),
        (TagForm::Iscsi, |p| command(&[p.a.sge(0, 8)], &[0; 48], 4, WRITE, NONE), Denied::Bounds),
        (TagForm::General, |p| command(&[p.a.sge(0, 0)], b"tag_", 0, WRITE, NONE), Denied::Bounds),
        (
            TagForm::General,
            |p| command(&[p.a.sge(REGION - 4, 8)], b"tag_", 0, WRITE, NONE),
            Denied::Bounds,
        ),
    ];
    for (form, case, why) in cases {
        let mut p = pair(form, 0);
        p.b.post_recv(1, &[p.b.sge(INBOX, 4096)]);
        let wr = case(&p);
        refused(&p.complete(&wr), Status::MwBindErr, why);
        assert_eq!((p.a.state(), p.b.state()), (State::Err, state_of_failed_peer()));
    }
}

/// Part 3 for commands: if the table of keys is full, only the send queue fails, or the QP and its
/// peer fail.
#[test]
fn a_full_table() {
    for flags in [QpFlags::empty(), QpFlags::REACTIVE] {
        let setup = Setup { flags, tags: (TagForm::General, 0), ..Setup::default() };
        let mut p = Pair::with(setup, |_| {});
        let tpt = p.ga.adapter.tpt();
        let window = || tpt.insert_window(p.a.pdn.into(), vrnic_abi::admin::MwType::Type1);
        let taken = std::iter::from_fn(window).count();
        assert!(taken as u32 > MAX_MR - 10);
        let wr = command(&[p.a.sge(0, 8)], b"tag_", 0, WRITE, CommandFlags::empty());
        refused(&p.complete(&wr), Status::MwBindErr, Denied::Full);
        let states = (p.a.state(), p.b.state());
        let expected = match flags.is_empty() {
            true => (State::Err, state_of_failed_peer()),
            false => (State::Sqe, State::Rts),
        };
        assert_eq!(states, expected);
    }
}

/// A QP may have a limited number of commands that no response has ended.
#[test]
fn a_qp_that_is_never_answered() {
    let mut p = pair(TagForm::General, 0);
    let wr = command(&[p.a.sge(0, 8)], b"tag_", 0, WRITE, CommandFlags::empty());
    let keys: Vec<u32> = (0..MAX_QP_COMMANDS).map(|_| send(&mut p, &wr, 4).0).collect();
    // A response makes room for one command.
    assert_eq!(respond(&mut p, &keys[7].to_be_bytes()).key.get(), keys[7]);
    send(&mut p, &wr, 4);
    p.b.post_recv(1, &[p.b.sge(INBOX, 4096)]);
    refused(&p.complete(&wr), Status::MwBindErr, Denied::Full);
}

/// Commands that no response has ended end with their QP, and their keys become invalid.
#[test]
fn commands_end_with_their_qp() {
    for destroy in [false, true] {
        let mut p = pair(TagForm::General, 0);
        let wr = command(&[p.a.sge(0, 8)], b"tag_", 0, WRITE, CommandFlags::empty());
        let keys = [(); 5].map(|()| send(&mut p, &wr, 4).0);
        let live = |p: &Pair| {
            let live = |key: &&u32| {
                let domain = p.ga.adapter.core().domain();
                let user = User { pdn: p.a.pdn.into(), qpn: p.a.qpn.into(), domain };
                let tpt = p.ga.adapter.tpt();
                let (key, range) = ((**key).into(), ByteRange { addr: 0, len: 8 });
                let by = RemoteUse::new(Access::REMOTE_WRITE, 0);
                tpt.check_remote(&(), key, user, range, by).is_ok()
            };
            keys.iter().filter(live).count()
        };
        assert_eq!(live(&p), 5);
        if destroy {
            assert_eq!(p.ga.on_object(Admin::DestroyQp, p.a.qpn), Ok(0));
        } else {
            p.a.set_state(State::Reset);
        }
        assert_eq!(live(&p), 0);
    }
}

/// The key of a command does not reach a region that was deregistered after the command was posted.
#[test]
fn regions_may_go_under_a_command() {
    let mut p = pair(TagForm::General, 0);
    let lkey = p.ga.reg_flat(p.a.pdn, 1, p.a.buffer + OUTBOX, 4096).expect("MR");
    let sge = Sge { lkey: lkey.into(), ..p.a.sge(OUTBOX, 64) };
    let wr = command(&[sge], b"tag_", 0, WRITE, CommandFlags::empty());
    let (key, _) = send(&mut p, &wr, 4);
    assert_eq!(p.ga.on_object(Admin::DeregMr, lkey), Ok(0));
    let write = Wr::new(Opcode::Write, &[p.b.sge(0, 8)]).to(0, key);
    refused(&on_b(&mut p, &write), Status::RemAccessErr, Denied::Invalid);
}
