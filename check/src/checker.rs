//! The checker of this process: what it knows, and what happens if it fails itself.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::model::tables::Tables;
use crate::report;
use crate::stack::{self, Place};

/// What is known of this process. A forked process begins anew.
static TABLES: AtomicPtr<Tables> = AtomicPtr::new(std::ptr::null_mut());
/// True if the checker has failed. Then the program runs on unchecked.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Depth of calls into the library, whose own calls are not the program's.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
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

/// Returns whether this call comes from the library itself.
pub(crate) fn is_inside() -> bool {
    DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0)
}

/// Calls the library.
pub(crate) fn inside<R>(call: impl FnOnce() -> R) -> R {
    change_depth(1);
    let _until_the_end = Inside;
    call()
}

fn change_depth(by: i32) {
    // A thread that ends has no depth any more.
    let _unless_it_ends = DEPTH.try_with(|depth| depth.set(depth.get().saturating_add_signed(by)));
}

/// A call into the library, which also ends if the thread is cancelled.
struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        change_depth(-1);
    }
}
