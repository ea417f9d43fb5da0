//! Direct transfers through the trapped window, BAR4, as another PCI device of the guest uses it,
//! with device memory as packet memory.
//!
//! Shows: direct

use std::time::{Duration, Instant};

use rustix::process::Signal;
use vrnic_abi::admin::{ArmRange, command};
use vrnic_abi::cq::{Cqe, Status};
use vrnic_abi::direct::{Await, Direction, Notice, RANGE_LEN};
use vrnic_abi::pci::{BAR_UAR, BAR_WINDOW};
use vrnic_abi::regs;
use vrnic_abi::sq::{Opcode, Sge};
use vrnic_abi::uar::DEVICE_MEMORY_OFFSET;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wr::{Wr, sge};

use crate::common;
use crate::common::{pair, pattern, start, still_works};

/// A bus address of BAR2, and the bus address of device memory then.
const BAR: u64 = 1 << 40;
const MEMORY: u64 = BAR + DEVICE_MEMORY_OFFSET;
/// The offset of BAR2 in configuration space.
const BAR_OFFSET: u64 = 0x10 + 4 * BAR_UAR as u64;
const LEN: usize = RANGE_LEN as usize;
/// `vendor_err` if data did not arrive in time for its reader.
const EARLY: u32 = 14;

/// Returns a connected pair. The first end has a key of its device memory.
fn ends(guests: &[Guest; 2]) -> ([Endpoint; 2], u32) {
    guests[0].write_config(BAR_OFFSET, &BAR.to_le_bytes());
    let ends = common::connected(guests, Setup::default());
    let key = guests[0].reg_flat(ends[0].pdn, ALL, MEMORY, 1 << 20).expect("a region");
    (ends, key)
}

/// Returns the packet memory of a range.
fn packet(range: u32, key: u32) -> Sge {
    sge(MEMORY + u64::from(range * RANGE_LEN), RANGE_LEN, key)
}

fn params(end: &Endpoint, range: u32, direction: Direction, notice: Notice) -> ArmRange {
    ArmRange {
        memory: (MEMORY + u64::from(range * RANGE_LEN)).into(),
        range: range.into(),
        qpn: end.qpn.into(),
        length: RANGE_LEN.into(),
        time_limit_ms: 30_000.into(),
        direction: direction as u8,
        notice: notice as u8,
        ..ArmRange::default()
    }
}

fn arm(end: &Endpoint, range: u32, direction: Direction, notice: Notice) {
    let params = params(end, range, direction, notice);
    end.guest.command::<command::ArmRange>(&params).expect("ARM_RANGE");
}

fn until(range: u32) -> Wr {
    Wr::new(Opcode::Transfer, &[]).to(0, range).id(100 + u64::from(range))
}

fn store(guest: &Guest, at: u32, bytes: &[u8]) {
    let offset = u64::from(at);
    guest.with_client(|client| client.region_write(BAR_WINDOW, offset, bytes)).expect("a store");
}

fn read(guest: &Guest, at: u32, len: usize) -> Vec<u8> {
    let (offset, mut bytes) = (u64::from(at), vec![0; len]);
    guest.with_client(|client| client.region_read(BAR_WINDOW, offset, &mut bytes)).expect("a read");
    bytes
}

fn succeed(end: &mut Endpoint, ids: [u64; 2]) {
    for id in ids {
        end.send_cq.expect(id, Status::Success);
    }
}

#[test]
fn stores_of_a_controller_leave_as_a_write() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let ([mut a, b], key) = ends(&guests);
    // Stores pieces as processors and QEMU's devices do, and whole blocks.
    for (range, piece) in [(0, 8), (31, 64), (5, 1000), (6, LEN)] {
        let data = pattern(LEN, piece);
        arm(&a, range, Direction::Write, Notice::Counted);
        a.post_send(&until(range));
        a.post_send(&Wr::new(Opcode::Write, &[packet(range, key)]).to(b.buffer, b.key));
        let (before, last) = data.split_at(LEN - 1);
        for (nth, part) in before.chunks(piece).enumerate() {
            store(&guests[0], range * RANGE_LEN + (nth * piece) as u32, part);
        }
        assert!(!a.send_cq.ready());
        store(&guests[0], range * RANGE_LEN + RANGE_LEN - 1, last);
        succeed(&mut a, [100 + u64::from(range), 1]);
        assert!(b.bytes(0, LEN) == data, "pieces of {piece} bytes");
    }
    daemon.check();
}

