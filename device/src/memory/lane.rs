//! Which copy of shared state a thread uses: one for each worker, and one for all other threads.
//!
//! A worker locks its own copy, which no other thread touches except to change the state, so that
//! the lock stays in the worker's cache.

use std::cell::Cell;

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// Lanes that `workers` workers and all other threads need.
#[must_use]
pub fn count(workers: usize) -> usize {
    workers + 1
}

/// Makes the calling thread worker `index`.
pub fn enter(index: usize) {
    LANE.set(index + 1);
}

/// The lane of the calling thread, below `count`.
#[inline]
#[must_use]
pub fn current(count: usize) -> usize {
    let lane = LANE.get();
    // A worker of another daemon in this process, as in tests, may have a number that this one
    // lacks.
    if lane < count { lane } else { 0 }
}
