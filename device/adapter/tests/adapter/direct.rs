//! Direct transfers: data that a controller stores in the window leaves as a WRITE, and data that a
//! READ brings is read in the window.
//!
//! Shows: direct
//!
//! | module | what it holds |
//! | --- | --- |
//! | `blocks` | direct transfers through blocks of the adapter |
//! | `ends` | direct transfers that end early |
//! | `hosts` | direct transfers for several hosts |
//! | `marks` | direct transfers whose end a controller reports by a mark |
//! | `races` | direct transfers with threads, and with random operations |
//! | `streams` | direct transfers over TCP connections |

pub(crate) mod blocks;
pub(crate) mod ends;
pub(crate) mod hosts;
pub(crate) mod marks;
pub(crate) mod races;
pub(crate) mod streams;

use vrnic_abi::RangeNumber;
use vrnic_abi::admin::{ArmRange, Opcode as Admin, RangeRegisters, Status as AdminStatus, command};
use vrnic_abi::cq::{self, Status};
use vrnic_abi::direct::{Direction, MAPPED_LEN_MAX, Notice, RANGE_LEN, RANGES, WINDOW_LEN};
use vrnic_abi::qp::{State, Type};
use vrnic_abi::regs;
use vrnic_abi::sq::{Opcode, Sge};
use vrnic_adapter::memory::tpt::Denied;
use vrnic_adapter::window::Awaited;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::host::RAM_LEN;
use crate::world::{Pair, World, by_packets};

/// Length of a range in bytes.
pub(crate) const LEN: u64 = RANGE_LEN as u64;
/// Offset in the region of the packet memory of range 0. The packet memory of the other ranges
/// follows.
pub(crate) const PACKETS: u64 = 8192;
pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn pattern(len: u32, seed: u32) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + seed * 101) % 253) as u8).collect()
}

/// Returns the parameters of a transfer out of, or into, the packet memory of a range, with a time
/// limit of 100 ms.
pub(crate) fn transfer(end: &Endpoint, range: u32, direction: Direction, length: u32) -> ArmRange {
    ArmRange {
        memory: (end.buffer + PACKETS + u64::from(range) * LEN).into(),
        range: range.into(),
        qpn: end.qpn.into(),
        length: length.into(),
        time_limit_ms: 100.into(),
        direction: direction as u8,
        ..ArmRange::default()
    }
}

pub(crate) fn arm(guest: &Guest, params: &ArmRange) -> Result<(), Refused> {
    guest.command::<command::ArmRange>(params)
}

pub(crate) fn armed(end: &Endpoint, range: u32, direction: Direction, length: u32) {
    arm(&end.guest, &transfer(end, range, direction, length)).expect("ARM_RANGE");
}

pub(crate) fn registers(guest: &Guest, range: u32) -> RangeRegisters {
    guest.command::<command::QueryRange>(&range.into()).expect("QUERY_RANGE")
}

/// Returns the valid bits and the count of a range.
pub(crate) fn state(guest: &Guest, range: u32) -> (u8, u8, u32) {
    let registers = registers(guest, range);
    (registers.pci_valid, registers.adapter_valid, registers.count.get())
}

/// Returns the work request that completes when the transfer of the range ends.
pub(crate) fn until(range: u32) -> Wr {
    Wr::new(Opcode::Transfer, &[]).to(0, range).id(100 + u64::from(range))
}

pub(crate) fn packet(end: &Endpoint, range: u32, len: u32) -> Sge {
    end.sge(PACKETS + u64::from(range) * LEN, len)
}

pub(crate) fn store(guest: &Guest, range: u32, within: u32, bytes: &[u8]) {
    guest.adapter.store_in_window(u64::from(range * RANGE_LEN + within), bytes);
}

pub(crate) fn read(guest: &Guest, range: u32, within: u32, len: u32) -> Result<Vec<u8>, Awaited> {
    let mut bytes = vec![0; len as usize];
    guest.adapter.read_window(u64::from(range * RANGE_LEN + within), &mut bytes)?;
    Ok(bytes)
}

/// Returns the identifiers and statuses of the completions of A since the last call.
pub(crate) fn completions(p: &mut Pair) -> Vec<(u64, Status)> {
    std::iter::from_fn(|| p.sent()).map(|cqe| (cqe.wr_id.get(), status(&cqe))).collect()
}

