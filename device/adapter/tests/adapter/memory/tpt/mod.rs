//! The table of keys: compared with a simple model, with random operations; with threads; with very
//! large regions.
//!
//! Shows: memory

mod model;
mod random;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vrnic_abi::admin::Pages;
use vrnic_abi::qp::Access;
use vrnic_abi::sq::RegMrSeg;
use vrnic_abi::{Key, Pdn};
use vrnic_adapter::host::{GuestMemory, Lane};
use vrnic_adapter::limits::MAX_MR;
use vrnic_adapter::memory::mtt::Table;
use vrnic_adapter::memory::pages::Run;
use vrnic_adapter::memory::tpt::{ByteRange, Denied, Mr, Registration, Tpt, User};
use vrnic_testdriver::memory::BASE;

use crate::host::TestHost;

fn range(addr: u64, len: u64) -> ByteRange {
    ByteRange { addr, len }
}

fn run(addr: u64, len: u64) -> Run {
    Run { addr: addr.into(), len }
}

/// The PD of regions.
const PDN: Pdn = Pdn::new(1);

#[test]
fn a_full_table_says_so() {
    let tpt = Tpt::default();
    let make = |key| Ok::<_, ()>(region(key, PDN, Access::empty(), 0, 1, 0));
    let keys: Vec<Key> = std::iter::from_fn(|| tpt.insert(make).expect("made")).collect();
    assert_eq!(keys.len() as u32, MAX_MR - 1);
    assert!(tpt.remove(keys[5], || {}).is_ok());
    let again = tpt.insert(make).expect("made").expect("one entry is free");
    assert_eq!(again.get(), keys[5].get() + 1, "the same index in its next instance");
    assert!(tpt.check(&(), keys[5], of(PDN), range(0, 1), Access::empty()).is_err());
    assert!(tpt.insert(make).expect("made").is_none());
}

/// A removal returns only when no thread holds the guest's memory any more. From its start, no
/// look-up finds the region.
///
/// Shows: memory
#[test]
fn removal_waits_for_readers() {
    let (tpt, host) = (Tpt::default(), TestHost::new(&Arc::default()));
    let make = |key| Ok::<_, ()>(region(key, PDN, Access::empty(), 0, 8, 0));
    let key = tpt.insert(make).expect("made").expect("room");
    let held = host.hold(Lane::SHARED);
    assert!(tpt.check(&held, key, of(PDN), range(0, 8), Access::empty()).is_ok());
    let removed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tpt, host, removed) = (&tpt, &host, &removed);
        scope.spawn(move || {
            assert!(tpt.remove(key, || host.drain()).is_ok());
            removed.store(true, Ordering::SeqCst);
        });
        while tpt.check(&held, key, of(PDN), range(0, 8), Access::empty()).is_ok() {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!removed.load(Ordering::SeqCst), "removed while a thread reads");
        drop(held);
    });
    assert!(removed.load(Ordering::SeqCst));
}

/// Revocation returns only when no thread holds the guest's memory any more. From its start, no
/// look-up finds the region. Its index is not given again before its removal.
#[test]
fn revocation_waits_for_readers() {
    let (tpt, host) = (Tpt::default(), TestHost::new(&Arc::default()));
    let make = |key| Ok::<_, ()>(region(key, PDN, Access::empty(), 0, 8, 0));
    let key = tpt.insert(make).expect("made").expect("room");
    let held = host.hold(Lane::SHARED);
    assert!(tpt.check(&held, key, of(PDN), range(0, 8), Access::empty()).is_ok());
    let revoked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tpt, host, revoked) = (&tpt, &host, &revoked);
        scope.spawn(move || {
            assert_eq!(tpt.revoke(key, || host.drain()), Ok(()));
            revoked.store(true, Ordering::SeqCst);
        });
        while tpt.check(&held, key, of(PDN), range(0, 8), Access::empty()).is_ok() {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!revoked.load(Ordering::SeqCst), "revoked while a thread reads");
        drop(held);
    });
    assert!(revoked.load(Ordering::SeqCst));
    assert_eq!(tpt.known(key.index()).map(|known| (known.key, known.valid)), Some((key, None)));
    assert_eq!(tpt.remove(key, || host.drain()), Ok(PDN));
    assert!(tpt.known(key.index()).is_none());
}

/// Regions are created and removed in one entry. A look-up finds a complete region, or none.
#[test]
fn regions_are_never_seen_in_part() {
    const ROUNDS: u64 = 200_000;
    let tpt = Tpt::default();
    let next = AtomicU64::new(0);
    let make = |n: u64| {
        move |key| {
            Ok::<_, ()>(region(key, Pdn::new(n as u32), Access::empty(), n << 32, n, n << 12))
        }
    };
    // The table is full, so that the same index is used again each time.
    while tpt.insert(make(1)).expect("made").is_some() {}
    let mut key = Key::new(5 << 8 | 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while next.load(Ordering::Acquire) < ROUNDS {
                let n = next.load(Ordering::Acquire);
                for (n, instance) in [(n, n), (n + 1, n + 1)].map(|(n, i)| (n, (i + 1) as u8)) {
                    let key = Key::new(5 << 8 | u32::from(instance));
                    let at = range(n << 32, n);
                    if let Ok(window) =
                        tpt.check(&(), key, of(Pdn::new(n as u32)), at, Access::empty())
                    {
                        assert_eq!(window.resolve(0, 1), Some(run(n << 12, 1)));
                    }
                }
            }
        });
        for n in 1..=ROUNDS {
            assert!(tpt.remove(key, || {}).is_ok());
            key = tpt.insert(make(n)).expect("made").expect("room");
            next.store(n, Ordering::Release);
        }
    });
}