#[test]
fn reads_of_a_controller_are_held_until_the_data_is_there() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let ([mut a, b], key) = ends(&guests);
    for range in [1, 2] {
        let data = pattern(LEN, range as usize);
        b.fill(0, &data);
        arm(&a, range, Direction::Read, Notice::Counted);
        let bytes = std::thread::scope(|scope| {
            let reader = scope.spawn(|| read(&guests[0], range * RANGE_LEN, LEN));
            // Usually the read waits by now, but both orders are right.
            std::thread::sleep(Duration::from_millis(10));
            a.store_send(&Wr::new(Opcode::Read, &[packet(range, key)]).to(b.buffer, b.key));
            a.post_send(&until(range));
            reader.join().expect("a reader")
        });
        assert!(bytes == data);
        succeed(&mut a, [1, 100 + u64::from(range)]);
    }
    daemon.check();
}

#[test]
fn a_read_whose_data_does_not_come_gets_ones_and_fails_the_transfer() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let ([mut a, _b], _) = ends(&guests);
    arm(&a, 0, Direction::Read, Notice::Counted);
    let begun = Instant::now();
    assert_eq!(read(&guests[0], 8, 64), [0xff; 64]);
    assert!(begun.elapsed().as_millis() >= 250);
    let cqe: Cqe = a.run_expecting(&until(0), Status::MwBindErr);
    assert_eq!(cqe.vendor_err.get(), EARLY);
    daemon.check();
}

/// A read by a program must not wait for its data. It is answered at once, and makes the transfer
/// fail. After QUERY_RANGE has reported the failure, the same read returns the data.
#[test]
fn a_read_that_must_not_wait_gets_ones_at_once() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let ([mut a, b], key) = ends(&guests);
    let arm = |end: &Endpoint| {
        let params = ArmRange { at_once: 1, ..params(end, 0, Direction::Read, Notice::Counted) };
        end.guest.command::<command::ArmRange>(&params).expect("ARM_RANGE");
    };
    // Takes the fastest of several reads, as other threads may delay a read.
    let mut fastest = Duration::MAX;
    for _ in 0..8 {
        arm(&a);
        let begun = Instant::now();
        assert_eq!(read(&guests[0], 8, 64), [0xff; 64]);
        fastest = fastest.min(begun.elapsed());
        let state = guests[0].command::<command::QueryRange>(&0.into()).expect("QUERY_RANGE");
        assert_eq!(u32::from(state.failure), EARLY);
        guests[0].command::<command::EndRange>(&0.into()).expect("END_RANGE");
    }
    assert!(fastest < Duration::from_millis(50), "the read took {fastest:?}");
    let data = pattern(LEN, 1);
    b.fill(0, &data);
    arm(&a);
    a.store_send(&Wr::new(Opcode::Read, &[packet(0, key)]).to(b.buffer, b.key));
    a.post_send(&until(0));
    a.send_cq.expect(1, Status::Success);
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let state = guests[0].command::<command::QueryRange>(&0.into()).expect("QUERY_RANGE");
        if state.pci_valid == 1 {
            break;
        }
        assert!(Instant::now() < end, "the data cannot be read: {state:?}");
    }
    assert!(read(&guests[0], 0, LEN) == data);
    a.send_cq.expect(100, Status::Success);
    daemon.check();
}

/// While the thread of a function waits with a read, other functions work, and so do QPs whose
/// memory is in the function's guest.
///
/// Shows: direct
#[test]
fn a_read_that_is_held_holds_nobody_else() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let ([a, mut b], _) = ends(&guests);
    let mut done = 0;
    for _ in 0..10 {
        arm(&a, 0, Direction::Read, Notice::Counted);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| read(&guests[0], 0, 8));
            while !reader.is_finished() {
                still_works(&mut b, &a);
                guests[1].command::<command::QueryRange>(&0.into()).expect("QUERY_RANGE");
                done += u32::from(!reader.is_finished());
            }
            assert_eq!(reader.join().expect("a reader"), [0xff; 8]);
        });
        if done > 0 {
            break;
        }
    }
    assert!(done > 0, "nothing was done while a read was held");
    daemon.check();
}

