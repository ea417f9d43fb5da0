//! Requests that are refused when they are posted: nothing is sent, and the completion has the
//! reason.
//!
//! Shows: iscsi

use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::{CommandFlags, Opcode, Sge};
use vrnic_adapter::limits::MAX_QP_COMMANDS;
use vrnic_adapter::memory::tpt::Denied;
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::wr::{Wr, sge};

use super::rig::{
    BHS, MAX_SEND, Pdu, READ, Rig, Told, WRITE, r2t, read10, response, scsi, write10,
};
use crate::host::Bar;
use crate::memory::commands::command;

/// Posts a request, which must be refused.
#[track_caller]
fn refused(wr: impl Fn(&Rig) -> Wr, expected: Status, why: Option<Denied>) {
    let mut rig = Rig::new(1, Faults::default(), false);
    let wr = wr(&rig);
    rig.a.post_send(&wr);
    let cqe = rig.sent();
    let why = why.map_or(0, |why| why as u32);
    assert_eq!((status(&cqe), cqe.vendor_err.get()), (expected, why));
    assert_eq!(rig.a.state(), State::Err);
    // The target gets a reset, and no PDU.
    crate::network::streams::ends::reach(&rig.cable, &rig.b, vrnic_abi::connection::Stage::Gone);
    assert!(rig.b.recv_cq.poll().is_none_or(|cqe| status(&cqe) == Status::WrFlushErr));
}

fn scsi_command(pdu: &Pdu, data: &[Sge], access: u32, flags: CommandFlags) -> Wr {
    command(data, &[&pdu.head[..], &pdu.data].concat(), 0, access, flags)
}

#[test]
fn commands_that_contradict_themselves() {
    type Case = fn(&Rig) -> Wr;
    let cases: [(Case, Denied); 8] = [
        // The device is a disk: WRITE FILEMARKS is an operation of tapes.
        (|rig| scsi_command(&scsi(0xa0, 0x10, 8), &[rig.a.sge(0, 8)], READ, NONE), Denied::Kind),
        (|rig| scsi_command(&Pdu::new(2, 0x81, 0), &[rig.a.sge(0, 8)], READ, NONE), Denied::Kind),
        // The direction differs from the direction of the operation, or from the rights.
        (|rig| scsi_command(&scsi(0xa0, 0x28, 8), &[rig.a.sge(0, 8)], READ, NONE), Denied::Rights),
        (|rig| scsi_command(&read10(8), &[rig.a.sge(0, 8)], READ, NONE), Denied::Rights),
        (|rig| scsi_command(&write10(8), &[rig.a.sge(0, 8)], READ | WRITE, NONE), Denied::Rights),
        // The buffer is too short, or does not exist.
        (|rig| scsi_command(&read10(9), &[rig.a.sge(0, 8)], WRITE, NONE), Denied::Bounds),
        (
            |rig| scsi_command(&read10(8), &[sge(rig.a.buffer, 8, rig.a.key ^ 1)], WRITE, NONE),
            Denied::Stale,
        ),
        (
            |rig| scsi_command(&read10(8), &[rig.a.sge(0, 8)], WRITE, CommandFlags::ONE_TOUCH),
            Denied::Kind,
        ),
    ];
    for (wr, why) in cases {
        refused(wr, Status::MwBindErr, Some(why));
    }
}

const NONE: CommandFlags = CommandFlags::empty();

#[test]
fn physical_segments_that_wrap_or_have_holes() {
    for segments in [
        vec![sge(u64::MAX - 3, 8, 0)],
        vec![sge(0, 4000, 0), sge(8192, 4096, 0)],
        vec![sge(0, 4096, 0), sge(8200, 4096, 0)],
    ] {
        let wr = |_: &Rig| scsi_command(&read10(8), &segments, WRITE, CommandFlags::PHYSICAL);
        refused(wr, Status::MwBindErr, Some(Denied::Bounds));
    }
}

