use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::MemfdFlags;

use super::super::fault::{Fault, FaultKind};
use super::*;
use crate::memory::mapping::Order;

const LEN: u64 = 1 << 16;

fn memory() -> File {
    let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let file = File::from(file.expect("memfd"));
    file.set_len(LEN).expect("length");
    file
}

fn range(iova: u64, size: u64, offset: u64, file: Option<File>) -> DmaRange {
    DmaRange { iova, size, readable: true, writable: true, offset, file }
}

/// Two pieces of one file, swapped: guest address 0 is the second half.
fn table() -> DmaTable {
    let table = DmaTable::new("t", 1, MapRules::share(1));
    let file = memory();
    let half = LEN / 2;
    let twin = file.try_clone().expect("dup");
    table.map(range(0, half, half, Some(twin))).expect("first");
    table.map(range(half, half, 0, Some(file))).expect("second");
    table.set_bus_master(true);
    table
}

#[test]
fn copies_cross_from_one_range_into_the_next() {
    let (a, b) = (table(), table());
    let data: Vec<u8> = (0..LEN).map(|i| (i * 7 % 251) as u8).collect();
    a.view(Lane::SHARED).write(0, &data).expect("write");
    let mut back = vec![0; LEN as usize];
    a.view(Lane::SHARED).read(0, &mut back).expect("read");
    assert!(back == data);
    let half = LEN / 2;
    for (from, to, len) in [(half - 3, half - 100, 500), (0, 1, LEN as usize - 1), (9, 9, 0)] {
        let order = Order::LastBytesLast;
        a.view(Lane::SHARED).copy_to(from, &b.view(Lane::SHARED), to, (len, order)).expect("copy");
        let mut back = vec![0; len];
        b.view(Lane::SHARED).read(to, &mut back).expect("read");
        assert!(back == data[from as usize..][..len]);
    }
}

#[test]
fn faults_tell_address_and_reason() {
    let table = table();
    let fault = |addr, why| Err(Fault { addr, why });
    assert_eq!(
        table.view(Lane::SHARED).read(LEN - 1, &mut [0; 2]),
        fault(LEN, FaultKind::Unmapped)
    );
    assert_eq!(
        table.view(Lane::SHARED).write(u64::MAX, &[0; 2]),
        fault(u64::MAX, FaultKind::Unmapped)
    );
    table.map(range(1 << 32, 4096, 0, None)).expect("no file");
    assert_eq!(table.view(Lane::SHARED).read(1 << 32, &mut [0]), fault(1 << 32, FaultKind::NoFile));
    let rom = DmaRange { writable: false, ..range(1 << 33, 4096, 0, Some(memory())) };
    table.map(rom).expect("read-only");
    assert_eq!(table.view(Lane::SHARED).write(1 << 33, &[0]), fault(1 << 33, FaultKind::ReadOnly));
    table.view(Lane::SHARED).read(1 << 33, &mut [0]).expect("read of read-only memory");
    table.set_bus_master(false);
    assert_eq!(table.view(Lane::SHARED).read(0, &mut [0]), fault(0, FaultKind::NotBusMaster));
}

#[test]
fn atomics_work_on_aligned_words_alone() {
    let table = table();
    let add = |addr, n: u64| table.view(Lane::SHARED).fetch_add(addr, n);
    assert_eq!(add(64, 5), Ok(0));
    assert_eq!(add(64, u64::MAX), Ok(5));
    assert_eq!(add(64, 0), Ok(4));
    assert_eq!(add(65, 1), Err(Fault { addr: 65, why: FaultKind::Unaligned }));
}

