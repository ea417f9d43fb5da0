//! The registers of a range (docs/direct.md).
//!
//! Shows: direct

use proptest::prelude::*;
use vrnic_abi::direct::{MAPPED_LEN_MAX, Place, RANGES};

use super::*;
use crate::domain::Domains;

const MEMORY: GuestAddr = GuestAddr::new(0x7_0000_1080);

fn user(qpn: u32) -> User {
    User { qpn: Qpn::new(qpn), ..User::default() }
}

fn transfer(direction: Direction, notice: Notice, length: u32) -> Transfer {
    Transfer {
        qpn: Qpn::new(7),
        domain: Domain::NONE,
        direction,
        notice,
        memory: Packets::At(MEMORY),
        length,
        deadline: Nanos(1000),
        at_once: false,
    }
}

fn armed(direction: Direction, length: u32) -> Range {
    let mut range = Range::default();
    assert!(range.arm(transfer(direction, Notice::Counted, length), 0));
    range
}

/// Returns the valid bits of PCI and of the adapter.
fn valid(range: &Range) -> (u8, u8) {
    let registers = range.registers();
    (registers.pci_valid, registers.adapter_valid)
}

/// The example of the source, whose window begins at an odd address.
#[test]
fn an_address_is_a_range_and_a_place_in_packet_memory() {
    let offset = 0x1234_7700_u64 - 0x1234_5678;
    assert_eq!(offset, 0x2088);
    let place = Place::at(offset).expect("a place");
    assert_eq!((place.range.get(), place.within), (2, 0x88));
    let mut range = armed(Direction::Write, 4096);
    let at = range.burst(Direction::Write, place.within, 8);
    assert_eq!(at, Burst::At(GuestAddr::new(0x7_0000_1108)));
    let end = u64::from(RANGES * RANGE_LEN);
    assert_eq!(Place::at(end - 1).map(|last| (last.range.get(), last.within)), Some((31, 4095)));
    assert_eq!([end, u64::MAX].map(Place::at), [None, None]);
}
#[test]
fn a_write_is_the_controllers_until_its_bytes_are_there() {
    let mut range = armed(Direction::Write, 100);
    assert_eq!(valid(&range), (1, 0));
    assert!(!range.arm(transfer(Direction::Write, Notice::Counted, 1), 0), "it is in use");
    assert_eq!(range.burst(Direction::Read, 0, 4), Burst::Ignored, "the wrong direction");
    assert!(!range.count(50, 50));
    assert!(!range.count(60, 39), "bytes that were there");
    assert_eq!(range.take(user(7)), Ok(Taken::Later));
    assert!(range.count(0, 50));
    assert_eq!((valid(&range), range.registers().count.get()), ((0, 1), 100));
    assert_eq!(range.burst(Direction::Write, 0, 4), Burst::Ignored, "it is complete");
    assert!(!range.arm(transfer(Direction::Write, Notice::Counted, 1), 0), "it was not taken");
    assert_eq!(range.take(user(8)), Err(Denied::Foreign));
    let domain = Domains::default().next();
    assert_eq!(range.take(User { domain, ..user(7) }), Err(Denied::Foreign));
    assert_eq!(range.take(user(7)), Ok(Taken::Done));
    assert_eq!(valid(&range), (0, 0));
    assert_eq!(range.take(user(7)), Err(Denied::Invalid));
    assert_eq!(range.burst(Direction::Write, 0, 4), Burst::Ignored, "it is idle");
}
#[test]
fn a_read_is_held_off_until_its_data_is_there() {
    let mut range = armed(Direction::Read, 64);
    assert_eq!(valid(&range), (0, 1));
    assert_eq!(range.burst(Direction::Read, 0, 64), Burst::Early);
    assert_eq!(range.take(user(7)), Ok(Taken::Later));
    assert_eq!(valid(&range), (1, 0));
    assert_eq!(range.burst(Direction::Write, 0, 4), Burst::Ignored);
    assert_eq!(range.burst(Direction::Read, 0, 64), Burst::At(MEMORY));
    assert!(range.count(0, 64));
    assert_eq!(range.burst(Direction::Read, 0, 4), Burst::Ignored, "all bytes were read");
    assert_eq!(range.take(user(7)), Ok(Taken::Done));
}

