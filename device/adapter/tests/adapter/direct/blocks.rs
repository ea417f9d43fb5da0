//! Direct transfers through blocks of the adapter: work requests name the ranges.
//!
//! Shows: direct

use vrnic_abi::Key;
use vrnic_abi::admin::{ArmRange, SetWindow, Status as AdminStatus, WindowRegisters, command};
use vrnic_abi::cq::Status;
use vrnic_abi::direct::{
    Direction, MAPPED_LEN_MAX, Notice, PacketMemory, RANGE_LEN, RANGES, WINDOW_LEN,
};
use vrnic_abi::pci::BAR_WINDOW_LEN;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::{Opcode, Sge};
use vrnic_adapter::memory::tpt::Denied;
use vrnic_adapter::window::Awaited;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::{Wr, sge};

use crate::bus::{Endpoint, Guest};
use crate::direct::{
    LEN, MS, PACKETS, arm, completions, pattern, read, registers, state, store, transfer, until,
};
use crate::host::RAM_LEN;
use crate::world::Pair;

/// Returns the parameters of a window at the start of BAR4, with blocks in the region of A.
pub(crate) fn window(end: &Endpoint, blocks: u32) -> SetWindow {
    SetWindow {
        memory: (end.buffer + PACKETS).into(),
        base: 0.into(),
        length: WINDOW_LEN.into(),
        blocks: blocks.into(),
        ..SetWindow::default()
    }
}

fn set(guest: &Guest, window: &SetWindow) -> Result<(), Refused> {
    guest.command::<command::SetWindow>(window)
}

fn query(guest: &Guest) -> WindowRegisters {
    guest.command::<command::QueryWindow>(&()).expect("QUERY_WINDOW")
}

/// Returns the numbers of blocks, of those in use, of waiting ranges, and of shortages.
fn blocks(guest: &Guest) -> [u32; 4] {
    let WindowRegisters { blocks, allocated, waiting, short, .. } = query(guest);
    [blocks, allocated, waiting, short].map(u32::from)
}

pub(crate) fn by_block(end: &Endpoint, range: u32, direction: Direction, length: u32) -> ArmRange {
    let packet_memory = PacketMemory::Block as u8;
    ArmRange { memory: 0.into(), packet_memory, ..transfer(end, range, direction, length) }
}

fn armed(end: &Endpoint, range: u32, direction: Direction, length: u32) {
    arm(&end.guest, &by_block(end, range, direction, length)).expect("ARM_RANGE");
}

/// Returns a segment of ranges.
pub(crate) fn window_sge(range: u32, within: u32, len: u32) -> Sge {
    sge(u64::from(range * RANGE_LEN + within), len, Key::WINDOW.get())
}

/// Returns a pair whose first adapter has so many blocks.
fn with_blocks(count: u32) -> Pair {
    let p = Pair::new();
    set(&p.ga, &window(&p.a, count)).expect("SET_WINDOW");
    p
}

/// Lets the adapters work for some time.
fn pass(p: &Pair) {
    for _ in 0..50 {
        p.settle();
        p.world.advance(MS / 10);
    }
    p.settle();
}

fn write(p: &Pair, sges: &[Sge]) -> Wr {
    Wr::new(Opcode::Write, sges).to(p.b.buffer, p.b.key).id(1)
}

fn bring(p: &Pair, sges: &[Sge]) -> Wr {
    Wr::new(Opcode::Read, sges).to(p.b.buffer, p.b.key).id(2)
}

/// The first bytes leave while the controller stores the others. The block is
/// given back by TRANSFER. Several ranges by one segment.
#[test]
fn packets_leave_as_their_bytes_are_stored() {
    let mut p = with_blocks(8);
    let data = pattern(3 * RANGE_LEN, 9);
    for range in 4..7 {
        armed(&p.a, range, Direction::Write, RANGE_LEN);
    }
    assert_eq!(blocks(&p.ga), [8, 3, 0, 0]);
    p.run(&write(&p, &[window_sge(4, 0, 3 * RANGE_LEN)]));
    for range in 4..7 {
        p.run(&until(range));
    }
    let mut stored = 0;
    for (range, part) in (4..7).zip(data.chunks(LEN as usize)) {
        // Bursts in any order.
        for (nth, piece) in part.chunks(512).enumerate().rev() {
            assert_eq!(completions(&mut p), []);
            store(&p.ga, range, nth as u32 * 512, piece);
            pass(&p);
        }
        stored += part.len();
        assert!(p.b.bytes(0, stored) == data[..stored], "what is there has left");
        assert!(p.b.bytes(stored as u64, 512) == [0; 512], "nothing else has");
    }
    let all = [1, 104, 105, 106].map(|id| (id, Status::Success));
    assert_eq!(completions(&mut p), all);
    assert_eq!(blocks(&p.ga), [8, 0, 0, 0]);
    assert_eq!(state(&p.ga, 5), (0, 0, RANGE_LEN));
}

