//! Device memory: the part of BAR2 that regions and work requests reach at its bus addresses.
//!
//! Shows: direct

use vrnic_abi::admin::{MrFlags, Pages, RegMr, Status as Admin, command};
use vrnic_abi::cq::Status;
use vrnic_abi::pci::{BAR_UAR, BAR_UAR_LEN};
use vrnic_abi::qp::Access;
use vrnic_abi::regs;
use vrnic_abi::sq::{Opcode, Sge};
use vrnic_abi::uar::{DEVICE_MEMORY_OFFSET, DEVICE_MEMORY_UNIT};
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wr::{Wr, sge};

use crate::common;
use crate::common::{pair, pattern, start, start_with};

/// A bus address of BAR2.
const BAR: u64 = 1 << 40;
/// The bus address of device memory there.
const MEMORY: u64 = BAR + DEVICE_MEMORY_OFFSET;
/// The offset of BAR2 in configuration space.
const BAR_OFFSET: u64 = 0x10 + 4 * BAR_UAR as u64;
/// Device memory of a function, unless the settings say otherwise.
const LEN: u64 = 64 << 20;

/// Moves BAR2, as firmware does.
fn place(guest: &Guest, bar: u64) {
    guest.write_config(BAR_OFFSET, &bar.to_le_bytes());
}

fn put(guest: &Guest, at: u64, bytes: &[u8]) {
    guest.bar().write(DEVICE_MEMORY_OFFSET + at, bytes).expect("device memory");
}

fn bytes(guest: &Guest, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    guest.bar().read(DEVICE_MEMORY_OFFSET + at, &mut bytes).expect("device memory");
    bytes
}

/// Returns a connected pair. Each end has its device memory at a bus address, and a key for all of
/// it.
fn ends(guests: &[Guest; 2]) -> [(Endpoint, u32); 2] {
    guests.iter().for_each(|guest| place(guest, BAR));
    let ends = common::connected(guests, Setup::default());
    ends.map(|end| {
        let key = end.guest.reg_flat(end.pdn, ALL, MEMORY, LEN).expect("a region of it");
        (end, key)
    })
}

#[test]
fn it_is_source_and_sink_of_every_operation() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [(mut a, akey), (mut b, bkey)] = ends(&guests);
    let units = guests[0].register(regs::DEVICE_MEMORY);
    assert_eq!(u64::from(units) * DEVICE_MEMORY_UNIT, LEN);
    let (len, end) = (70_001, LEN - 70_001);
    let data = pattern(len, 1);
    put(&guests[0], 3, &data);
    let own: Sge = sge(MEMORY + 3, len as u32, akey);
    // A WRITE to the last byte of the peer's device memory, one back into RAM, and one from RAM
    // into device memory.
    a.run_expecting(&Wr::new(Opcode::Write, &[own]).to(MEMORY + end, bkey), Status::Success);
    assert!(bytes(&guests[1], end, len) == data);
    let read = Wr::new(Opcode::Read, &[a.sge(5, len as u32)]).to(MEMORY + end, bkey);
    a.run_expecting(&read, Status::Success);
    assert!(a.bytes(5, len) == data);
    b.post_recv(1, &[sge(MEMORY + 9, len as u32, bkey)]);
    a.run_expecting(&Wr::new(Opcode::Send, &[a.sge(5, len as u32)]), Status::Success);
    assert!(bytes(&guests[1], 9, len) == data);
    b.recv_cq.expect(1, Status::Success);
    // An atomic operation in device memory, with its result in device memory.
    put(&guests[1], 4096, &40u64.to_le_bytes());
    let add =
        Wr::new(Opcode::FetchAdd, &[sge(MEMORY + 8, 8, akey)]).atomic(2, 0).to(MEMORY + 4096, bkey);
    a.run_expecting(&add, Status::Success);
    let word = |guest, at| bytes(guest, at, 8);
    assert_eq!(word(&guests[0], 8), 40u64.to_le_bytes());
    assert_eq!(word(&guests[1], 4096), 42u64.to_le_bytes());
    // A zero-based region that begins in the middle of a page.
    let access = ALL | Access::ZERO_BASED.bits();
    let from = MEMORY + 4096 + 100;
    let params = RegMr::new(b.pdn, access, from, 8, Pages::new(from & !4095, 12, 0));
    let zero = guests[1].command::<command::RegMr>(&params).expect("a region").get();
    a.fill(0, b"8 bytes.");
    a.run_expecting(&Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(0, zero), Status::Success);
    assert_eq!(word(&guests[1], 4096 + 100), b"8 bytes.");
    daemon.check();
}