/// Too many bytes, in each direction, also before the data of a READ has come.
#[test]
fn a_burst_beyond_the_length_fails_the_transfer() {
    for direction in [Direction::Read, Direction::Write] {
        for (within, len) in [(96, 8), (100, 1), (4000, 96), (1, u32::MAX)] {
            let mut range = armed(direction, 100);
            assert_eq!(range.burst(direction, within, len), Burst::Ignored);
            assert_eq!(range.registers().failure, Denied::Overrun as u8);
            assert_eq!(range.burst(direction, 0, 4), Burst::Ignored, "it has failed");
            assert_eq!(range.take(user(7)), Err(Denied::Overrun));
            assert!(range.arm(transfer(direction, Notice::Counted, 1), 0));
        }
    }
}

/// Too few bytes, and a transfer that is ended.
#[test]
fn time_and_the_driver_end_a_transfer() {
    let mut range = armed(Direction::Write, 100);
    range.count(0, 99);
    assert_eq!((range.is_late(Nanos(999)), range.is_late(Nanos(1000))), (false, true));
    assert!(range.fail(Denied::Short));
    assert!(!range.is_late(Nanos(2000)) && !range.fail(Denied::Ended), "it has failed once");
    assert_eq!(range.take(user(7)), Err(Denied::Short));
    assert!(!range.end(), "there is none");
    let mut complete = armed(Direction::Write, 1);
    assert!(complete.count(0, 1) && !complete.is_late(Nanos(2000)), "a complete one is not late");
    assert!(complete.end());
    assert_eq!(complete.take(user(7)), Err(Denied::Ended));
}

/// The driver reports the end of mapped transfers; the window is not used.
#[test]
fn the_driver_finishes_a_mapped_transfer() {
    let both = |direction| [1, RANGE_LEN, MAPPED_LEN_MAX].map(|length| (direction, length));
    for (direction, length) in [Direction::Read, Direction::Write].into_iter().flat_map(both) {
        let mut range = Range::default();
        assert!(range.arm(transfer(direction, Notice::Mapped, length), 0));
        assert_eq!(range.burst(direction, 0, 8), Burst::Ignored);
        assert_eq!(range.take(user(7)), Ok(Taken::Later));
        assert_eq!(range.registers().count.get(), 0);
        assert!(range.finish() && !range.finish());
        assert_eq!(range.registers().count.get(), length);
        assert_eq!(range.take(user(7)), Ok(Taken::Done));
    }
    let mut early = Range::default();
    assert!(early.arm(transfer(Direction::Read, Notice::Mapped, 8), 0));
    assert!(early.finish());
    assert_eq!(early.take(user(7)), Err(Denied::Early));
    assert!(!armed(Direction::Write, 8).finish(), "a counted one");
}

proptest! {
    /// Bursts of any length, in any order, some of them twice. A transfer is complete when
    /// each byte has been moved, and not before.
    #[test]
    fn random_bursts_complete_a_transfer_when_each_byte_has_been_moved(
        length in 1u32..=RANGE_LEN,
        bursts in proptest::collection::vec((0u32..RANGE_LEN, 1u32..1500), 0..60),
    ) {
        let mut range = armed(Direction::Write, length);
        let mut model = vec![false; length as usize];
        let mut over = false;
        for (within, len) in bursts {
            let before = (over, model.iter().all(|moved| *moved));
            let at = range.burst(Direction::Write, within, len);
            if before != (false, false) {
                prop_assert_eq!(at, Burst::Ignored);
                continue;
            }
            over = within + len > length;
            if over {
                prop_assert_eq!(at, Burst::Ignored);
                continue;
            }
            prop_assert_eq!(at, Burst::At(MEMORY.wrapping_add(within.into())));
            model[within as usize..][..len as usize].fill(true);
            let complete = range.count(within, len);
            let moved = model.iter().filter(|moved| **moved).count();
            prop_assert_eq!(range.registers().count.get() as usize, moved);
            prop_assert_eq!(complete, moved == length as usize);
        }
        let complete = model.iter().all(|moved| *moved);
        let expected = match (over, complete) {
            (true, _) => Err(Denied::Overrun),
            (false, true) => Ok(Taken::Done),
            (false, false) => Ok(Taken::Later),
        };
        prop_assert_eq!(range.take(user(7)), expected);
    }
}