/// Returns a user of keys of this PD.
fn of(pdn: Pdn) -> User {
    User { pdn, ..User::default() }
}

fn region(key: Key, pdn: Pdn, access: Access, iova: u64, length: u64, base: u64) -> Mr {
    Mr { key, pdn, access, iova, length, table: Table::run(base.into()), ..Mr::default() }
}

/// 64 GiB in one region: pages of 1 GiB in a list, and pages of 2 MiB in a list of lists.
#[test]
fn huge_regions() {
    for (shift, levels) in [(30, 1), (21, 2)] {
        finds_pages(shift, levels, 64 << 30);
    }
}

/// Seven pages of each size from 4 KiB to 1 GiB, in a list.
///
/// Shows: memory: every page size from 4 KiB to 1 GiB
#[test]
fn every_page_size() {
    for shift in 12..=30 {
        finds_pages(shift, 1, 7 << shift);
    }
}

/// The same for regions that work requests register.
#[test]
fn every_page_size_by_work_requests() {
    for shift in 12..=30 {
        let (tpt, host) = (Tpt::default(), TestHost::new(&Arc::default()));
        let page = |nth: u64| (nth * 3 + 1) << shift;
        let list: Vec<u8> = (0..7).flat_map(|nth| page(nth).to_le_bytes()).collect();
        let memory = host.hold(Lane::SHARED);
        vrnic_adapter::host::HeldMemory::write(&memory, BASE.into(), &list).expect("memory");
        // The region ends within its last page.
        let len = (7 << shift) - 100;
        let seg = RegMrSeg {
            length: len.into(),
            table: BASE.into(),
            page_count: 7.into(),
            page_shift: shift,
            ..RegMrSeg::default()
        };
        let key = tpt.insert_fast(PDN, 7).expect("room");
        let wanted = Registration::new(key, of(PDN), 0, &seg).expect("parameters");
        tpt.register(&memory, &wanted).expect("registered");
        for at in [0, 5, len / 3, (6 << shift) - 1, len - 1] {
            let found = tpt.check(&(), key, of(PDN), range(at, 1), Access::empty());
            let expected = run(page(at >> shift) + at % (1 << shift), 1);
            assert_eq!(found.expect("inside").resolve(0, 1), Some(expected), "shift {shift}");
        }
        assert!(tpt.check(&(), key, of(PDN), range(len, 1), Access::empty()).is_err());
    }
    let seg = RegMrSeg { length: 1.into(), page_count: 1.into(), ..RegMrSeg::default() };
    for page_shift in [0, 11, 31, 63] {
        let wanted = Registration::new(0.into(), of(PDN), 0, &RegMrSeg { page_shift, ..seg });
        assert_eq!(wanted.err(), Some(Denied::Bounds), "shift {page_shift}");
    }
}

/// Creates a region of `len` bytes from a table with this number of levels. Its pages of `1 <<
/// shift` bytes are not adjacent. Checks that addresses in the region lead to the right pages.
#[track_caller]
fn finds_pages(shift: u8, levels: u8, len: u64) {
    let (tpt, host) = (Tpt::default(), TestHost::new(&Arc::default()));
    let page = |nth: u64| (nth * 3 + 1) << shift;
    let count = len >> shift;
    let store = |at: u64, value: u64| {
        let memory = host.hold(Lane::SHARED);
        vrnic_adapter::host::HeldMemory::write(&memory, at.into(), &value.to_le_bytes())
            .expect("guest memory");
    };
    let lists = if levels == 1 { BASE } else { BASE + 4096 };
    for chunk in 0..count.div_ceil(512) {
        store(BASE + chunk * 8, lists + chunk * 4096);
    }
    (0..count).for_each(|nth| store(lists + nth * 8, page(nth)));
    let pages = Pages::new(BASE, shift, levels);
    let make = |key| {
        let table = tpt.mtt().load(&host, &pages, 0, len).expect("pages");
        let mr = region(key, PDN, Access::empty(), 0, len, 0);
        Ok::<_, ()>(Mr { table, ..mr })
    };
    let key = tpt.insert(make).expect("made").expect("room");
    for at in [0, 5, len / 3, len - (1 << shift), len - 1] {
        let window = tpt.check(&(), key, of(PDN), range(at, 1), Access::empty()).expect("inside");
        let expected = page(at >> shift) + at % (1 << shift);
        assert_eq!(window.resolve(0, 1), Some(run(expected, 1)), "shift {shift}");
    }
    assert!(tpt.check(&(), key, of(PDN), range(len - 1, 2), Access::empty()).is_err());
    assert!(tpt.remove(key, || {}).is_ok());
}
