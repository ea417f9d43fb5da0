//! Commands that end without a response, and streams that end.
//!
//! Shows: iscsi

use vrnic_abi::admin::{Opcode as Admin, Status, command};
use vrnic_abi::cq;
use vrnic_abi::iscsi::EndCommand;
use vrnic_abi::qp::State;
use vrnic_adapter::memory::tpt::Denied;
use vrnic_simlink::{Fate, Faults};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;

use super::rig::{Pdu, READ, Rig, Told, WRITE, data_in, r2t, read10, response, write10};
use crate::network::streams::pattern;
use crate::network::toe::{pass, wait};

fn end(rig: &Rig, key: u32) -> Result<(), Refused> {
    rig.a.guest.command::<command::EndCommand>(&EndCommand::new(rig.a.qpn, key))
}

/// The consumer aborts a command: it tells the target by a task management PDU, and then the
/// adapter. What the target sends for it later has no effect.
#[test]
fn a_command_is_aborted() {
    let mut rig = Rig::new(1, Faults::default(), true);
    rig.receives(0..8);
    rig.a.fill(0, &[0xee; 1000]);
    rig.post(&read10(512), &[rig.a.sge(0, 512)], WRITE);
    let key = rig.heard().tag();
    assert_eq!(rig.sent().key.get(), key, "the consumer learns the tag of the task");
    let abort = Pdu::new(0x42, 0x81, 7).word(20, key);
    rig.send(&abort);
    assert_eq!((rig.heard(), status(&rig.sent())), (abort, cq::Status::Success));
    let done = Pdu::new(0x22, 0x80, 7);
    rig.say(&done);
    rig.expect(&done, true, Told::Nothing);
    assert_eq!(end(&rig, key), Ok(()));
    assert_eq!(end(&rig, key), Err(Refused(Status::NotFound, 0)));
    rig.say(&data_in(key, 0, &pattern(512, 1)));
    rig.expect(&data_in(key, 0, &pattern(512, 1)), true, Told::Failed(Denied::Invalid as u32));
    rig.say(&response(key));
    assert!(rig.is_quiet());
    assert_eq!(rig.counters().dropped.get(), 1);
    assert_eq!(rig.a.bytes(0, 1000), [0xee; 1000]);
    // The connection works on.
    rig.post(&read10(512), &[rig.a.sge(0, 512)], WRITE);
    let key = rig.heard().tag();
    rig.say(&response(key));
    rig.expect(&response(key), true, Told::Ended(2, key));
}

/// While bytes of a Data-Out are on their way, its command cannot be ended by the consumer: the
/// target would get other bytes.
#[test]
fn a_command_whose_data_is_on_its_way_is_busy() {
    let mut rig = Rig::new(2, Faults::default(), false);
    rig.receives(0..8);
    rig.a.fill(0, &pattern(40_000, 1));
    rig.post(&write10(40_000), &[rig.a.sge(0, 40_000)], READ);
    let key = rig.heard().tag();
    rig.cable.links[0].borrow_mut().rule(|_| Fate::Drop);
    rig.say(&r2t(key, 0, 40_000));
    pass(&rig.cable, 1_000_000);
    assert_eq!(end(&rig, key), Err(Refused(Status::Busy, 0)));
    rig.cable.links[0].borrow_mut().rule(|_| Fate::Pass);
    let mut all = Vec::new();
    while all.len() < 40_000 {
        all.extend(rig.heard().data);
    }
    assert!(all == pattern(40_000, 1));
    pass(&rig.cable, 10_000_000);
    assert_eq!(end(&rig, key), Ok(()));
}

/// END_COMMAND while the data of a Data-In arrives: what has arrived is placed, the rest is not.
#[test]
fn a_command_ends_in_the_middle_of_a_pdu() {
    let mut rig = Rig::new(3, Faults::default(), false);
    rig.receives(0..8);
    rig.post(&read10(8000), &[rig.a.sge(0, 8000)], WRITE);
    let key = rig.heard().tag();
    let pdu = data_in(key, 0, &[7; 8000]);
    let bytes = pdu.bytes(false);
    rig.say_bytes(&bytes[..3000]);
    pass(&rig.cable, 1_000_000);
    assert_eq!(end(&rig, key), Ok(()));
    rig.say_bytes(&bytes[3000..]);
    let cqe = rig.received();
    assert_eq!((cqe.byte_len.get(), cqe.vendor_err.get()), (48, Denied::Invalid as u32));
    assert_eq!(rig.a.bytes(0, 2952), [7; 2952]);
    assert_eq!(rig.a.bytes(2952, 5048), [0; 5048]);
}

/// A target that closes its direction is told by a receive without bytes.
#[test]
fn the_end_of_the_stream_completes_a_receive_without_bytes() {
    for cut in [0, 20, 55] {
        let mut rig = Rig::new(4, Faults::default(), true);
        rig.receives(0..8);
        let first = Pdu::new(0x20, 0x80, u32::MAX);
        rig.say(&first);
        rig.say_bytes(&Pdu::new(0x20, 0x80, u32::MAX).data(b"lost").bytes(true)[..cut]);
        rig.b.set_state(State::Sqd);
        rig.expect(&first, true, Told::Nothing);
        assert_eq!(rig.received().byte_len.get(), 0);
        assert_eq!(rig.a.state(), State::Rts);
        rig.a.set_state(State::Err);
        let cqe = wait(&rig.cable, &mut rig.a, |a| a.recv_cq.poll());
        assert_eq!(status(&cqe), cq::Status::WrFlushErr);
    }
}

/// The consumer closes its direction: the R2Ts that came before are answered, later ones are not.
#[test]
fn r2ts_before_the_end_are_answered() {
    let mut rig = Rig::new(6, Faults::default(), false);
    rig.receives(0..8);
    rig.a.fill(0, &pattern(60_000, 2));
    rig.post(&write10(60_000), &[rig.a.sge(0, 60_000)], READ);
    let key = rig.heard().tag();
    let ask = r2t(key, 0, 60_000);
    rig.say(&ask);
    rig.expect(&ask, true, Told::Executed(0, key));
    rig.a.set_state(State::Sqd);
    let mut all = Vec::new();
    while all.len() < 60_000 {
        all.extend(rig.heard().data);
    }
    assert!(all == pattern(60_000, 2));
    pass(&rig.cable, 10_000_000);
    rig.say(&ask);
    rig.expect(&ask, true, Told::Failed(Denied::Full as u32));
    rig.say(&response(key));
    rig.expect(&response(key), true, Told::Ended(0, key));
}

/// Commands end with their QP.
#[test]
fn commands_end_with_their_qp() {
    for destroy in [false, true] {
        let mut rig = Rig::new(5, Faults::default(), false);
        let before = rig.cable.ga.adapter.tpt().used();
        for _ in 0..4 {
            rig.post(&read10(8), &[rig.a.sge(0, 8)], WRITE);
            let _pdu = rig.heard();
        }
        assert_eq!(rig.cable.ga.adapter.tpt().used(), before + 4);
        if destroy {
            assert_eq!(rig.a.guest.on_object(Admin::DestroyQp, rig.a.qpn), Ok(0));
        } else {
            rig.a.set_state(State::Reset);
        }
        assert_eq!(rig.cable.ga.adapter.tpt().used(), before);
        let free = rig.cable.ga.adapter.connection_memory().free();
        assert_eq!(free, vrnic_adapter::limits::CONNECTION_MEMORY);
    }
}