#[test]
fn it_is_where_the_bar_is_and_nothing_else_of_the_bar_can_be_reached() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [(mut a, akey), (b, _)] = ends(&guests);
    let write = |from: Sge| Wr::new(Opcode::Write, &[from]).to(b.buffer, b.key);
    put(&guests[0], 0, b"here");
    // Device memory moves with the BAR. Keys name addresses, so the old key does not reach it any
    // more.
    place(&guests[0], BAR + BAR_UAR_LEN);
    let moved = guests[0].reg_flat(a.pdn, ALL, MEMORY + BAR_UAR_LEN, LEN).expect("a region");
    a.run_expecting(&write(sge(MEMORY + BAR_UAR_LEN, 4, moved)), Status::Success);
    assert_eq!(b.bytes(0, 4), b"here");
    a.run_expecting(&write(sge(MEMORY, 4, akey)), Status::LocProtErr);
    // Doorbells, and addresses after device memory, are not memory.
    place(&guests[0], BAR);
    for at in [BAR, MEMORY - 4096, MEMORY + LEN] {
        let mut end = a.apart(Setup::default());
        let other = b.apart(Setup::default());
        Endpoint::connect_pair(&end, &other);
        let key = end.guest.reg_flat(end.pdn, ALL, at, 4096).expect("a region");
        let write = Wr::new(Opcode::Write, &[sge(at, 4, key)]).to(other.buffer, other.key);
        end.run_expecting(&write, Status::LocProtErr);
    }
    daemon.check();
}

#[test]
fn a_reset_of_the_adapter_leaves_it_and_a_new_vmm_finds_zeroes() {
    let mut daemon = start(1);
    let guest = daemon.ready_guest(0);
    put(&guest, 12345, b"left");
    guest.reset();
    assert_eq!(bytes(&guest, 12345, 4), b"left");
    drop(guest);
    let guest = daemon.ready_guest(0);
    assert_eq!(bytes(&guest, 12345, 4), [0; 4]);
    daemon.check();
}

#[test]
fn a_function_has_as_much_as_the_settings_say() {
    for (mib, units) in [("0", 0), ("2", 1), ("128", 64)] {
        let mut daemon = start_with(2, &["--device-memory", mib]);
        let guests = pair(&daemon);
        assert_eq!(guests[0].register(regs::DEVICE_MEMORY), units);
        guests.iter().for_each(|guest| place(guest, BAR));
        let [mut a, b] = common::connected(&guests, Setup::default());
        let len = u64::from(units) * DEVICE_MEMORY_UNIT;
        let key = a.guest.reg_flat(a.pdn, ALL, MEMORY, len + 4096).expect("a region");
        if len > 0 {
            let last = Wr::new(Opcode::Write, &[sge(MEMORY + len - 8, 8, key)]);
            a.run_expecting(&last.to(b.buffer, b.key), Status::Success);
        }
        let behind = Wr::new(Opcode::Write, &[sge(MEMORY + len, 8, key)]).to(b.buffer, b.key);
        a.run_expecting(&behind, Status::LocProtErr);
        daemon.check();
    }
}

/// As in guest memory: a page list may be in device memory, and is read once.
#[test]
fn a_page_list_may_lie_in_it() {
    let daemon = start(2);
    let guests = pair(&daemon);
    let [(a, _), _] = ends(&guests);
    let page = a.guest.ram().alloc(4096);
    put(&guests[0], 0, &page.to_le_bytes());
    let register = |table| {
        let params = RegMr::new(a.pdn, ALL, page, 4096, Pages::new(table, 12, 1));
        guests[0].command::<command::RegMr>(&params)
    };
    register(MEMORY).expect("a region of RAM");
    assert_eq!(register(BAR).expect_err("doorbells").0, Admin::BadAddress);
}

/// A driver that registers memory of another device can find out whether the adapter reaches it.
#[test]
fn a_region_that_must_be_present_is_refused_where_there_is_no_memory() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [(mut a, _), (b, _)] = ends(&guests);
    let register = |addr: u64, len: u64, table: Option<&[u64]>| {
        let pages = match table {
            None => Pages::new(addr & !4095, 12, 0),
            Some(table) => {
                let at = guests[0].ram().alloc(4096);
                let bytes: Vec<u8> = table.iter().flat_map(|page| page.to_le_bytes()).collect();
                guests[0].ram().write(at, &bytes);
                Pages::new(at, 12, 1)
            }
        };
        let mut params = RegMr::new(a.pdn, ALL, addr, len, pages);
        params.flags = MrFlags::PRESENT.bits().into();
        guests[0].command::<command::RegMr>(&params).map_err(|refused| refused.0)
    };
    let ram = guests[0].ram().alloc(8192);
    // These regions are memory: all of it, a part, pages of both kinds.
    let both = register(0x7000, 8192, Some(&[MEMORY, ram])).expect("a region").get();
    assert!(register(MEMORY, LEN, None).is_ok() && register(ram + 5, 100, None).is_ok());
    // These are not memory, in whole or in part: doorbells, addresses after device memory, another
    // device's BAR.
    let foreign = BAR + (1 << 39);
    for (addr, len) in [(BAR, 4096), (MEMORY + LEN - 4096, 8192), (foreign, 1), (0, 1)] {
        assert_eq!(register(addr, len, None), Err(Admin::BadAddress), "{addr:#x}");
    }
    for table in [[foreign, ram], [ram, foreign], [MEMORY, MEMORY + LEN]] {
        assert_eq!(register(0x7000, 8192, Some(&table)), Err(Admin::BadAddress));
    }
    let write = Wr::new(Opcode::Write, &[sge(0x7000 + 4000, 200, both)]).to(b.buffer, b.key);
    a.run_expecting(&write, Status::Success);
    daemon.check();
}
