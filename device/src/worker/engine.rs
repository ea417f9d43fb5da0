//! The work of a worker.

/// Something that is polled: a worker's part of an adapter.
pub trait Engine: Send + Sync {
    /// Does a bounded amount of work; false when there was none.
    fn poll(&self) -> bool;

    /// Tells that the worker goes to sleep, or has woken. While all workers of an adapter sleep,
    /// its guest kicks when it rings a doorbell. A full barrier follows.
    fn set_asleep(&self, asleep: bool);

    /// Returns whether something waits to be polled. [`Self::poll`] may miss it while another
    /// thread holds the engine; this does not.
    fn has_work(&self) -> bool;

    /// When to poll again though nothing rings, in nanoseconds of [`super::pool::now_ns`].
    fn deadline(&self) -> Option<u64>;
}
