//! The table of keys: what control commands and work requests do to the same entries at the same
//! time.
//!
//! Shows: memory: keys and windows that change while work requests use them, in every order of
//! steps
//!
//! One thread does what the control thread does, the other is a worker in the turn of a QP: it
//! holds the guest's memory for as long as it uses what it found. A region's pages are freed by the
//! guest as soon as it has been removed, so a use after that is the error that each model looks
//! for.
#![cfg(loom)]

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, RwLock};
use loom::thread;
use vrnic_abi::admin::MwType;
use vrnic_abi::qp::Access;
use vrnic_abi::sq::RegMrSeg;
use vrnic_abi::{GuestAddr, Key, Pdn, Qpn};
use vrnic_adapter::domain::Domain;
use vrnic_adapter::host::{Fault, HeldMemory};
use vrnic_adapter::memory::mtt::Table;
use vrnic_adapter::memory::tpt::{
    Binding, ByteRange, Denied, Mr, Registration, RemoteUse, Tpt, User,
};
use vrnic_models::model;
use zerocopy::FromZeros;

const PDN: Pdn = Pdn::new(1);
const USER: User = User { pdn: PDN, qpn: Qpn::new(7), domain: Domain::NONE };
/// The first address of regions, and the guest addresses where they lie.
const IOVA: u64 = 0x1000;
const OLD: u64 = 0x10_0000;
const NEW: u64 = 0x20_0000;
const LEN: u64 = 0x1000;
/// Keys of the first two indices, as the device gives them.
const WINDOW: Key = Key::new(1 << 8 | 1);
const REGION: Key = Key::new(2 << 8 | 1);

/// An adapter's table, and its guest's memory.
struct World {
    tpt: Tpt,
    /// Held while the guest's memory is: the lane of the worker.
    lane: RwLock<()>,
    /// True if the guest has taken the memory at `OLD` back.
    freed: AtomicBool,
}

/// Guest memory, of which a page list is read.
struct Pages;

impl HeldMemory for Pages {
    fn read(&self, _addr: GuestAddr, into: &mut [u8]) -> Result<(), Fault> {
        into.copy_from_slice(&OLD.to_le_bytes());
        Ok(())
    }

    fn write(&self, addr: GuestAddr, _from: &[u8]) -> Result<(), Fault> {
        Err(Fault { addr, why: "not written here" })
    }

    fn fetch_add(&self, addr: GuestAddr, _value: u64) -> Result<u64, Fault> {
        Err(Fault { addr, why: "not written here" })
    }

    fn compare_swap(&self, addr: GuestAddr, _compare: u64, _new: u64) -> Result<u64, Fault> {
        Err(Fault { addr, why: "not written here" })
    }

    fn store(&self, addr: GuestAddr, _value: u64) -> Result<(), Fault> {
        Err(Fault { addr, why: "not written here" })
    }

    fn check(&self, _addr: GuestAddr, _len: u64, _write: bool) -> Result<(), Fault> {
        Ok(())
    }
}

fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::MW_BIND
}

/// Returns a region of the guest memory at `addr`.
fn region(addr: u64) -> Mr {
    let table = Table::run(addr.into());
    Mr { pdn: PDN, access: all(), iova: IOVA, length: LEN, table, ..Mr::default() }
}

impl World {
    /// Returns a table with a window that is not bound, and room for two more keys.
    fn new(kind: MwType) -> Arc<Self> {
        let (lane, freed) = (RwLock::new(()), AtomicBool::new(false));
        let this = Self { tpt: Tpt::new(3, &Default::default()), lane, freed };
        assert_eq!(this.tpt.insert_window(PDN, kind), Some(WINDOW));
        Arc::new(this)
    }

    /// Returns a table with a window of type 1 that is not bound, and a region.
    fn with_region() -> Arc<Self> {
        let world = Self::new(MwType::Type1);
        world.register();
        world
    }