#[test]
fn what_a_vmm_may_map_is_bounded() {
    let rules = MapRules { ranges: 2, bytes: LEN, any_file: false };
    let table = DmaTable::new("t", 1, rules);
    let file = || Some(memory());
    table.map(range(0, LEN - 4096, 0, file())).expect("first");
    let refused = table.map(range(1 << 32, 8192, 0, file()));
    assert!(matches!(refused, Err(MapError::TooMuch { limit: LEN, .. })), "{refused:?}");
    table.map(range(1 << 32, 4096, 0, file())).expect("what is left");
    let refused = table.map(range(1 << 33, 4096, 0, file()));
    assert!(matches!(refused, Err(MapError::TooMany)), "{refused:?}");
    table.map(range(1 << 34, 4096, 0, None)).expect("a range without memory");
    table.unmap(1 << 32, 4096).expect("unmap");
    table.map(range(1 << 33, 4096, 0, file())).expect("what has come back");
    for adapters in [1, 7, 256] {
        let MapRules { ranges, bytes, .. } = MapRules::share(adapters);
        assert!(ranges >= 64 && bytes >= 1 << 38, "{adapters} adapters");
        assert!(ranges * adapters < MAPPINGS_MAX && bytes * adapters as u64 <= 1 << 46);
    }
}

/// The program that runs this test is a file on some disk, as a rule.
#[test]
fn files_that_are_not_memory_need_leave() {
    let program = || File::open("/proc/self/exe").expect("this program");
    if rustix::fs::fstatfs(program()).expect("statfs").f_type == TMPFS {
        return;
    }
    let rom = || DmaRange { writable: false, ..range(0, 4096, 0, Some(program())) };
    let refused = DmaTable::new("t", 1, MapRules::share(1)).map(rom());
    assert!(matches!(refused, Err(MapError::NotMemory { iova: 0 })), "{refused:?}");
    let rules = MapRules { any_file: true, ..MapRules::share(1) };
    DmaTable::new("t", 1, rules).map(rom()).expect("allowed");
}

/// A file that is cut short fails the access, and each later one; the process goes on.
#[test]
fn memory_that_is_cut_off_is_lost() {
    let table = DmaTable::new("t", 1, MapRules::share(1));
    table.set_bus_master(true);
    let file = memory();
    table.map(range(0, LEN, 0, Some(file.try_clone().expect("dup")))).expect("map");
    let whole = self::table();
    table.view(Lane::SHARED).write(LEN - 8, &[7; 8]).expect("write");
    file.set_len(0).expect("truncate");
    assert!(!table.has_lost(), "nobody has looked");
    table
        .view(Lane::SHARED)
        .copy_to(0, &whole.view(Lane::SHARED), 0, (9000, Order::Any))
        .expect_err("a copy out of nothing");
    assert!(table.has_lost());
    for addr in [0, LEN - 8] {
        let fault = Err(Fault { addr, why: FaultKind::Lost });
        assert_eq!(table.view(Lane::SHARED).read(addr, &mut [0; 8]), fault);
        assert_eq!(table.view(Lane::SHARED).fetch_add(addr, 1).map(|_| ()), fault);
    }
    whole.view(Lane::SHARED).write(0, &[1; 100]).expect("other memory is as it was");
    table.unmap(0, LEN).expect("unmap");
    table.map(range(0, LEN, 0, Some(memory()))).expect("map anew");
    table.view(Lane::SHARED).read(0, &mut [0; 8]).expect("new memory");
}

proptest! {
    /// Any mix of maps, unmaps and copies does what it does to a plain array, and never more.
    #[test]
    fn copies_agree_with_a_plain_model(
        pieces in proptest::collection::vec((0u64..16, 0u64..16, any::<bool>()), 1..12),
        accesses in proptest::collection::vec((0u64..LEN, 0usize..9000, any::<u8>()), 1..20),
    ) {
        const PAGE: u64 = LEN / 16;
        let table = DmaTable::new("t", 1, MapRules::share(1));
        table.set_bus_master(true);
        let file = memory();
        // The model: which page of the file stands at each guest page.
        let mut pages = [None; 16];
        let mut model = vec![0u8; LEN as usize];
        for (at, from, map) in pieces {
            let twin = file.try_clone().expect("dup");
            if map {
                let fits = table.map(range(at * PAGE, PAGE, from * PAGE, Some(twin))).is_ok();
                prop_assert_eq!(fits, pages[at as usize].is_none());
                pages[at as usize].get_or_insert(from);
            } else {
                table.unmap(at * PAGE, PAGE).expect("whole pages");
                pages[at as usize] = None;
            }
        }
        let place = |addr: u64| {
            let page = pages.get((addr / PAGE) as usize).copied().flatten()?;
            Some((page * PAGE + addr % PAGE) as usize)
        };
        for (addr, len, byte) in accesses {
            let reach = (addr..addr + len as u64).take_while(|at| place(*at).is_some()).count();
            let result = table.view(Lane::SHARED).write(addr, &vec![byte; len]);
            prop_assert_eq!(result.is_ok(), reach == len);
            if let Err(fault) = result {
                // Whole pieces before the fault are written, the rest is not.
                prop_assert_eq!(fault.addr, addr + reach as u64);
            }
            (addr..addr + reach as u64).filter_map(place).for_each(|at| model[at] = byte);
            let mut back = vec![0; reach];
            table.view(Lane::SHARED).read(addr, &mut back).expect("what was written can be read");
            let expected: Vec<u8> =
                (addr..addr + reach as u64).filter_map(place).map(|at| model[at]).collect();
            prop_assert_eq!(back, expected);
        }
    }
}