/// Other PDUs: a SCSI Command needs a buffer, a login is over, and lengths must be right.
#[test]
fn pdus_that_are_not_for_the_target() {
    let send = |bytes: &[u8]| Wr::new(Opcode::Send, &[]).inline(bytes);
    refused(|_| send(&read10(8).head), Status::LocQpOpErr, None);
    refused(|_| send(&Pdu::new(0x43, 0x87, 0).head), Status::LocQpOpErr, None);
    refused(|_| send(&Pdu::new(0x21, 0x80, 0).head), Status::LocQpOpErr, None);
    refused(|_| send(&Pdu::new(0x40, 0x80, 0).head[..47]), Status::LocLenErr, None);
    refused(|_| send(&Pdu::new(0x40, 0x80, 0).data(b"four").head), Status::LocLenErr, None);
    let long = |rig: &Rig| {
        let pdu = Pdu::new(0x40, 0x80, 0).data(&vec![0; MAX_SEND as usize + 1]);
        let bytes = [&pdu.head[..], &pdu.data].concat();
        rig.a.fill(0, &bytes);
        Wr::new(Opcode::Send, &[rig.a.sge(0, bytes.len() as u32)])
    };
    refused(long, Status::LocLenErr, None);
}

/// A QP has room for a number of commands.
#[test]
fn too_many_commands() {
    let mut rig = Rig::new(2, Faults::default(), false);
    for _ in 0..MAX_QP_COMMANDS {
        rig.post(&read10(8), &[rig.a.sge(0, 8)], WRITE);
        let _pdu = rig.heard();
        assert_eq!(status(&rig.sent()), Status::Success);
        while rig.b.send_cq.poll().is_some() {}
    }
    rig.post(&read10(8), &[rig.a.sge(0, 8)], WRITE);
    let cqe = rig.sent();
    assert_eq!((status(&cqe), cqe.vendor_err.get()), (Status::MwBindErr, Denied::Full as u32));
}

/// With the flag REACTIVE, a refused command stops only the send queue: PDUs of the target and
/// answers to its R2Ts go on, and later commands follow when the queue is started again.
///
/// Shows: iscsi
#[test]
fn a_refused_command_stops_only_the_send_queue() {
    let mut rig = Rig::reactive(3);
    rig.receives(0..8);
    rig.a.fill(0, &[5; 10_000]);
    rig.post(&write10(10_000), &[rig.a.sge(0, 10_000)], READ);
    let key = rig.heard().tag();
    assert_eq!(status(&rig.sent()), Status::Success);
    rig.post(&scsi(0xa0, 0x10, 8), &[rig.a.sge(0, 8)], READ);
    rig.send(&Pdu::new(0x40, 0x80, 3));
    let cqe = rig.sent();
    assert_eq!((status(&cqe), cqe.vendor_err.get()), (Status::MwBindErr, Denied::Kind as u32));
    assert_eq!((status(&rig.sent()), rig.a.state()), (Status::WrFlushErr, State::Sqe));
    let ask = r2t(key, 0, 10_000);
    rig.say(&ask);
    rig.expect(&ask, true, Told::Executed(0, key));
    let mut all = Vec::new();
    while all.len() < 10_000 {
        all.extend(rig.heard().data);
    }
    assert!(all == [5; 10_000]);
    rig.say(&response(key));
    rig.expect(&response(key), true, Told::Ended(0, key));
    rig.a.set_state(State::Rts);
    rig.post(&read10(8), &[rig.a.sge(0, 8)], WRITE);
    let heard = rig.heard();
    assert_eq!((heard.head[0], status(&rig.sent())), (1, Status::Success));
    rig.say(&response(heard.tag()));
    rig.expect(&response(heard.tag()), true, Told::Ended(3, heard.tag()));
}

/// The digest of the data of a command is computed when it is posted. If the data cannot be read,
/// the target cannot use the buffer of the command.
#[test]
fn a_command_whose_data_cannot_be_read_leaves_no_key() {
    let keys = |rig: &Rig| {
        let counts = rig.a.guest.adapter.counts();
        counts.into_iter().find(|(what, _)| *what == "keys").map(|(_, count)| count)
    };
    let mut rig = Rig::new(1, Faults::default(), true);
    let before = keys(&rig);
    let pdu = write10(4096).data(&[5; 1000]);
    rig.a.fill(0, &[&pdu.head[..], &pdu.data].concat());
    let wr = scsi_command(&pdu, &[rig.a.sge(100_000, 4096)], READ, NONE);
    let message = [rig.a.sge(0, BHS as u32), rig.a.sge(BHS as u64, 1000)];
    let wr = Wr { inline: None, sges: message.to_vec(), ..wr };
    rig.a.guest.host.restrict(rig.a.buffer + 500, 8, Bar::Unmapped);
    rig.a.post_send(&wr);
    assert_eq!(status(&rig.sent()), Status::LocProtErr);
    assert_eq!(keys(&rig), before);
}
