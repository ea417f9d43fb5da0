//! The adapter's interface to the daemon: guest memory, doorbell memory, interrupts, time.

use thiserror::Error;

/// Guest memory that cannot be accessed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("guest address {addr:#x} cannot be accessed: {why}")]
pub struct Fault {
    /// The first address that cannot be accessed.
    pub addr: u64,
    /// Why, for the log.
    pub why: &'static str,
}

/// Which side of a copy failed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum CopyFault {
    /// The memory read.
    #[error("the source cannot be read: {0}")]
    Source(Fault),
    /// The memory written.
    #[error("the target cannot be written: {0}")]
    Target(Fault),
}

/// A guest's memory for the length of a turn: what is mapped does not change while this lives.
/// Addresses are guest-physical, as the device sees them. Memory may be missing: a fault is an
/// ordinary result.
pub trait Memory {
    /// Copies guest memory out.
    ///
    /// # Errors
    /// The first address that cannot be read.
    fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), Fault>;

    /// Copies into guest memory in ascending order; the last bytes become visible last.
    ///
    /// # Errors
    /// The first address that cannot be written.
    fn write(&self, addr: u64, from: &[u8]) -> Result<(), Fault>;

    /// Lets memory that will be read soon come nearer. A hint: whatever is wrong with it is passed
    /// over.
    fn fetch_ahead(&self, _addr: u64, _len: usize) {}

    /// Adds to an aligned 8-byte word, atomically against the guest too; returns the old value.
    ///
    /// # Errors
    /// When the word cannot be read and written.
    fn fetch_add(&self, addr: u64, value: u64) -> Result<u64, Fault>;

    /// Stores `new` into an aligned 8-byte word if it holds `compare`, atomically against the guest
    /// too; returns the old value.
    ///
    /// # Errors
    /// When the word cannot be read and written.
    fn compare_swap(&self, addr: u64, compare: u64, new: u64) -> Result<u64, Fault>;

    /// Checks that a range can be read, or written, now.
    ///
    /// # Errors
    /// The first address that cannot.
    fn check(&self, addr: u64, len: u64, write: bool) -> Result<(), Fault>;
}

/// The host of one adapter. All methods are callable from any thread; none waits for a guest.
pub trait Host: Send + Sync + 'static {
    /// Guest memory, held.
    type Memory<'a>: Memory
    where
        Self: 'a;

    /// Holds guest memory. It is given up after a bounded time, since the VMM may wait for that.
    /// One thread may hold several.
    fn memory(&self) -> Self::Memory<'_>;

    /// Waits until all current holders of guest memory have released it. The caller holds none, of
    /// any adapter.
    fn drain(&self);

    /// Copies from one guest's memory into another's, or the same; the last bytes become visible
    /// last.
    ///
    /// # Errors
    /// The side and address that cannot be accessed.
    fn copy(
        from: (&Self::Memory<'_>, u64),
        to: (&Self::Memory<'_>, u64),
        len: usize,
    ) -> Result<(), CopyFault>;

    /// Loads a 32-bit word of BAR2 with acquire semantics; zero outside of it.
    fn bar_load32(&self, offset: u64) -> u32;

    /// Stores a 32-bit word of BAR2 with release semantics.
    fn bar_store32(&self, offset: u64, value: u32);

    /// Loads a 64-bit word of BAR2 with acquire semantics; zero outside of it.
    fn bar_load64(&self, offset: u64) -> u64;

    /// Clears the bits of `mask` in a 64-bit word of BAR2, sequentially consistent; returns those
    /// that were set.
    fn bar_take64(&self, offset: u64, mask: u64) -> u64;

    /// Copies bytes of BAR2 out; zeroes outside of it.
    fn bar_read(&self, offset: u64, into: &mut [u8]);

    /// Zeroes bytes of BAR2.
    fn bar_zero(&self, offset: u64, len: u64);

    /// Zeroes all of BAR2.
    fn bar_clear(&self);

    /// Raises an MSI-X vector.
    fn raise(&self, vector: u16);

    /// Wakes a worker, if it sleeps.
    fn wake(&self, worker: usize);

    /// Records that a bug of the model has ended work for the adapter: nothing more is done for it
    /// until a reset.
    fn fail(&self);

    /// Returns the number of lanes: one for each thread that polls, and the first for all others.
    fn lanes(&self) -> usize {
        1
    }

    /// The calling thread's lane, below [`Self::lanes`]. No two threads that run have the same, but
    /// the first.
    fn lane(&self) -> usize {
        0
    }

    /// Monotonic time in nanoseconds.
    fn now(&self) -> u64;
}