/// While bytes of a WRITE are missing, the adapter executes the work requests of another queue
/// pair, and the peer's work requests for the same connection.
///
/// Shows: direct: other queue pairs go on while a transfer waits for its data
#[test]
fn others_go_on_while_a_write_waits() {
    let mut p = with_blocks(1);
    let (mut near, far) = (p.a.apart(Setup::default()), p.b.apart(Setup::default()));
    Endpoint::connect_pair(&near, &far);
    armed(&p.a, 0, Direction::Write, RANGE_LEN);
    p.run(&write(&p, &[window_sge(0, 0, RANGE_LEN)]));
    p.run(&until(0));
    store(&p.ga, 0, 0, &pattern(100, 1));
    near.fill(0, b"another queue pair");
    let beside = Wr::new(Opcode::Write, &[near.sge(0, 18)]).to(far.buffer + 100, far.key);
    near.post_send(&beside.id(5));
    p.b.fill(8192, b"the peer's");
    for opcode in [Opcode::Write, Opcode::Read] {
        let own = p.b.sge(8192, 10);
        p.b.post_send(&Wr::new(opcode, &[own]).to(p.a.buffer + 8192, p.a.key).id(6));
    }
    pass(&p);
    assert_eq!(completions(&mut p), []);
    let done = near.send_cq.poll().map(|cqe| (cqe.wr_id.get(), status(&cqe)));
    assert_eq!(done, Some((5, Status::Success)));
    assert_eq!(far.bytes(100, 18), b"another queue pair");
    for _ in 0..2 {
        let done = p.b.send_cq.poll().map(|cqe| (cqe.wr_id.get(), status(&cqe)));
        assert_eq!(done, Some((6, Status::Success)));
    }
    assert_eq!(p.a.bytes(8192, 10), b"the peer's");
    store(&p.ga, 0, 100, &pattern(RANGE_LEN, 1)[100..]);
    pass(&p);
    assert_eq!(completions(&mut p), [1, 100].map(|id| (id, Status::Success)));
}

/// Pieces of a READ through one range, each when the controller has read the one
/// before. Their length is the path MTU.
#[test]
fn each_response_is_handed_over_as_it_comes() {
    let mut p = Pair::with(Setup::default(), |attr| attr.path_mtu = 3);
    set(&p.ga, &window(&p.a, 1)).expect("SET_WINDOW");
    let data = pattern(4 * 1024, 3);
    p.b.fill(0, &data);
    armed(&p.a, 2, Direction::Read, 4 * 1024);
    assert_eq!(state(&p.ga, 2), (0, 1, 0));
    let again = window_sge(2, 0, 1024);
    p.run(&bring(&p, &[again; 4]));
    p.run(&until(2));
    for (nth, part) in data.chunks(1024).enumerate() {
        pass(&p);
        assert_eq!(registers(&p.ga, 2).response_length.get(), 1024);
        assert_eq!(state(&p.ga, 2), (1, 0, nth as u32 * 1024));
        assert_eq!(read(&p.ga, 2, 0, 1000).as_deref(), Ok(&part[..1000]));
        // A byte that was read is not there any more.
        let early = Err(Awaited { range: 2.into(), done: 0 });
        assert_eq!(read(&p.ga, 2, 999, 2), early);
        pass(&p);
        let ids: Vec<u64> = completions(&mut p).into_iter().map(|(id, _)| id).collect();
        assert_eq!(
            ids,
            if nth == 3 { vec![2] } else { vec![] },
            "the READ ends with its last bytes"
        );
        assert_eq!(read(&p.ga, 2, 1000, 24).as_deref(), Ok(&part[1000..]));
    }
    pass(&p);
    let done = completions(&mut p);
    assert_eq!(done.last(), Some(&(102, Status::Success)));
    assert_eq!(blocks(&p.ga), [1, 0, 0, 0]);
}