/// Returns the cause of a TRANSFER's failure.
pub(crate) fn refusal(p: &mut Pair) -> (Status, u32) {
    let cqe = p.sent().expect("a completion");
    assert_eq!(cqe.opcode, cq::Opcode::Transfer as u8);
    (status(&cqe), cqe.vendor_err.get())
}
#[test]
fn what_is_stored_leaves_when_it_is_complete() {
    let mut p = Pair::new();
    let data = pattern(4000, 1);
    armed(&p.a, 3, Direction::Write, 4000);
    p.a.post_send(&until(3));
    let write = Wr::new(Opcode::Write, &[packet(&p.a, 3, 4000)]).to(p.b.buffer + 100, p.b.key);
    p.run(&write);
    assert_eq!(state(&p.ga, 3), (1, 0, 0));
    // In pieces, the last piece first.
    for (nth, piece) in data.chunks(48).enumerate().rev() {
        assert_eq!(completions(&mut p), []);
        assert_eq!(p.b.bytes(100, 4000), [0; 4000]);
        store(&p.ga, 3, nth as u32 * 48, piece);
        p.settle();
    }
    assert_eq!(completions(&mut p), [(103, Status::Success), (1, Status::Success)]);
    assert!(p.b.bytes(100, 4000) == data);
    assert_eq!(state(&p.ga, 3), (0, 0, 4000));
    // The range has no owner now.
    store(&p.ga, 3, 0, b"late");
    assert!(p.a.bytes(PACKETS + 3 * LEN, 4000) == data);
    assert_eq!(p.ga.stats().transfer_wqes.get(), 1);
}

/// A long transfer uses several ranges, several times. Two controllers store in
/// turns, and bursts cross from one range into the next.
#[test]
fn a_long_transfer_has_several_ranges_and_rounds() {
    let mut p = Pair::new();
    let round = 3 * RANGE_LEN;
    for seed in 0..4 {
        let data = pattern(round, seed);
        let to = p.b.buffer + u64::from(seed * round);
        for range in 0..3 {
            armed(&p.a, range, Direction::Write, RANGE_LEN);
            p.a.post_send(&until(range));
            let sge = packet(&p.a, range, RANGE_LEN);
            let write = Wr::new(Opcode::Write, &[sge]).to(to + u64::from(range) * LEN, p.b.key);
            p.a.post_send(&write);
        }
        let half = data.len() / 2;
        for (one, two) in data[..half].chunks(1000).zip(data[half..].chunks(1000)).enumerate() {
            let at = one as u32 * 1000;
            store(&p.ga, 0, at, two.0);
            store(&p.ga, 0, half as u32 + at, two.1);
            p.settle();
        }
        let done = completions(&mut p);
        assert_eq!(done.len(), 6, "{done:?}");
        assert!(done.iter().all(|(_, status)| *status == Status::Success));
        assert!(p.b.bytes(u64::from(seed * round), data.len()) == data);
    }
}

/// Two hosts with equal remote addresses at the same time. Each transfer has its own range.
///
/// Shows: direct
#[test]
fn equal_remote_addresses_of_two_hosts_have_ranges_of_their_own() {
    let world = World::default();
    let [ga, gb, gc] = [1, 2, 3].map(|number| world.guest(number));
    let mut to_b = Endpoint::new(&ga, Setup::default());
    let mut to_c = to_b.apart(Setup::default());
    let [b, c] = [&gb, &gc].map(|guest| Endpoint::new(guest, Setup::default()));
    Endpoint::connect_pair(&to_b, &b);
    Endpoint::connect_pair(&to_c, &c);
    assert_eq!(b.buffer, c.buffer);
    for (end, range, peer) in [(&mut to_b, 0, &b), (&mut to_c, 31, &c)] {
        let mut params = transfer(end, 0, Direction::Write, 512);
        params.range = range.into();
        arm(&ga, &params).expect("ARM_RANGE");
        end.post_send(&until(range));
        let write = Wr::new(Opcode::Write, &[packet(end, 0, 512)]);
        end.post_send(&write.to(peer.buffer, peer.key));
    }
    for at in [0, 256] {
        store(&ga, 31, at, &[0xcc; 256]);
        store(&ga, 0, at, &[0xbb; 256]);
    }
    world.settle(&[&ga, &gb, &gc]);
    assert_eq!((b.bytes(0, 512), c.bytes(0, 512)), (vec![0xbb; 512], vec![0xcc; 512]));
    for end in [&mut to_b, &mut to_c] {
        end.send_cq.poll_success();
        end.send_cq.poll_success();
    }
}

