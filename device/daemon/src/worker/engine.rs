//! The work of a worker.

/// An object that workers poll, such as a worker's part of an adapter.
pub trait Engine: Send + Sync {
    /// Does a bounded amount of work. Returns false if there was none.
    fn poll(&self) -> bool;

    /// Records that the worker is about to sleep, or has woken. While all workers of an adapter
    /// sleep, its guest writes to a register after each doorbell to wake them. Acts as a full
    /// memory barrier.
    fn set_asleep(&self, asleep: bool);

    /// Returns whether there is work. [`Self::poll`] may miss work while another thread holds the
    /// engine; this does not.
    fn has_work(&self) -> bool;

    /// Returns the time of the next poll even if no doorbell is rung, in nanoseconds of
    /// [`super::pool::now`].
    fn deadline(&self) -> Option<u64>;
}