/// A READ whose ranges have room is complete before the controller has read anything, and its
/// TRANSFERs end with the controller's reads.
#[test]
fn a_read_into_several_ranges_waits_for_nothing() {
    let mut p = with_blocks(2);
    let data = pattern(2 * RANGE_LEN, 4);
    p.b.fill(0, &data);
    for range in 0..2 {
        armed(&p.a, range, Direction::Read, RANGE_LEN);
    }
    p.a.post_send(&bring(&p, &[window_sge(0, 0, 2 * RANGE_LEN)]));
    p.a.post_send(&until(0));
    p.run(&until(1));
    assert_eq!(completions(&mut p), [(2, Status::Success)]);
    for (range, part) in (0..2).zip(data.chunks(LEN as usize)) {
        assert!(read(&p.ga, range, 0, RANGE_LEN).as_deref() == Ok(part));
    }
    p.settle();
    assert_eq!(completions(&mut p), [100, 101].map(|id| (id, Status::Success)));
}

/// Shortage. Ranges get blocks in the order in which they were armed, or ARM_RANGE fails.
#[test]
fn ranges_wait_for_blocks_in_order() {
    let mut p = with_blocks(1);
    for range in [3, 1, 2] {
        armed(&p.a, range, Direction::Write, 64);
        p.a.post_send(&write(&p, &[window_sge(range, 0, 64)]).id(range.into()));
        p.a.post_send(&until(range));
    }
    let at_once = ArmRange {
        packet_memory: PacketMemory::FreeBlock as u8,
        ..by_block(&p.a, 4, Direction::Write, 64)
    };
    assert_eq!(arm(&p.ga, &at_once), Err(Refused(AdminStatus::NoResource, 0)));
    assert_eq!(blocks(&p.ga), [1, 1, 2, 3]);
    p.settle();
    for range in [3, 1, 2u32] {
        assert_eq!(state(&p.ga, range), (1, 0, 0), "range {range} has the block");
        store(&p.ga, range, 0, &pattern(64, range));
        pass(&p);
        let done = [u64::from(range), 100 + u64::from(range)];
        assert_eq!(completions(&mut p), done.map(|id| (id, Status::Success)));
        assert!(p.b.bytes(0, 64) == pattern(64, range));
    }
    assert_eq!(blocks(&p.ga), [1, 0, 0, 3]);
    arm(&p.ga, &at_once).expect("a block");
    // Without any block, nothing is waited for.
    let p = Pair::new();
    let refused = arm(&p.ga, &by_block(&p.a, 0, Direction::Read, 8));
    assert_eq!(refused, Err(Refused(AdminStatus::NoResource, 0)));
}

/// A store into a range without a block is lost, so the transfer fails.
#[test]
fn a_store_before_there_is_a_block_fails_the_transfer() {
    let mut p = with_blocks(1);
    armed(&p.a, 0, Direction::Write, 64);
    armed(&p.a, 1, Direction::Write, 64);
    store(&p.ga, 1, 0, &[1; 8]);
    assert_eq!(registers(&p.ga, 1).failure, Denied::Early as u8);
    p.run(&write(&p, &[window_sge(1, 0, 64)]));
    let cqe = p.sent().expect("a completion");
    assert_eq!((status(&cqe), cqe.vendor_err.get()), (Status::LocProtErr, Denied::Early as u32));
    assert_eq!(p.b.bytes(0, 64), [0; 64]);
}