#[test]
fn device_memory_takes_its_part_of_a_range_without_memory() {
    const BAR: u64 = 1 << 40;
    let table = table();
    let own = Arc::new(Mapping::new(&memory(), 0, LEN as usize, true).expect("mapping"));
    table.map(range(BAR - 4096, LEN + 8192, 0, None)).expect("the BAR as the VMM maps it");
    let read = |addr| table.view(Lane::SHARED).read(addr, &mut [0; 8]);
    let fault = |addr, why| Err(Fault { addr, why });
    assert_eq!(read(BAR), fault(BAR, FaultKind::NoFile));
    table.set_device_memory(Some(BAR), &own);
    assert_eq!(own.write(8, &[7; 8]), Some(()));
    table.view(Lane::SHARED).write(BAR + LEN - 8, &[9; 8]).expect("its last bytes");
    let mut whole = vec![0; LEN as usize];
    table.view(Lane::SHARED).read(BAR, &mut whole).expect("all of it");
    assert_eq!((whole[8], whole[LEN as usize - 1]), (7, 9));
    for addr in [BAR - 8, BAR + LEN] {
        assert_eq!(read(addr), fault(addr, FaultKind::NoFile));
    }
    assert_eq!(table.reachable(), LEN, "guest memory alone");
    // Memory of the VMM hides it, as long as it is there.
    let over = BAR + LEN / 2;
    table.unmap(BAR - 4096, LEN + 8192).expect("unmap");
    table.map(range(over, 4096, 0, Some(memory()))).expect("memory in its place");
    assert_eq!(read(BAR), fault(BAR, FaultKind::Unmapped));
    assert_eq!(read(over), Ok(()));
    table.unmap(over, 4096).expect("unmap");
    assert_eq!(read(BAR), Ok(()));
    table.set_device_memory(Some(u64::MAX - 4095), &own);
    assert_eq!(read(BAR), fault(BAR, FaultKind::Unmapped));
    table.set_device_memory(Some(0), &own);
    assert_eq!(read(8), Ok(()), "of the VMM");
    table.set_device_memory(None, &own);
    assert_eq!(read(0), Ok(()));
}

/// An unmap returns only when no thread uses the range any more, on any lane.
#[test]
fn unmap_waits_for_users() {
    for lane in [Lane::SHARED, Lane::worker(0)] {
        let table = Arc::new(table());
        let inside = Arc::new(AtomicU64::new(0));
        let (user, seen) = (Arc::clone(&table), Arc::clone(&inside));
        let thread = std::thread::spawn(move || {
            let view = user.view(lane);
            seen.store(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(50));
            // A second view must be had though a change waits for the first.
            let read = user.view(lane).read(0, &mut [0; 8]);
            seen.store(2, Ordering::SeqCst);
            drop(view);
            read
        });
        while inside.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        table.unmap(0, LEN).expect("unmap");
        assert_eq!(inside.load(Ordering::SeqCst), 2);
        assert!(thread.join().expect("user").is_ok());
        assert_eq!(table.reachable(), 0);
    }
}
