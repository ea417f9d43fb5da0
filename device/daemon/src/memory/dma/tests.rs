//! Shows: memory: memory that a VMM maps: ranges of one file, memory that is cut off, what may be
//! mapped

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::MemfdFlags;

use super::super::fault::{Fault, FaultKind};
use super::*;
use crate::memory::files::TMPFS;
use crate::memory::mapping::Order;
use crate::memory::ranges::Entry;
use vrnic_sigbus::MAPPINGS_MAX;

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

/// Returns a table of two pieces of one file, swapped: guest address 0 is the second half.
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
        a.view(Lane::SHARED).copy_to(from, &b.view(Lane::SHARED), to, len, order).expect("copy");
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

/// Returns a file of `len` bytes.
fn memory_of(len: u64) -> File {
    let file = memory();
    file.set_len(len).expect("length");
    file
}

/// Shows: hostile: what a VMM may map is bounded
#[test]
fn what_a_vmm_may_map_is_bounded() {
    let rules = MapRules { ranges: 4, mappings: 2, bytes: LEN, any_file: false, messages: false };
    let table = DmaTable::new("t", 1, rules);
    let (large, small) = (memory_of(LEN - 4096), memory_of(4096));
    let part = |file: &File, iova, len| {
        table.map(range(iova, len, 0, Some(file.try_clone().expect("dup"))))
    };
    part(&large, 0, 4096).expect("a part of a file, all of which counts");
    let refused = part(&memory(), 1 << 32, 8192);
    assert!(matches!(refused, Err(MapError::TooMuch { limit: LEN, .. })), "{refused:?}");
    part(&memory(), 1 << 32, 4096).expect("of a file that is too large, only the part");
    let refused = part(&small, 1 << 33, 4096);
    assert!(matches!(refused, Err(MapError::TooManyFiles { limit: 2 })), "{refused:?}");
    table.map(range(1 << 34, 4096, 0, None)).expect("a range without memory");
    part(&large, 4096, 4096).expect("of the same file, once more");
    table.unmap(1 << 32, 4096).expect("unmap");
    part(&small, 1 << 33, 4096).expect("what has come back");
    let refused = table.map(range(1 << 36, 4096, 0, None));
    assert!(matches!(refused, Err(MapError::TooMany { limit: 4 })), "{refused:?}");
    let refused = table.unmap(1000, 8);
    assert!(matches!(refused, Err(MapError::TooMany { limit: 4 })), "{refused:?}");
    assert_eq!(table.reachable(), 3 * 4096, "all of what would be split");
    table.unmap(4000, 200).expect("the ends of two ranges");
    assert_eq!(table.reachable(), 3 * 4096 - 200);
    for adapters in [1, 7, 256] {
        let MapRules { ranges, mappings, bytes, .. } = MapRules::share(adapters);
        assert!(mappings >= 64 && bytes >= 1 << 38, "{adapters} adapters");
        assert!(mappings * adapters < MAPPINGS_MAX && bytes * adapters as u64 <= 1 << 46);
        assert!(ranges * adapters <= (1 << 30) / size_of::<Entry>() && ranges >= 1 << 16);
    }
}

