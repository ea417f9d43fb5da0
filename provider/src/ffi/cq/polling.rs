// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The state of the extended interface of completion queues while a program polls.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use vrnic_queues::clock::Sample;
use vrnic_queues::completion::Completion;
use vrnic_queues::cq::{CompletionQueue, Series};

/// The state of polling.
#[derive(Default)]
pub(in crate::ffi) struct Polling {
    /// Only the thread between `start_poll` and `end_poll` uses it, which holds the queue's lock.
    state: UnsafeCell<Option<State>>,
    /// True if the program has read the time of day of a completion.
    reads_day: AtomicBool,
}

/// The state of a queue that is being polled.
struct State {
    series: Series<'static>,
    current: Completion,
    /// Converts the times of completions, if the program reads times of day.
    clocks: Option<Sample>,
}

// SAFETY: the cell is touched only by the thread that holds the queue's lock, by libibverbs' rule
// that the calls between `start_poll` and `end_poll` come from one thread.
unsafe impl Sync for Polling {}
// SAFETY: it is empty while no thread polls.
unsafe impl Send for Polling {}

impl Polling {
    /// Returns whether the program reads times of day. It then needs a sample of the clocks to
    /// begin with.
    pub(in crate::ffi) fn reads_day(&self) -> bool {
        self.reads_day.load(Ordering::Relaxed)
    }

    /// Begins to poll; returns the first completion. `clocks` converts the times of completions.
    ///
    /// # Safety
    /// The queue must live, at its place, until [`Self::end`]. This thread must not be polling by
    /// this state already.
    pub(in crate::ffi) unsafe fn start(
        &self,
        queue: &CompletionQueue,
        clocks: Option<Sample>,
    ) -> Option<&Completion> {
        let (series, current) = queue.series()?;
        // SAFETY: only the lifetime changes. The caller ends the series before the queue goes.
        let series = unsafe { std::mem::transmute::<Series<'_>, Series<'static>>(series) };
        // SAFETY: this thread has the lock of the queue, and so the cell.
        let state = unsafe { &mut *self.state.get() };
        Some(&state.insert(State { series, current, clocks }).current)
    }

    /// Returns the next completion.
    ///
    /// # Safety
    /// This thread must have begun, and hold no reference to the completion before.
    pub(in crate::ffi) unsafe fn next(&self) -> Option<&Completion> {
        // SAFETY: the caller's thread polls: it has the lock of the queue, and so the cell.
        let state = unsafe { &mut *self.state.get() }.as_mut()?;
        state.current = state.series.take()?;
        Some(&state.current)
    }

    /// Returns the completion that `start` or `next` returned last.
    ///
    /// # Safety
    /// This thread must have begun.
    pub(in crate::ffi) unsafe fn current(&self) -> Option<&Completion> {
        // SAFETY: the caller's thread polls: it has the lock of the queue, and so the cell.
        unsafe { &*self.state.get() }.as_ref().map(|state| &state.current)
    }

    /// Returns the time of day of the current completion, in nanoseconds since 1970, or 0 if it is
    /// unknown. `sample` is called with the queue's lock, but only for the program's first read of
    /// such a time; later samples are taken before polling begins.
    ///
    /// # Safety
    /// This thread must have begun, and hold no reference to a completion.
    pub(in crate::ffi) unsafe fn time_of_day(
        &self,
        sample: impl FnOnce() -> Option<Sample>,
    ) -> u64 {
        self.reads_day.store(true, Ordering::Relaxed);
        // SAFETY: the caller's thread polls: it has the lock of the queue, and so the cell.
        let Some(state) = (unsafe { &mut *self.state.get() }) else { return 0 };
        state.clocks = state.clocks.or_else(sample);
        state.clocks.map_or(0, |clocks| clocks.time_of_day(state.current.timestamp))
    }

    /// Ends polling.
    ///
    /// # Safety
    /// This thread must have begun.
    pub(in crate::ffi) unsafe fn end(&self) {
        // SAFETY: the caller's thread polls: it has the lock of the queue, and so the cell.
        let state = unsafe { (*self.state.get()).take() };
        // The place must be empty before the lock is free.
        drop(state);
    }
}
