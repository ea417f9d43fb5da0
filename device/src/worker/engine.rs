//! What a worker runs.

/// Something that is polled: the data path of a function.
pub trait Engine: Send + Sync {
    /// Does a bounded amount of work at time `now`, in nanoseconds of [`super::pool::now_ns`].
    /// False when there was none.
    fn poll(&self, now: u64) -> bool;

    /// Tells the guest whether doorbells need a kick. A full barrier follows the store.
    fn arm(&self, armed: bool);

    /// Whether something waits to be polled. [`Self::poll`] may miss it while another thread holds the
    /// engine; this does not.
    fn has_work(&self) -> bool;

    /// When to poll again though nothing rings, in the same time.
    fn deadline(&self) -> Option<u64>;
}
