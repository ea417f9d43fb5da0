//! Direct transfers that end early: packet memory that is removed, bursts that make a transfer
//! fail, and a range that is armed again while its transfer ends.
//!
//! Shows: direct

use vrnic_abi::admin::{ArmRange, QpFlags, Status as AdminStatus, command};
use vrnic_abi::cq::Status;
use vrnic_abi::direct::{Direction, RANGE_LEN};
use vrnic_abi::qp::{Attr, AttrMask, State};
use vrnic_abi::sq::Opcode;
use vrnic_adapter::memory::tpt::Denied;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::direct::{
    MS, PACKETS, arm, armed, completions, packet, pattern, read, refusal, registers, state, store,
    transfer, until,
};
use crate::host::Bar;
use crate::world::Pair;

/// Posts a READ of `len` bytes into the packet memory of range 0, and a TRANSFER after it.
fn bring(p: &mut Pair, len: u32) {
    armed(&p.a, 0, Direction::Read, len);
    p.a.post_send(&Wr::new(Opcode::Read, &[packet(&p.a, 0, len)]).to(p.b.buffer, p.b.key));
    p.run(&until(0));
    assert_eq!(completions(p), [(1, Status::Success)]);
}

/// The guest removes packet memory, or makes it read-only, while the range is armed.
#[test]
fn packet_memory_that_goes_away_fails_the_transfer() {
    for (direction, how) in [
        (Direction::Write, Bar::Unmapped),
        (Direction::Write, Bar::ReadOnly),
        (Direction::Read, Bar::Unmapped),
    ] {
        let mut p = Pair::new();
        if direction == Direction::Read {
            bring(&mut p, 64);
        } else {
            armed(&p.a, 0, direction, 64);
            p.run(&until(0));
            store(&p.ga, 0, 0, &[1; 32]);
        }
        p.run(&Wr::new(Opcode::Write, &[packet(&p.a, 0, 64)]).to(p.b.buffer, p.b.key));
        assert_eq!((completions(&mut p), state(&p.ga, 0).0), (vec![], 1));
        p.ga.host.restrict(p.a.buffer + PACKETS, 64, how);
        match direction {
            Direction::Write => store(&p.ga, 0, 32, &[1; 32]),
            Direction::Read => assert_eq!(read(&p.ga, 0, 0, 64), Ok(vec![0xff; 64])),
        }
        p.settle();
        p.ga.host.unrestrict();
        assert_eq!(refusal(&mut p), (Status::MwBindErr, Denied::Memory as u32), "{direction:?}");
        assert_eq!(completions(&mut p), [(1, Status::WrFlushErr)]);
        assert_eq!((p.b.bytes(0, 64), state(&p.ga, 0).0), (vec![0; 64], 0));
        store(&p.ga, 0, 0, &[9; 64]);
        assert_ne!(p.a.bytes(PACKETS, 1), [9], "the range has no owner");
        armed(&p.a, 0, direction, 1);
    }
}

/// ARM_RANGE checks the rights of the memory for the direction of the transfer.
#[test]
fn packet_memory_is_checked_when_a_range_is_armed() {
    let p = Pair::new();
    let refused = Err(Refused(AdminStatus::BadAddress, 0));
    p.ga.host.restrict(p.a.buffer + PACKETS, 4096, Bar::ReadOnly);
    assert_eq!(arm(&p.ga, &transfer(&p.a, 0, Direction::Write, 64)), refused);
    assert_eq!(arm(&p.ga, &transfer(&p.a, 0, Direction::Read, 64)), Ok(()));
    p.ga.host.restrict(p.a.buffer + PACKETS, 4096, Bar::Unmapped);
    assert_eq!(arm(&p.ga, &transfer(&p.a, 1, Direction::Read, 64)), Ok(()), "another place");
    let behind = ArmRange { memory: u64::MAX.into(), ..transfer(&p.a, 2, Direction::Read, 64) };
    assert_eq!(arm(&p.ga, &behind), refused);
}