/// Several READs, one after the other, through one range, whose packet memory is used
/// again.
#[test]
fn what_a_read_brings_is_read_when_it_is_there() {
    let mut p = Pair::new();
    let data = pattern(3 * RANGE_LEN, 5);
    p.b.fill(64, &data);
    for (round, part) in data.chunks(LEN as usize).enumerate() {
        armed(&p.a, 7, Direction::Read, RANGE_LEN);
        assert_eq!(read(&p.ga, 7, 0, 8), Err(Awaited { range: 7.into(), done: 0 }));
        assert_eq!(state(&p.ga, 7), (0, 1, 0));
        let from = p.b.buffer + 64 + round as u64 * LEN;
        let sge = packet(&p.a, 7, RANGE_LEN);
        p.a.post_send(&Wr::new(Opcode::Read, &[sge]).to(from, p.b.key));
        p.run(&until(7));
        assert_eq!(completions(&mut p), [(1, Status::Success)]);
        assert_eq!(state(&p.ga, 7), (1, 0, 0));
        assert_eq!(read(&p.ga, 7, 96, 4000).as_deref(), Ok(&part[96..]));
        // Bytes that were read before count only once.
        assert_eq!(read(&p.ga, 7, 4000, 96).as_deref(), Ok(&part[4000..]));
        p.settle();
        assert_eq!(completions(&mut p), []);
        assert_eq!(read(&p.ga, 7, 0, 96).as_deref(), Ok(&part[..96]));
        p.settle();
        assert_eq!(completions(&mut p), [(107, Status::Success)]);
        assert_eq!(read(&p.ga, 7, 0, 8), Ok(vec![0xff; 8]));
    }
}

/// A burst crosses from a range that has its data into a range that has not. It continues
/// where it stopped.
#[test]
fn a_burst_waits_in_the_middle() {
    let mut p = Pair::new();
    p.b.fill(0, &[1; 2 * RANGE_LEN as usize]);
    for range in 0..2 {
        armed(&p.a, range, Direction::Read, RANGE_LEN);
    }
    let bring = |p: &mut Pair, range| {
        let sge = packet(&p.a, range, RANGE_LEN);
        p.a.post_send(&Wr::new(Opcode::Read, &[sge]).to(p.b.buffer, p.b.key));
        p.run(&until(range));
    };
    bring(&mut p, 0);
    let mut bytes = vec![0; 2 * RANGE_LEN as usize];
    let awaited = Awaited { range: 1.into(), done: RANGE_LEN as usize };
    assert_eq!(p.ga.adapter.read_window(0, &mut bytes), Err(awaited));
    bring(&mut p, 1);
    assert_eq!(p.ga.adapter.read_window(LEN, &mut bytes[RANGE_LEN as usize..]), Ok(()));
    assert!(bytes.iter().all(|byte| *byte == 1));
    p.settle();
    assert_eq!(completions(&mut p).len(), 4);
}

/// The controller knows the address of packet memory, and the driver reports the end of the
/// transfer.
#[test]
fn a_mapped_transfer_ends_when_the_driver_says_so() {
    let mut p = Pair::new();
    // Such a transfer may be longer than a range of the window.
    let len = 3 * RANGE_LEN;
    let params =
        ArmRange { notice: Notice::Mapped as u8, ..transfer(&p.a, 0, Direction::Write, len) };
    arm(&p.ga, &params).expect("ARM_RANGE");
    p.a.post_send(&until(0));
    let sge = packet(&p.a, 0, len);
    p.run(&Wr::new(Opcode::Write, &[sge]).to(p.b.buffer, p.b.key));
    store(&p.ga, 0, 0, b"not by the window");
    p.a.fill(PACKETS, &vec![7; len as usize]);
    for other in [1, RANGES, u32::MAX] {
        p.ga.set_register(regs::RANGE_DONE, other);
    }
    p.settle();
    assert_eq!(completions(&mut p), []);
    p.ga.set_register(regs::RANGE_DONE, 0);
    p.settle();
    assert_eq!(completions(&mut p), [(100, Status::Success), (1, Status::Success)]);
    assert_eq!(p.b.bytes(0, len as usize), vec![7; len as usize]);
}