/// Pages that are mapped in the order of the file become one range. Pages in another order stay
/// ranges of their own. All of them share one mapping of the file.
#[test]
fn ranges_of_one_file_share_a_mapping() {
    const PAGE: u64 = 4096;
    let table = DmaTable::new("t", 2, MapRules::share(1));
    table.set_bus_master(true);
    let file = memory_of(1 << 32);
    let map =
        |iova, offset| table.map(range(iova, PAGE, offset, Some(file.try_clone().expect("dup"))));
    let count = || table.map.lock().ranges.len();
    // The pages of a quarter at each end are mapped upwards, and those between them downwards.
    let pages = 1 << 14;
    let order = (0..pages / 4).chain((pages / 4..pages).rev());
    for page in order {
        map(page * PAGE, page * PAGE).expect("a page");
    }
    assert_eq!((count(), table.reachable()), (1, pages * PAGE));
    map((1 << 32) - PAGE, (1 << 32) - PAGE).expect("the last page of 4 GiB");
    assert_eq!(count(), 2);
    for page in 0..pages {
        map((1 << 40) + page * PAGE, (pages - 1 - page) * PAGE).expect("a page, in another order");
    }
    assert_eq!(count() as u64, 2 + pages);
    let mappings: BTreeSet<_> = [0, (1 << 32) - 1, 1 << 40, (1 << 40) + pages * PAGE - 1]
        .into_iter()
        .map(|addr| {
            table.map.lock().ranges.at(addr).and_then(|e| Some(Arc::as_ptr(e.memory.as_ref()?)))
        })
        .collect();
    assert_eq!(mappings.len(), 1);
    // Both orders reach the same bytes.
    let view = table.view(Lane::SHARED);
    view.write((1 << 40) + 7, b"page").expect("write");
    let mut back = [0; 4];
    view.read((pages - 1) * PAGE + 7, &mut back).expect("read");
    assert_eq!(&back, b"page");
    drop(view);
    table.unmap(0, 1 << 50).expect("all of it");
    assert_eq!(count(), 0);
}

/// Read-only ranges and others may lie in one mapping, and are not joined.
#[test]
fn a_range_keeps_its_own_permissions() {
    let table = DmaTable::new("t", 1, MapRules::share(1));
    table.set_bus_master(true);
    let file = memory();
    let map = |page: u64, readable, writable| {
        let file = Some(file.try_clone().expect("dup"));
        let page = range(page * 4096, 4096, page * 4096, file);
        table.map(DmaRange { readable, writable, ..page }).expect("map");
    };
    // In the first round the read-only page comes first, and has a mapping of its own.
    for order in [
        [(1, true, false), (0, true, true), (2, false, true)],
        [(0, true, true), (1, true, false), (2, false, true)],
    ] {
        order.into_iter().for_each(|(page, readable, writable)| map(page, readable, writable));
        let view = table.view(Lane::SHARED);
        let fault = |addr, why| Err(Fault { addr, why });
        assert_eq!(view.write(0, &[5; 8192]), fault(4096, FaultKind::ReadOnly));
        assert_eq!(view.fetch_add(4096, 1).map(|_| ()), fault(4096, FaultKind::ReadOnly));
        assert_eq!(view.read(4096, &mut [0; 8192]), fault(8192, FaultKind::WriteOnly));
        view.write(8192, &[6; 4096]).expect("write");
        drop(view);
        table.unmap(0, LEN).expect("unmap");
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
    assert!(!table.has_lost(), "no thread has looked");
    table
        .view(Lane::SHARED)
        .copy_to(0, &whole.view(Lane::SHARED), 0, 9000, Order::Any)
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
        pieces in proptest::collection::vec((0u64..16, 0u64..16, 1u64..5, any::<bool>()), 1..24),
        accesses in proptest::collection::vec((0u64..LEN, 0usize..9000, any::<u8>()), 1..20),
    ) {
        const PAGE: u64 = LEN / 16;
        let table = DmaTable::new("t", 1, MapRules::share(1));
        table.set_bus_master(true);
        let file = memory();
        // The model: which page of the file stands at each guest page.
        let mut pages = [None; 16];
        let mut model = vec![0u8; LEN as usize];
        for (at, from, count, map) in pieces {
            let twin = file.try_clone().expect("dup");
            let count = count.min(16 - at.max(from));
            let span = at as usize..(at + count) as usize;
            if map {
                let fits = table.map(range(at * PAGE, count * PAGE, from * PAGE, Some(twin)));
                let free = pages[span.clone()].iter().all(Option::is_none);
                prop_assert_eq!(fits.is_ok(), free);
                if free {
                    pages[span].iter_mut().zip(from..).for_each(|(page, at)| *page = Some(at));
                }
            } else {
                table.unmap(at * PAGE, count * PAGE).expect("whole pages");
                pages[span].fill(None);
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

/// Shows: direct
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
    assert_eq!(table.reachable(), LEN, "only guest memory");
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
