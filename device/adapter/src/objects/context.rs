//! The small context in which a queue is used.

use vrnic_abi::eq::Kind;

use crate::host::{Host, Lane};
use crate::stats::{Counter, Counters};

/// An adapter's host and counters, in the hands of the thread that uses them.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a, H> {
    /// The host.
    pub host: &'a H,
    /// The counters.
    pub stats: &'a Counters,
    /// The lane of the thread.
    pub lane: Lane,
}

impl<H: Host> Caller<'_, H> {
    /// Warns about what the guest does, at a bounded rate.
    #[cold]
    pub fn warn(&self, warn: impl FnOnce()) {
        self.stats.limiter.warn(self.host.now(), warn);
    }
}

/// A turn, as completion queues and shared receive queues see it.
pub trait QueueContext<'a, H: Host> {
    /// Returns the host.
    fn host(&self) -> &'a H;

    /// Returns the guest's memory, held.
    fn memory(&self) -> &H::Held<'a>;

    /// Returns the time, which may have been read a little earlier.
    fn now(&self) -> u64;

    /// Steps a counter.
    fn step(&self, counter: Counter);

    /// Warns about what the guest does, at a bounded rate; `warn` gets the adapter's name.
    fn warn(&self, warn: impl FnOnce(&str));

    /// Reports an asynchronous event.
    fn report(&self, kind: Kind, id: impl Into<u32>);
}