    /// Returns a table with a window that is bound to a region.
    fn with_binding(kind: MwType) -> Arc<Self> {
        let world = Self::new(kind);
        world.register();
        world.bind(REGION, LEN).expect("a binding");
        world
    }

    /// Registers the memory at `OLD`.
    fn register(&self) -> Key {
        let made = self.tpt.insert(|_| Ok::<_, ()>(region(OLD)));
        made.expect("no error").expect("room")
    }

    fn drain(&self) {
        drop(self.lane.write());
    }

    /// Removes a region; its memory is free then, unless a window is bound to it.
    fn deregister(&self, key: Key) -> bool {
        let removed = self.tpt.remove(key, || self.drain()).is_ok();
        if removed {
            self.freed.store(true, Ordering::SeqCst);
        }
        removed
    }

    /// Revokes a region; its memory is free then, whatever is bound to it.
    fn revoke(&self, key: Key) {
        self.tpt.revoke(key, || self.drain()).expect("the region is there");
        self.freed.store(true, Ordering::SeqCst);
    }

    /// Binds the window to the region `lkey` in a turn, or with a length of zero ends its binding.
    fn bind(&self, lkey: Key, length: u64) -> Result<(), Denied> {
        let _turn = self.lane.read();
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let wanted =
            Binding { lkey, addr: IOVA, length, access, one_touch: false, same_key: false };
        self.tpt.bind(WINDOW, USER, &wanted).map(|_| ())
    }

    /// Uses `key` in a turn, as a peer's WRITE does; whether it was valid.
    fn touch(&self, key: Key) -> bool {
        let turn = self.lane.read();
        let range = ByteRange { addr: IOVA, len: LEN };
        let by = RemoteUse::new(Access::REMOTE_WRITE, 1);
        let Ok(window) = self.tpt.check_remote(&turn, key, USER, range, by) else {
            return false;
        };
        let addr = window.resolve(0, LEN).expect("within the window").addr.get();
        assert!(addr == OLD || addr == NEW, "a torn entry: {addr:#x}");
        let freed = self.freed.load(Ordering::SeqCst);
        assert!(addr != OLD || !freed, "memory that the guest has freed is used");
        true
    }

    /// Asserts what must hold in the end.
    fn check(&self) {
        let valid = self.touch(WINDOW);
        let bound = (2..=3).filter_map(|index| self.tpt.known(index)).map(|known| known.windows);
        assert_eq!(bound.sum::<u32>(), u32::from(valid), "windows that the regions count");
    }
}

/// Runs the two at the same time, then checks.
fn race(preemptions: usize, make: fn() -> Arc<World>, control: fn(&World), worker: fn(&World)) {
    model(preemptions, move || {
        let world = make();
        let other = Arc::clone(&world);
        let thread = thread::spawn(move || worker(&other));
        control(&world);
        thread.join().expect("worker");
        world.check();
    });
}

/// A process binds a window by a guessed key while the region is being registered, and the region
/// goes at once.
#[test]
fn a_region_comes_and_goes_while_a_window_is_bound_to_it() {
    race(
        3,
        || World::new(MwType::Type1),
        |world| {
            let key = world.register();
            assert_eq!(key, REGION);
            world.deregister(key);
        },
        |world| {
            let _refused = world.bind(REGION, LEN);
            world.touch(WINDOW);
        },
    );
}

/// A region goes while its key is used.
#[test]
fn a_region_goes_while_it_is_used() {
    race(
        3,
        World::with_region,
        |world| assert!(world.deregister(REGION)),
        |world| {
            world.touch(REGION);
        },
    );
}

/// A region is revoked, and removed, while a window is bound to it.
#[test]
fn a_region_is_revoked_while_a_window_is_bound_to_it() {
    race(
        2,
        World::with_region,
        |world| {
            world.revoke(REGION);
            assert!(world.deregister(REGION), "a window was left");
        },
        |world| {
            let _refused = world.bind(REGION, LEN);
            world.touch(WINDOW);
        },
    );
}

