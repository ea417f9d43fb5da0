//! The TPT against an obvious model: a list of regions, looked at one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use vrnic_abi::qp::Access;
use vrnic_adapter::att::Table;
use vrnic_adapter::host::Host;
use vrnic_adapter::tpt::{MAX_MR, Mr, Tpt};

use crate::common::host::TestHost;

#[derive(Clone, Debug)]
enum Op {
    Register { pdn: u32, access: u32, iova: u64, len: u64, base: u64 },
    Remove(prop::sample::Index),
    Access { which: prop::sample::Index, twist: u32, pdn: u32, at: i64, len: u64, need: u32 },
}

fn op() -> impl Strategy<Value = Op> {
    let edge = prop_oneof![0..100u64, (u64::MAX - 100)..=u64::MAX, any::<u64>()];
    prop_oneof![
        (0..3u32, 0..16u32, edge, 0..200u64, 0..1u64 << 40).prop_map(
            |(pdn, access, iova, len, base)| Op::Register { pdn, access, iova, len, base }
        ),
        any::<prop::sample::Index>().prop_map(Op::Remove),
        (
            any::<prop::sample::Index>(),
            prop_oneof![8 => Just(0u32), 1 => 1..0x400u32],
            0..3u32,
            -5..205i64,
            prop_oneof![0..210u64, any::<u64>()],
            0..16u32
        )
            .prop_map(|(which, twist, pdn, at, len, need)| Op::Access {
                which,
                twist,
                pdn,
                at,
                len,
                need
            }),
    ]
}

/// A region as the model knows it.
struct Known {
    key: u32,
    pdn: u32,
    access: u32,
    iova: u64,
    len: u64,
    base: u64,
    live: bool,
}

impl Known {
    fn allows(&self, pdn: u32, addr: u64, len: u64, need: u32) -> bool {
        let (first, end) = (u128::from(self.iova), u128::from(self.iova) + u128::from(self.len));
        let (from, to) = (u128::from(addr), u128::from(addr) + u128::from(len));
        self.live && self.pdn == pdn && first <= from && to <= end && self.access & need == need
    }
}

proptest! {
    #[test]
    fn agrees_with_the_model(ops in prop::collection::vec(op(), 1..200)) {
        let tpt = Tpt::default();
        let mut model: Vec<Known> = Vec::new();
        for op in ops {
            match op {
                Op::Register { pdn, access, iova, len, base } => {
                    if iova.checked_add(len).is_none() {
                        continue;
                    }
                    let rights = Access::from_bits_retain(access);
                    let make = |key| Ok::<_, ()>(region(key, pdn, rights, (iova, len), base));
                    let key = tpt.insert(make).expect("made").expect("room");
                    model.push(Known { key, pdn, access, iova, len, base, live: true });
                }
                Op::Remove(which) if !model.is_empty() => {
                    let at = which.index(model.len());
                    let known = &mut model[at];
                    prop_assert_eq!(tpt.remove(known.key, || {}).is_some(), known.live);
                    known.live = false;
                }
                Op::Access { which, twist, pdn, at, len, need } if !model.is_empty() => {
                    let known = &model[which.index(model.len())];
                    let key = known.key ^ twist;
                    let addr = known.iova.wrapping_add_signed(at);
                    let rights = Access::from_bits_retain(need);
                    let got = tpt.check(&(), (key, pdn), (addr, len), rights);
                    let found = model.iter().find(|known| known.key == key && known.live);
                    let expected = found.filter(|known| known.allows(pdn, addr, len, need));
                    match (got, expected) {
                        (Ok(window), Some(known)) => {
                            let to = known.base + (addr - known.iova);
                            prop_assert_eq!(window.resolve(0, len), Some((to, len)));
                        }
                        (Err(_), None) => {}
                        (got, _) => prop_assert!(false, "{:?} differs from the model", got),
                    }
                }
                Op::Remove(_) | Op::Access { .. } => {}
            }
        }
    }
}

#[test]
fn a_full_table_says_so() {
    let tpt = Tpt::default();
    let make = |key| Ok::<_, ()>(region(key, 1, Access::empty(), (0, 1), 0));
    let keys: Vec<u32> = std::iter::from_fn(|| tpt.insert(make).expect("made")).collect();
    assert_eq!(keys.len() as u32, MAX_MR - 1);
    assert!(tpt.remove(keys[5], || {}).is_some());
    let again = tpt.insert(make).expect("made").expect("one is free");
    assert_eq!((again >> 8, again & 0xff), (keys[5] >> 8, (keys[5] & 0xff) + 1));
    assert!(tpt.check(&(), (keys[5], 1), (0, 1), Access::empty()).is_err());
    assert!(tpt.insert(make).expect("made").is_none());
}

/// A removal returns only when nobody holds the guest's memory any more, and nobody finds the region from
/// its start on.
#[test]
fn removal_waits_for_readers() {
    let (tpt, host) = (Tpt::default(), TestHost::new(&Arc::default()));
    let make = |key| Ok::<_, ()>(region(key, 1, Access::empty(), (0, 8), 0));
    let key = tpt.insert(make).expect("made").expect("room");
    let held = host.memory();
    assert!(tpt.check(&held, (key, 1), (0, 8), Access::empty()).is_ok());
    let removed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tpt, host, removed) = (&tpt, &host, &removed);
        scope.spawn(move || {
            assert!(tpt.remove(key, || host.drain()).is_some());
            removed.store(true, Ordering::SeqCst);
        });
        while tpt.check(&held, (key, 1), (0, 8), Access::empty()).is_ok() {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!removed.load(Ordering::SeqCst), "removed under a reader");
        drop(held);
    });
    assert!(removed.load(Ordering::SeqCst));
}

/// Whoever looks at an entry while regions come and go there sees one of them whole, or none.
#[test]
fn regions_are_never_seen_in_part() {
    const ROUNDS: u64 = 200_000;
    let tpt = Tpt::default();
    let next = AtomicU64::new(0);
    let make = |n: u64| {
        move |key: u32| Ok::<_, ()>(region(key, n as u32, Access::empty(), (n << 32, n), n << 12))
    };
    // Fill the table, so that one index is used over and over.
    while tpt.insert(make(1)).expect("made").is_some() {}
    let mut key = 5 << 8 | 1;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while next.load(Ordering::Acquire) < ROUNDS {
                let n = next.load(Ordering::Acquire);
                for (n, instance) in [(n, n), (n + 1, n + 1)].map(|(n, i)| (n, (i + 1) as u8)) {
                    let key = 5 << 8 | u32::from(instance);
                    let at = (n << 32, n);
                    if let Ok(window) = tpt.check(&(), (key, n as u32), at, Access::empty()) {
                        assert_eq!(window.resolve(0, 1), Some((n << 12, 1)));
                    }
                }
            }
        });
        for n in 1..=ROUNDS {
            assert!(tpt.remove(key, || {}).is_some());
            key = tpt.insert(make(n)).expect("made").expect("room");
            next.store(n, Ordering::Release);
        }
    });
}

fn region(key: u32, pdn: u32, access: Access, (iova, length): (u64, u64), base: u64) -> Mr {
    Mr { key, pdn, access, iova, length, offset: 0, table: Table::run(base) }
}
