// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The state of the extended interface of completion queues while a program polls.

use std::cell::UnsafeCell;

use vrnic_queues::clock::Sample;
use vrnic_queues::completion::Completion;
use vrnic_queues::cq::{CompletionQueue, Series};

/// The state of polling. Only the thread between `start_poll` and `end_poll` uses it, which holds
/// the queue's lock.
#[derive(Default)]
pub(super) struct Polling(UnsafeCell<Option<State>>);

/// The state of a queue that is being polled.
struct State {
    series: Series<'static>,
    current: Completion,
    /// For programs that read times of day.
    clocks: Option<Sample>,
}

// SAFETY: the cell is touched by the thread alone that holds the queue's lock, by libibverbs' rule
// that the calls between `start_poll` and `end_poll` come from one thread.
unsafe impl Sync for Polling {}
// SAFETY: it is empty while no thread polls.
unsafe impl Send for Polling {}

impl Polling {
    /// Begins to poll; returns the first completion. `clocks` converts the times of completions.
    ///
    /// # Safety
    /// The queue must live, at its place, until [`Self::end`]. This thread must not be polling by
    /// this state already.
    pub(super) unsafe fn start(
        &self,
        queue: &CompletionQueue,
        clocks: Option<Sample>,
    ) -> Option<&Completion> {
        let (series, current) = queue.series()?;
        // SAFETY: only the lifetime changes. The caller ends the series before the queue goes.
        let series = unsafe { std::mem::transmute::<Series<'_>, Series<'static>>(series) };
        // SAFETY: this thread has the lock of the queue, and so the cell.
        let state = unsafe { &mut *self.0.get() };
        Some(&state.insert(State { series, current, clocks }).current)
    }

    /// Returns the next completion.
    ///
    /// # Safety
    /// This thread must have begun, and hold no reference to the completion before.
    pub(super) unsafe fn next(&self) -> Option<&Completion> {
        // SAFETY: the caller's thread polls: it has the lock of the queue, and so the cell.
        let state = unsafe { &mut *self.0.get() }.as_mut()?;
        state.current = state.series.take()?;
        Some(&state.current)
    }

    /// Returns the completion that `start` or `next` returned last.
    ///
    /// # Safety
    /// This thread must have begun.
    pub(super) unsafe fn current(&self) -> Option<&Completion> {
        // SAFETY: the caller's thread polls: it has the lock of the queue, and so the cell.
        unsafe { &*self.0.get() }.as_ref().map(|state| &state.current)
    }

    /// Returns the time of day of the current completion, in nanoseconds since 1970, or 0 if it is
    /// unknown.
    ///
    /// # Safety
    /// This thread must have begun.
    pub(super) unsafe fn time_of_day(&self) -> u64 {
        // SAFETY: the caller's thread polls: it has the lock of the queue, and so the cell.
        let state = unsafe { &*self.0.get() }.as_ref();
        state
            .and_then(|state| Some(state.clocks?.time_of_day(state.current.timestamp)))
            .unwrap_or(0)
    }

    /// Ends polling.
    ///
    /// # Safety
    /// This thread must have begun.
    pub(super) unsafe fn end(&self) {
        // SAFETY: the caller's thread polls: it has the lock of the queue, and so the cell.
        let state = unsafe { (*self.0.get()).take() };
        // The place must be empty before the lock is free.
        drop(state);
    }
}
