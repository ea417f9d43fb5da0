//! The work of a worker.

use std::time::Duration;

use vrnic_packet::Nanos;

/// An object that workers poll, such as a worker's part of an adapter.
pub trait Engine: Send + Sync {
    /// Does work for about the time `length`, but a little in any case.
    fn poll(&self, length: Duration) -> Polled;

    /// Records that the worker is about to sleep, or has woken. While all workers of an adapter
    /// sleep, its guest writes to a register after each doorbell to wake them. Acts as a full
    /// memory barrier.
    fn set_asleep(&self, asleep: bool);

    /// Returns whether there is work. [`Self::poll`] may miss work while another thread holds the
    /// engine; this does not.
    fn has_work(&self) -> bool;

    /// Returns the time of the next poll even if no doorbell is rung, on the clock of
    /// [`super::pool::now`].
    fn deadline(&self) -> Option<Nanos>;

    /// Returns its share of the worker's time while all engines have work, in any unit that all
    /// engines use. Without one it has the largest share of all.
    fn share(&self) -> Option<u32> {
        None
    }
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// True if there was work, or if work is left.
    pub busy: bool,
    /// The duration of the work in nanoseconds, by estimate if it was short.
    pub spent: u64,
}