/// A read that makes its transfer fail returns ones, and no bytes of the buffer or of packet
/// memory.
#[test]
fn a_read_beyond_the_length_gets_ones() {
    let mut p = Pair::new();
    p.b.fill(0, &pattern(64, 3));
    bring(&mut p, 64);
    assert_eq!(read(&p.ga, 0, 60, 8), Ok(vec![0xff; 8]));
    p.settle();
    assert_eq!(refusal(&mut p), (Status::MwBindErr, Denied::Overrun as u32));
}

/// A range whose transfer has failed cannot be armed before its TRANSFER has completed. Otherwise
/// the new transfer would be taken for the failed one.
#[test]
fn a_range_is_not_armed_before_its_transfer_is_told_of_a_failure() {
    let mut p = Pair::new();
    armed(&p.a, 0, Direction::Write, 64);
    p.run(&until(0));
    p.world.advance(100 * MS);
    p.ga.adapter.beat();
    assert_eq!(registers(&p.ga, 0).failure, Denied::Short as u8);
    let again = transfer(&p.a, 0, Direction::Write, 64);
    assert_eq!(arm(&p.ga, &again), Err(Refused(AdminStatus::Busy, 0)));
    p.settle();
    assert_eq!(refusal(&mut p), (Status::MwBindErr, Denied::Short as u32));
    assert_eq!(arm(&p.ga, &again), Ok(()));
    // If no TRANSFER waits for the failed transfer, the range can be armed at once.
    p.world.advance(100 * MS);
    p.ga.adapter.beat();
    assert_eq!(registers(&p.ga, 0).failure, Denied::Short as u8);
    assert_eq!(arm(&p.ga, &again), Ok(()));
}

/// The time limit of a read ends at the moment at which its data arrives.
#[test]
fn data_that_comes_in_the_last_moment_is_read() {
    let mut p = Pair::new();
    p.b.fill(0, &pattern(64, 4));
    bring(&mut p, 64);
    p.ga.adapter.fail_early(0.into());
    assert_eq!(read(&p.ga, 0, 0, 64), Ok(pattern(64, 4)));
    p.settle();
    assert_eq!(completions(&mut p), [(100, Status::Success)]);
    // The late end of the time limit does not affect the next transfer of the range.
    armed(&p.a, 0, Direction::Write, RANGE_LEN);
    p.ga.adapter.fail_early(0.into());
    assert_eq!(state(&p.ga, 0), (1, 0, 0));
}

/// With reactive failure only the send queue fails, and it can be used again.
#[test]
fn a_send_queue_goes_on_behind_a_transfer_that_has_failed() {
    let setup = Setup { flags: QpFlags::REACTIVE, kernel: true, ..Setup::default() };
    let mut p = Pair::with(setup, |_| {});
    for range in 0..2 {
        armed(&p.a, range, Direction::Write, 64);
        p.run(&until(range));
    }
    p.ga.command::<command::EndRange>(&0.into()).expect("END_RANGE");
    p.settle();
    assert_eq!(refusal(&mut p), (Status::MwBindErr, Denied::Ended as u32));
    assert_eq!(completions(&mut p), [(101, Status::WrFlushErr)]);
    assert_eq!((p.a.state(), p.b.state()), (State::Sqe, State::Rts));
    let attr = Attr { state: State::Rts as u8, ..Attr::default() };
    p.ga.modify_qp(p.a.qpn, AttrMask::STATE, &attr).expect("MODIFY_QP");
    for range in 0..2 {
        armed(&p.a, range, Direction::Write, 64);
        p.run(&until(range));
        p.run(&Wr::new(Opcode::Write, &[packet(&p.a, range, 64)]).to(p.b.buffer, p.b.key));
        store(&p.ga, range, 0, &[5 + range as u8; 64]);
        p.settle();
        let done = [(100 + u64::from(range), Status::Success), (1, Status::Success)];
        assert_eq!(completions(&mut p), done);
        assert_eq!(p.b.bytes(0, 64), [5 + range as u8; 64]);
    }
}
