//! The checker of this process: what it knows, and what happens if it fails itself.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread::LocalKey;

use crate::model::tables::Tables;
use crate::report;
use crate::stack::{self, Place};

/// What is known of this process. A forked process begins anew.
static TABLES: AtomicPtr<Tables> = AtomicPtr::new(std::ptr::null_mut());
/// True if the checker has failed. Then the program runs on unchecked.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Depth of calls into libibverbs, whose own calls are not the program's.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Depth of calls into librdmacm. Its calls of libibverbs count as the program's.
    static MANAGED: Cell<u32> = const { Cell::new(0) };
}

/// Returns what is known of this process.
pub(crate) fn tables() -> &'static Tables {
    let present = TABLES.load(Ordering::Acquire);
    // SAFETY: tables are never freed.
    if let Some(tables) = unsafe { present.as_ref() } {
        return tables;
    }
    let new = Box::into_raw(Box::new(Tables::default()));
    let set = TABLES.compare_exchange(present, new, Ordering::AcqRel, Ordering::Acquire);
    // SAFETY: tables are never freed. If another thread was first, the new ones are unused.
    unsafe { &*set.map_or_else(|other| other, |_| new) }
}

/// Begins anew: a forked process has none of the objects.
pub(crate) fn forget() {
    TABLES.store(std::ptr::null_mut(), Ordering::Release);
}

/// Looks at a call of the program. A fault of the checker does not reach the program: this says so
/// once, and looks at nothing from then on. The program's `errno` stays.
pub(crate) fn watch<R>(look: impl FnOnce(&'static Tables) -> R) -> Option<R> {
    if HAS_FAILED.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: each thread has an `errno`.
    let errno = unsafe { *libc::__errno_location() };
    let result = catch_unwind(AssertUnwindSafe(|| look(tables())));
    // SAFETY: each thread has an `errno`.
    unsafe { *libc::__errno_location() = errno };
    if result.is_err() {
        HAS_FAILED.store(true, Ordering::Relaxed);
        report::say("the checker has failed, and the program runs on without it");
    }
    result.ok()
}

/// Returns the place of a call of the program.
pub(crate) fn here(call: &'static str) -> Place {
    Place { call, stack: stack::capture() }
}

/// Returns whether this call comes from libibverbs itself.
pub(crate) fn is_inside() -> bool {
    DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0)
}

/// Calls libibverbs.
pub(crate) fn inside<R>(call: impl FnOnce() -> R) -> R {
    let _until_the_end = Inside::enter(&DEPTH);
    call()
}

/// Returns whether this call comes from librdmacm itself.
pub(crate) fn is_managed() -> bool {
    MANAGED.try_with(Cell::get).is_ok_and(|depth| depth > 0)
}

/// Calls librdmacm.
pub(crate) fn managed<R>(call: impl FnOnce() -> R) -> R {
    let _until_the_end = Inside::enter(&MANAGED);
    call()
}

/// Returns a number that this thread has, and no other thread at the same time.
pub(crate) fn thread() -> usize {
    // A thread that ends has none any more.
    DEPTH.try_with(|depth| std::ptr::from_ref(depth) as usize).unwrap_or(0)
}

/// A depth of calls of each thread.
type Depth = LocalKey<Cell<u32>>;

/// A call into a library, which also ends if the thread is cancelled.
struct Inside(&'static Depth);

impl Inside {
    fn enter(depth: &'static Depth) -> Self {
        change(depth, 1);
        Self(depth)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        change(self.0, -1);
    }
}

fn change(depth: &'static Depth, by: i32) {
    // A thread that ends has no depth any more.
    let _unless_it_ends = depth.try_with(|depth| depth.set(depth.get().saturating_add_signed(by)));
}
