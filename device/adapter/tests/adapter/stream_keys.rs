//! Keys of messages in TCP connections (iWARP).

use vrnic_abi::admin::{MrFlags, Pages, RegMr, command};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::{CommandFlags, Opcode};
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::{Wr, sge};

use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::commands::command;
use crate::keys::{alloc_mr, reg, reg_seg};
use crate::streams::{connected, pattern};

/// A READ can end the key of its sink, which must be its only one.
#[test]
fn reads_invalidate_the_key_of_their_sink() {
    let cable = Cable::new(9, Faults::default());
    let setup = Setup { kernel: true, ..Setup::default() };
    let (mut a, b) = (Endpoint::new(&cable.ga, setup), Endpoint::new(&cable.gb, setup));
    stream::connect_pair(&a, &b);
    let key = alloc_mr(&cable.ga, a.pdn, 1);
    let register = reg(key, 0x5000, &reg_seg(&cable.ga, &[a.buffer], 4096, ALL));
    let data = pattern(3000, 1);
    b.fill(0, &data);
    let read = |opcode| Wr::new(opcode, &[sge(0x5000, 3000, key)]).to(b.buffer, b.key);
    for _ in 0..3 {
        assert_eq!(status(&cable.complete(&mut a, &register)), Status::Success);
        a.fill(0, &[0; 3000]);
        for opcode in [Opcode::Read, Opcode::ReadInv] {
            let cqe = cable.complete(&mut a, &read(opcode));
            assert_eq!((status(&cqe), cqe.byte_len.get()), (Status::Success, 3000));
        }
        assert_eq!(a.bytes(0, 3000), data);
    }
    let ended = cable.complete(&mut a, &read(Opcode::Read));
    assert_eq!(status(&ended), Status::LocProtErr);
}

/// A READ fails if it has another number of sinks than one, or if the key of its sink cannot end.
#[test]
fn reads_invalidate_no_other_keys() {
    for (sinks, failure) in
        [(2, Status::LocQpOpErr), (0, Status::LocQpOpErr), (1, Status::MwBindErr)]
    {
        let cable = Cable::new(10, Faults::default());
        let (mut a, b) = connected(&cable);
        let sinks: Vec<_> = (0..sinks).map(|_| a.sge(0, 8)).collect();
        let read = Wr::new(Opcode::ReadInv, &sinks).to(b.buffer, b.key);
        assert_eq!(status(&cable.complete(&mut a, &read)), failure);
    }
}

#[test]
fn a_key_for_one_message_serves_one_read_whose_answer_is_sent_again() {
    let cable = Cable::new(8, Faults::all(20_000));
    let (mut a, b) = connected(&cable);
    let params = RegMr {
        flags: MrFlags::ONE_TOUCH.bits().into(),
        ..RegMr::new(b.pdn, ALL, b.buffer, 1 << 20, Pages::new(b.buffer, 12, 0))
    };
    let key = b.guest.command::<command::RegMr>(&params).expect("a key").get();
    let data = pattern(300_000, 1);
    b.fill(0, &data);
    let read = Wr::new(Opcode::Read, &[a.sge(0, 300_000)]).to(b.buffer, key);
    assert_eq!(status(&cable.complete(&mut a, &read)), Status::Success);
    assert_eq!(a.bytes(0, 300_000), data);
    assert_eq!(status(&cable.complete(&mut a, &read)), Status::RemAccessErr);
}

/// Commands do not exist in iWARP: no message of it carries one, copied or not.
#[test]
fn a_connection_carries_no_commands() {
    let cable = Cable::new(9, Faults::default());
    let (mut a, b) = connected(&cable);
    b.fill(0, &[7; 64]);
    let command = command(&[a.sge(0, 64)], &[0; 64], 20, 1, CommandFlags::empty());
    assert_eq!(status(&cable.complete(&mut a, &command)), Status::LocQpOpErr);
    assert_eq!((a.state(), b.bytes(0, 64)), (State::Err, vec![7; 64]));
}