/// The controller stores too few bytes or too many, the driver ends the transfer, in the
/// middle of a message: the rest is not sent, and the next message of another QP is as ever.
#[test]
fn a_message_fails_with_its_range() {
    let ends: [fn(&Pair); 3] = [
        |p| p.world.advance(200 * MS),
        |p| store(&p.ga, 1, 60, &[1; 8]),
        |p| p.ga.command::<command::EndRange>(&1.into()).expect("END_RANGE"),
    ];
    for (end, why) in ends.into_iter().zip([Denied::Short, Denied::Overrun, Denied::Ended]) {
        let mut p = with_blocks(2);
        for range in 0..2 {
            armed(&p.a, range, Direction::Write, 64);
        }
        p.run(&write(&p, &[window_sge(0, 0, 64), window_sge(1, 0, 64)]));
        store(&p.ga, 0, 0, &[5; 64]);
        store(&p.ga, 1, 0, &[5; 32]);
        pass(&p);
        end(&p);
        p.ga.adapter.beat();
        pass(&p);
        let cqe = p.sent().unwrap_or_else(|| panic!("no completion: {why:?}"));
        assert_eq!((status(&cqe), cqe.vendor_err.get()), (Status::LocProtErr, why as u32));
        assert_eq!((p.b.bytes(64, 64), p.a.state()), (vec![0; 64], State::Err));
        assert_eq!(blocks(&p.ga), [2, 0, 0, 0], "the QP has failed, and with it its ranges");
    }
}

/// Ranges that are not the QP's own, have another direction or no block, and bytes beyond the
/// transfer.
#[test]
fn work_requests_name_their_own_ranges_alone() {
    let segments = [
        (window_sge(1, 0, 8), Denied::Invalid),
        (window_sge(5, 0, 8), Denied::Invalid),
        (window_sge(2, 0, 8), Denied::Rights),
        (window_sge(0, 60, 5), Denied::Bounds),
        (window_sge(0, 0, RANGE_LEN + 1), Denied::Bounds),
        (window_sge(RANGES - 1, 4090, 7), Denied::Bounds),
        (sge(u64::MAX - 3, 8, Key::WINDOW.get()), Denied::Bounds),
        (window_sge(3, 0, 8), Denied::Foreign),
    ];
    for (segment, why) in segments {
        let mut p = with_blocks(4);
        armed(&p.a, 0, Direction::Write, 64);
        armed(&p.a, 2, Direction::Read, 64);
        arm(&p.ga, &transfer(&p.a, 5, Direction::Write, 64)).expect("ARM_RANGE");
        let other = p.a.apart(Setup::default());
        armed(&other, 3, Direction::Write, 64);
        p.run(&write(&p, &[segment]));
        let cqe = p.sent().expect("a completion");
        assert_eq!((status(&cqe), cqe.vendor_err.get()), (Status::LocProtErr, why as u32));
        assert_eq!(state(&p.ga, 3), (1, 0, 0), "the other QP's range");
    }
}

/// The key is not one of the peer, and a receive does not have ranges.
#[test]
fn a_peer_cannot_name_ranges() {
    let mut p = with_blocks(1);
    armed(&p.a, 0, Direction::Write, 64);
    store(&p.ga, 0, 0, &[5; 64]);
    let data = p.b.sge(0, 64);
    p.b.post_send(&Wr::new(Opcode::Write, &[data]).to(0, Key::WINDOW.get()));
    pass(&p);
    let cqe = p.b.send_cq.poll().expect("a completion");
    assert_eq!(status(&cqe), Status::RemAccessErr);
}

/// The ranges begin at any byte of BAR4.
#[test]
fn the_window_begins_where_the_driver_says() {
    let mut p = Pair::new();
    let params =
        SetWindow { base: 0x678.into(), length: (4 * RANGE_LEN).into(), ..window(&p.a, 4) };
    set(&p.ga, &params).expect("SET_WINDOW");
    let found = query(&p.ga);
    assert_eq!((found.base.get(), found.length.get()), (0x678, 4 * RANGE_LEN));
    for range in 2..4 {
        armed(&p.a, range, Direction::Write, RANGE_LEN);
    }
    // A page of BAR4 is the end of one range and the start of the next.
    let data = pattern(RANGE_LEN, 1);
    p.ga.adapter.store_in_window(0x678 + 3 * LEN - 0x88, &data[..0x110]);
    assert_eq!([2, 3].map(|range| state(&p.ga, range).2), [0x88; 2]);
    p.ga.adapter.store_in_window(0, &[1; 0x700]);
    p.ga.adapter.store_in_window(0x678 + 2 * LEN, &data[..LEN as usize - 0x88]);
    p.run(&write(&p, &[window_sge(2, 0, RANGE_LEN)]));
    pass(&p);
    assert_eq!(completions(&mut p), [(1, Status::Success)]);
    let expected = [&data[..LEN as usize - 0x88], &data[..0x88]].concat();
    assert!(p.b.bytes(0, LEN as usize) == expected);
    // The ranges that the window has no place for get nothing.
    armed(&p.a, 0, Direction::Write, 8);
    let mut bytes = [0; 16];
    assert_eq!(p.ga.adapter.read_window(0x678 + 4 * LEN - 8, &mut bytes), Ok(()));
    assert_eq!(bytes, [0xff; 16]);
    p.ga.adapter.store_in_window(0x678 + 4 * LEN, &[1; 64]);
    assert_eq!(state(&p.ga, 4), (0, 0, 0));
    assert_eq!(set(&p.ga, &window(&p.a, 0)), Err(Refused(AdminStatus::Busy, 0)));
}