/// Too many bytes; too few; none; the driver ends the range while TRANSFER waits; the driver
/// ends it before TRANSFER is posted, when all bytes have arrived. The WRITE after TRANSFER is
/// flushed, so no data reaches the peer. Packet memory that is removed is in `ends`.
///
/// Shows: direct: too many bytes, too few, none, and the end by the driver
#[test]
fn a_transfer_that_fails_ends_with_its_cause() {
    type Cause = (fn(&Pair), Denied);
    let causes: [Cause; 5] = [
        (|p| store(&p.ga, 0, 60, b"too far"), Denied::Overrun),
        (
            |p| {
                store(&p.ga, 0, 0, &[1; 63]);
                p.world.advance(100 * MS);
                p.ga.adapter.beat();
            },
            Denied::Short,
        ),
        (
            |p| {
                p.world.advance(100 * MS);
                p.ga.adapter.beat();
            },
            Denied::Short,
        ),
        (|p| p.ga.command::<command::EndRange>(&0.into()).expect("END_RANGE"), Denied::Ended),
        (
            |p| {
                store(&p.ga, 0, 0, &[1; 64]);
                p.ga.command::<command::EndRange>(&0.into()).expect("END_RANGE");
            },
            Denied::Ended,
        ),
    ];
    for (nth, (cause, why)) in causes.into_iter().enumerate() {
        let mut p = Pair::new();
        armed(&p.a, 0, Direction::Write, 64);
        if nth < 4 {
            p.a.post_send(&until(0));
        }
        p.settle();
        cause(&p);
        if nth == 4 {
            p.a.post_send(&until(0));
        }
        p.run(&Wr::new(Opcode::Write, &[packet(&p.a, 0, 64)]).to(p.b.buffer, p.b.key));
        assert_eq!(refusal(&mut p), (Status::MwBindErr, why as u32), "{why:?}");
        assert_eq!(completions(&mut p), [(1, Status::WrFlushErr)]);
        assert_eq!((p.b.bytes(0, 64), p.a.state()), (vec![0; 64], State::Err));
        assert_eq!(state(&p.ga, 0).0, 0);
        armed(&p.a, 0, Direction::Write, 1);
    }
}

/// Data that no READ brings, or that is read too early.
#[test]
fn a_read_that_comes_too_early_for_its_data_fails() {
    let mut p = Pair::new();
    armed(&p.a, 0, Direction::Read, 64);
    assert!(read(&p.ga, 0, 0, 8).is_err());
    p.ga.adapter.fail_early(0.into());
    assert_eq!(read(&p.ga, 0, 0, 8), Ok(vec![0xff; 8]));
    p.run(&until(0));
    assert_eq!(refusal(&mut p), (Status::MwBindErr, Denied::Early as u32));
}

/// A NAK, a region that is removed while its range is armed, a lost connection, and the error
/// state, with data in the window.
#[test]
fn nothing_is_left_of_the_transfers_of_a_qp_that_fails() {
    type Failure = (fn(&mut Pair), Status);
    let failures: [Failure; 4] = [
        (|p| assert_eq!(p.gb.on_object(Admin::DeregMr, p.b.key), Ok(0)), Status::RemAccessErr),
        (|p| assert_eq!(p.ga.on_object(Admin::DeregMr, p.a.key), Ok(0)), Status::LocProtErr),
        (|p| assert_eq!(p.gb.on_object(Admin::DestroyQp, p.b.qpn), Ok(0)), Status::RetryExcErr),
        (|p| p.a.set_state(State::Err), Status::WrFlushErr),
    ];
    for (failure, expected) in failures {
        let mut p = Pair::new();
        for range in 0..2 {
            armed(&p.a, range, Direction::Write, 64);
            p.a.post_send(&until(range));
            let write = Wr::new(Opcode::Write, &[packet(&p.a, range, 64)]);
            p.a.post_send(&write.to(p.b.buffer, p.b.key));
        }
        p.settle();
        store(&p.ga, 1, 0, b"a part");
        failure(&mut p);
        store(&p.ga, 0, 0, &[1; 64]);
        p.settle();
        for _ in 0..20 {
            p.world.advance(10_000 * MS);
            p.settle();
        }
        let done = completions(&mut p);
        let transferred = if expected == Status::WrFlushErr { expected } else { Status::Success };
        let flushed = Status::WrFlushErr;
        assert_eq!(done, [(100, transferred), (1, expected), (101, flushed), (1, flushed)]);
        assert_eq!((state(&p.ga, 1).0, state(&p.ga, 1).1), (0, 0));
        store(&p.ga, 1, 0, &[9; 64]);
        assert_ne!(p.a.bytes(PACKETS + LEN, 1), [9], "the range has no owner");
    }
}