/// A region is revoked while its window is used, and the binding ends.
#[test]
fn a_region_is_revoked_while_its_window_is_used() {
    race(
        2,
        || World::with_binding(MwType::Type1),
        |world| world.revoke(REGION),
        |world| {
            world.touch(WINDOW);
            world.bind(REGION, 0).expect("the end of a binding");
        },
    );
}

/// A binding ends while its region goes, and the region's index is given again.
#[test]
fn a_binding_ends_while_its_region_goes() {
    race(
        2,
        || World::with_binding(MwType::Type1),
        |world| {
            world.deregister(REGION);
            // The index that is left, or the one that has become free.
            world.register();
        },
        |world| world.bind(REGION, 0).expect("the end of a binding"),
    );
}

/// A window of type 2 is invalidated while its region goes.
#[test]
fn a_window_is_invalidated_while_its_region_goes() {
    race(
        2,
        || World::with_binding(MwType::Type2),
        |world| {
            world.deregister(REGION);
        },
        |world| {
            let turn = world.lane.read();
            world.tpt.invalidate(WINDOW, USER, false).expect("the window is valid");
            drop(turn);
            let _refused = world.bind(REGION, LEN);
        },
    );
}

/// A region is registered again, elsewhere in memory, while its keys are used and a window is bound
/// to it.
#[test]
fn a_region_moves_while_a_window_is_bound_to_it() {
    race(
        2,
        World::with_region,
        |world| {
            if world.tpt.replace(REGION, region(NEW), || world.drain()).is_ok() {
                world.freed.store(true, Ordering::SeqCst);
            }
        },
        |world| {
            world.touch(REGION);
            let _refused = world.bind(Key::new(REGION.get() + 1), LEN);
            world.touch(WINDOW);
        },
    );
}

/// A region loses its rights, and keeps its key, while a window is bound to it.
#[test]
fn a_region_is_amended_while_a_window_is_bound_to_it() {
    race(
        2,
        World::with_region,
        |world| {
            let new = Mr { access: Access::empty(), ..region(OLD) };
            if world.tpt.amend(REGION, new, || world.drain()).is_ok() {
                // The old memory is not written to any more.
                world.freed.store(true, Ordering::SeqCst);
            }
        },
        |world| {
            world.touch(REGION);
            let _refused = world.bind(REGION, LEN);
            world.touch(WINDOW);
        },
    );
}

/// A region is registered and invalidated by work requests while another QP's work request binds a
/// window to it.
#[test]
fn a_fast_region_comes_and_goes_while_a_window_is_bound_to_it() {
    race(
        2,
        || {
            let world = World::new(MwType::Type1);
            assert_eq!(world.tpt.insert_fast(PDN, 1), Some(REGION));
            world
        },
        |world| {
            let seg = RegMrSeg {
                length: LEN.into(),
                access: all().bits().into(),
                page_shift: 12,
                page_count: 1.into(),
                ..RegMrSeg::new_zeroed()
            };
            let wanted = Registration::new(REGION, USER, IOVA, &seg).expect("a good request");
            world.tpt.register(&Pages, &wanted).expect("the region is invalid");
            if world.tpt.invalidate(REGION, USER, false).is_ok() {
                world.drain();
                world.freed.store(true, Ordering::SeqCst);
            }
        },
        |world| {
            let _refused = world.bind(REGION, LEN);
            world.touch(WINDOW);
        },
    );
}

/// Two QPs bind the window and end its binding.
#[test]
fn two_bindings_at_the_same_time() {
    race(
        2,
        World::with_region,
        |world| world.bind(REGION, LEN).expect("a binding"),
        |world| {
            world.bind(REGION, LEN).expect("a binding");
            world.bind(REGION, 0).expect("the end of a binding");
        },
    );
}