#[test]
fn the_daemon_ends_while_a_read_is_held() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let ([a, _b], _) = ends(&guests);
    arm(&a, 0, Direction::Read, Notice::Counted);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (offset, mut bytes) = (0, [0; 8]);
            // The read is answered, or the connection ends.
            guests[0]
                .with_client(|client| client.region_read(BAR_WINDOW, offset, &mut bytes))
                .is_ok()
        });
        std::thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        assert!(daemon.stop(Signal::TERM).success());
        assert!(begun.elapsed() < Duration::from_secs(10), "the end took {:?}", begun.elapsed());
        let _answered = reader.join().expect("a reader");
    });
}

#[test]
fn a_controller_that_has_device_memory_mapped_needs_no_window() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let ([mut a, b], key) = ends(&guests);
    let data = pattern(LEN, 3);
    arm(&a, 4, Direction::Write, Notice::Mapped);
    a.post_send(&until(4));
    a.post_send(&Wr::new(Opcode::Write, &[packet(4, key)]).to(b.buffer, b.key));
    let at = DEVICE_MEMORY_OFFSET + 4 * u64::from(RANGE_LEN);
    guests[0].bar().write(at, &data).expect("device memory");
    assert!(!a.send_cq.ready());
    guests[0].set_register(regs::RANGE_DONE, 4);
    succeed(&mut a, [104, 1]);
    assert!(b.bytes(0, LEN) == data);
    daemon.check();
}

/// The controller ends a transfer with one store, with or without a doorbell after it, whether the
/// worker is awake or asleep.
#[test]
fn a_controller_that_stores_a_mark_needs_no_range() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let ([mut a, b], key) = ends(&guests);
    for mark in 1..10 {
        let data = pattern(LEN, mark as usize);
        let (limit, value) = Await { word: 2, mark, time_limit_ms: 30_000 }.fields();
        a.store_send(&Wr::new(Opcode::Await, &[]).to(limit, value).id(102));
        a.post_send(&Wr::new(Opcode::Write, &[packet(4, key)]).to(b.buffer, b.key));
        if mark % 3 == 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
        let at = DEVICE_MEMORY_OFFSET + 4 * u64::from(RANGE_LEN);
        guests[0].bar().write(at, &data).expect("device memory");
        assert!(!a.send_cq.ready());
        a.mark(2, mark);
        if mark % 2 == 0 {
            a.ring();
        }
        succeed(&mut a, [102, 1]);
        assert!(b.bytes(0, LEN) == data);
    }
    let (limit, value) = Await { word: 2, mark: 77, time_limit_ms: 50 }.fields();
    a.post_send(&Wr::new(Opcode::Await, &[]).to(limit, value).id(102));
    assert_eq!(a.send_cq.expect(102, Status::MwBindErr).vendor_err.get(), 13);
    daemon.check();
}

/// The housekeeping thread ends transfers that no controller completes.
#[test]
fn the_time_limit_ends_a_transfer_in_a_running_daemon() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let ([mut a, b], key) = ends(&guests);
    let params = ArmRange {
        memory: MEMORY.into(),
        range: 0.into(),
        qpn: a.qpn.into(),
        length: RANGE_LEN.into(),
        time_limit_ms: 50.into(),
        direction: Direction::Write as u8,
        ..ArmRange::default()
    };
    guests[0].command::<command::ArmRange>(&params).expect("ARM_RANGE");
    store(&guests[0], 0, &[1; 100]);
    a.post_send(&until(0));
    a.post_send(&Wr::new(Opcode::Write, &[packet(0, key)]).to(b.buffer, b.key));
    assert_eq!(a.send_cq.expect(100, Status::MwBindErr).vendor_err.get(), 13);
    a.send_cq.expect(1, Status::WrFlushErr);
    assert_eq!(b.bytes(0, 100), [0; 100]);
    daemon.check();
}