#[test]
fn the_end_of_a_qp_and_a_reset_free_the_ranges() {
    let ends: [fn(&mut Pair); 3] = [
        |p| p.a.set_state(State::Reset),
        |p| assert_eq!(p.ga.on_object(Admin::DestroyQp, p.a.qpn), Ok(0)),
        |p| {
            p.ga.reset();
            p.ga.bring_up();
        },
    ];
    for end in ends {
        let mut p = Pair::new();
        armed(&p.a, 9, Direction::Write, 64);
        p.a.post_send(&until(9));
        p.settle();
        end(&mut p);
        p.settle();
        store(&p.ga, 9, 0, &[9; 64]);
        assert_ne!(p.a.bytes(PACKETS + 9 * LEN, 1), [9]);
        assert_eq!(state(&p.ga, 9), (0, 0, 0));
        assert_eq!(completions(&mut p), []);
    }
}

#[test]
fn ranges_belong_to_one_qp_and_to_one_transfer() {
    let mut p = Pair::new();
    let good = transfer(&p.a, 0, Direction::Write, 64);
    let refused = |change: fn(&mut ArmRange)| {
        let mut params = good;
        change(&mut params);
        arm(&p.ga, &params).expect_err("a refusal").0
    };
    assert_eq!(refused(|params| params.length = 0.into()), AdminStatus::BadParam);
    assert_eq!(refused(|params| params.length = (RANGE_LEN + 1).into()), AdminStatus::BadParam);
    let too_long = |params: &mut ArmRange| {
        params.notice = Notice::Mapped as u8;
        params.length = (MAPPED_LEN_MAX + 1).into();
    };
    assert_eq!(refused(too_long), AdminStatus::BadParam);
    assert_eq!(refused(|params| params.time_limit_ms = 0.into()), AdminStatus::BadParam);
    assert_eq!(refused(|params| params.time_limit_ms = 60_001.into()), AdminStatus::BadParam);
    assert_eq!(refused(|params| params.direction = 2), AdminStatus::BadParam);
    assert_eq!(refused(|params| params.notice = 2), AdminStatus::BadParam);
    assert_eq!(refused(|params| params.range = RANGES.into()), AdminStatus::BadParam);
    assert_eq!(refused(|params| params.at_once = 2), AdminStatus::BadParam);
    assert_eq!(refused(|params| params.reserved[3] = 1), AdminStatus::BadParam);
    assert_eq!(refused(|params| params.qpn = 9999.into()), AdminStatus::NotFound);
    let behind = |params: &mut ArmRange| params.memory = (BASE + RAM_LEN - 63).into();
    assert_eq!(refused(behind), AdminStatus::BadAddress);
    let datagrams = p.a.apart(Setup { kind: Type::Ud, ..Setup::default() });
    let params = ArmRange { qpn: datagrams.qpn.into(), ..good };
    assert_eq!(arm(&p.ga, &params), Err(Refused(AdminStatus::Unsupported, 0)));
    for range in [RANGES, u32::MAX].map(RangeNumber::new) {
        let missing = Refused(AdminStatus::NotFound, 0);
        assert_eq!(p.ga.command::<command::EndRange>(&range), Err(missing));
        assert_eq!(p.ga.command::<command::QueryRange>(&range), Err(missing));
    }
    arm(&p.ga, &good).expect("ARM_RANGE");
    assert_eq!(arm(&p.ga, &good), Err(Refused(AdminStatus::Busy, 0)));
    // Accesses at and after the end of the window.
    p.ga.adapter.store_in_window(u64::from(WINDOW_LEN) - 1, &[1; 9]);
    p.ga.adapter.store_in_window(u64::MAX, &[1; 9]);
    let mut bytes = [0; 4];
    assert_eq!(p.ga.adapter.read_window(u64::from(WINDOW_LEN) - 2, &mut bytes), Ok(()));
    assert_eq!(bytes, [0xff; 4]);
    // A range that is not armed, a range that does not exist, and a range of another QP.
    for (range, why) in [(1, Denied::Invalid), (RANGES, Denied::Invalid), (0, Denied::Foreign)] {
        let mut other = p.a.apart(Setup::default());
        let peer = p.b.apart(Setup::default());
        Endpoint::connect_pair(&other, &peer);
        other.post_send(&until(range));
        p.settle();
        let cqe = other.send_cq.poll().expect("a completion");
        assert_eq!((status(&cqe), cqe.vendor_err.get()), (Status::MwBindErr, why as u32));
        assert_eq!(peer.state() == State::Err, !by_packets());
    }
    assert_eq!(state(&p.ga, 0), (1, 0, 0));
    assert_eq!(completions(&mut p), []);
}