#[test]
fn parameters_out_of_bounds_change_nothing() {
    let p = with_blocks(1);
    let good = window(&p.a, 1);
    let before = query(&p.ga);
    let far = u32::try_from(BAR_WINDOW_LEN).expect("short");
    let refused = [
        SetWindow { length: 4095.into(), ..good },
        SetWindow { length: (WINDOW_LEN + RANGE_LEN).into(), ..good },
        SetWindow { base: (far - WINDOW_LEN + 1).into(), ..good },
        SetWindow { base: u32::MAX.into(), ..good },
        SetWindow { blocks: (RANGES + 1).into(), ..good },
        SetWindow { reserved: [0, 1, 0, 0], ..good },
    ];
    for params in refused {
        let Err(Refused(why, _)) = set(&p.ga, &params) else { panic!("{params:?}") };
        assert_eq!(why, AdminStatus::BadParam);
    }
    for memory in [BASE + RAM_LEN - 8, u64::MAX - 8] {
        let params = SetWindow { memory: memory.into(), ..good };
        assert_eq!(set(&p.ga, &params), Err(Refused(AdminStatus::BadAddress, 0)));
    }
    let good = by_block(&p.a, 0, Direction::Read, 8);
    let refused = [
        ArmRange { packet_memory: 3, ..good },
        ArmRange { notice: Notice::Mapped as u8, ..good },
        ArmRange { memory: p.a.buffer.into(), ..good },
        ArmRange { length: (MAPPED_LEN_MAX + 1).into(), ..good },
        ArmRange { direction: Direction::Write as u8, length: (RANGE_LEN + 1).into(), ..good },
    ];
    for params in refused {
        let Err(Refused(why, _)) = arm(&p.ga, &params) else { panic!("{params:?}") };
        assert_eq!(why, AdminStatus::BadParam);
    }
    assert_eq!(query(&p.ga), before);
    set(&p.ga, &SetWindow { base: (far - WINDOW_LEN).into(), ..window(&p.a, 0) }).expect("the end");
}

/// An unreliable connection sends a message when all of its bytes are there, and loses nothing.
#[test]
fn an_unreliable_connection_waits_for_all_bytes() {
    let setup = Setup { kind: Type::Uc, ..Setup::default() };
    let mut p = Pair::with(setup, |_| {});
    set(&p.ga, &window(&p.a, 2)).expect("SET_WINDOW");
    for range in 0..2 {
        armed(&p.a, range, Direction::Write, RANGE_LEN);
    }
    p.run(&write(&p, &[window_sge(0, 0, 2 * RANGE_LEN)]));
    let data = pattern(2 * RANGE_LEN, 2);
    for (range, part) in (0..2).zip(data.chunks(LEN as usize)) {
        assert_eq!(completions(&mut p), []);
        store(&p.ga, range, 0, part);
        pass(&p);
    }
    assert_eq!(completions(&mut p), [(1, Status::Success)]);
    assert!(p.b.bytes(0, data.len()) == data);
}

/// A reset takes the blocks and the window back.
#[test]
fn nothing_is_left_after_a_reset() {
    let p = with_blocks(4);
    armed(&p.a, 0, Direction::Write, 64);
    p.ga.reset();
    p.ga.bring_up();
    assert_eq!(blocks(&p.ga), [0; 4]);
    assert_eq!(query(&p.ga).length.get(), WINDOW_LEN);
}
