//! The adapter's interface to the daemon: guest memory, doorbell memory, interrupts, clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use thiserror::Error;
use vrnic_abi::GuestAddr;
use vrnic_abi::doorbell::{BarRange, BarWord32, BarWord64};
use vrnic_packet::Nanos;

/// Guest memory that cannot be accessed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("guest address {addr} cannot be accessed: {why}")]
pub struct Fault {
    /// The first address that cannot be accessed.
    pub addr: GuestAddr,
    /// The reason, for the log.
    pub why: &'static str,
}

/// The side of a copy whose memory cannot be accessed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum CopyFault {
    /// The memory read.
    #[error("the source cannot be read")]
    Source,
    /// The memory written.
    #[error("the target cannot be written")]
    Target,
}

/// The bytes of memory without a mapping that a failed access waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Nothing: it fails again.
    Nothing,
    /// Bytes that are on their way: it may succeed later.
    Soon,
    /// Bytes that could not be moved: it fails for good.
    Failed,
}

/// The progress of bytes that the host has taken over, and writes by itself
/// ([`HeldMemory::hand_over`]).
#[derive(Debug, Default)]
pub struct HandedOver {
    /// Number of bytes that have not been written.
    left: AtomicU64,
    failed: AtomicBool,
}

impl HandedOver {
    /// Records that the host has taken bytes over.
    pub fn add(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Records that bytes have been written.
    pub fn written(&self, bytes: u64) {
        self.left.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Records that some bytes have not been written, and never will be.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Returns whether bytes are on their way, or have failed.
    #[must_use]
    pub fn awaited(&self) -> Awaited {
        if self.failed.load(Ordering::Acquire) {
            Awaited::Failed
        } else if self.left.load(Ordering::Acquire) > 0 {
            Awaited::Soon
        } else {
            Awaited::Nothing
        }
    }
}

/// A guest's memory, held during a turn: mappings do not change while this exists. Addresses are
/// guest-physical, as the device sees them. Memory may be missing, so a fault is a normal result.
pub trait HeldMemory {
    /// Copies guest memory out.
    ///
    /// # Errors
    /// Returns the first address that cannot be read.
    fn read(&self, addr: GuestAddr, into: &mut [u8]) -> Result<(), Fault>;

    /// Copies to guest memory in ascending order. The last bytes become visible last.
    ///
    /// # Errors
    /// Returns the first address that cannot be written.
    fn write(&self, addr: GuestAddr, from: &[u8]) -> Result<(), Fault>;

    /// Prefetches memory that will be read soon. This is only a hint, so errors are ignored.
    fn fetch_ahead(&self, _addr: GuestAddr, _len: usize) {}

    /// Prefetches the cache line of an address that will be written soon, for writing. This is only
    /// a hint, so errors are ignored.
    fn fetch_for_write(&self, _addr: GuestAddr) {}

    /// Adds to an aligned 8-byte word, atomically also for the guest. Returns the old value.
    ///
    /// # Errors
    /// Returns a fault if the word cannot be read and written.
    fn fetch_add(&self, addr: GuestAddr, value: u64) -> Result<u64, Fault>;

    /// Stores `new` into an aligned 8-byte word if the word is `compare`, atomically also for the
    /// guest. Returns the old value.
    ///
    /// # Errors
    /// Returns a fault if the word cannot be read and written.
    fn compare_swap(&self, addr: GuestAddr, compare: u64, new: u64) -> Result<u64, Fault>;

    /// Stores a value into an aligned 8-byte word, atomically also for the guest.
    ///
    /// # Errors
    /// Returns a fault if the word cannot be written.
    fn store(&self, addr: GuestAddr, value: u64) -> Result<(), Fault>;

    /// Checks that a range can be read, or written, now. Memory for which accesses wait
    /// ([`Self::attend`]) counts as accessible.
    ///
    /// # Errors
    /// Returns the first address that cannot be accessed.
    fn check(&self, addr: GuestAddr, len: u64, write: bool) -> Result<(), Fault>;

    /// Makes all memory accessible whose bytes a thread of the host has to move first, until this
    /// is released. The first access to such memory fails, and starts the move. The caller tries it
    /// again as long as [`Self::awaited`] says so. `asker` is a number of its own for everything
    /// that tries again by itself. It is never zero.
    fn attend(&self, _asker: u64) {}

    /// Returns what an access to a range is waiting for that has failed.
    fn awaited(&self, _addr: GuestAddr, _len: u64) -> Awaited {
        Awaited::Nothing
    }

    /// Returns whether there can be such memory.
    fn may_wait(&self) -> bool {
        false
    }

    /// Returns whether no access to a range has to wait so.
    fn is_immediate(&self, _addr: GuestAddr, _len: u64) -> bool {
        true
    }

    /// Copies to guest memory as [`Self::write`] does. Bytes that a thread of the host has to move
    /// count as written when it has taken them over. It records their progress in `progress`.
    ///
    /// # Errors
    /// Returns the first address that cannot be written, or whose byte is not taken over yet.
    fn hand_over(
        &self,
        addr: GuestAddr,
        from: &[u8],
        _progress: &Arc<HandedOver>,
    ) -> Result<(), Fault> {
        self.write(addr, from)
    }

    /// Names the message to which the accesses from now on belong. Bytes that were moved for
    /// another message of the asker are not read.
    fn of_message(&self, _number: u64) {}

    /// Starts to move bytes that the message reads soon, as far as there is room for them.
    fn announce(&self, _addr: GuestAddr, _len: usize) {}

    /// Ends the accesses since the last call, which belong to one operation that has succeeded. If
    /// it is not called, the accesses are repeated.
    fn settle(&self) {}

    /// Forgets bytes that were moved for an earlier message of the asker and were not used.
    fn forget(&self) {}
}

/// The thread that calls into an adapter: one of the host's workers, or any other thread.
///
/// Each worker has its own copy of data that all threads read or count ([`GuestMemory`],
/// [`crate::stats::Counters`]), so that workers do not share cache lines. A worker number stands
/// for one thread, in all adapters that reach each other. If threads use the same lane at the same
/// time, counts may be lost, but nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane(usize);

impl Lane {
    /// The lane of all threads that are not workers.
    pub const SHARED: Self = Self(0);

    /// Returns the lane of the worker with this number.
    #[must_use]
    pub const fn worker(number: usize) -> Self {
        Self(number.saturating_add(1))
    }

    /// Returns the number of lanes of `workers` workers and all other threads.
    #[must_use]
    pub const fn count(workers: usize) -> usize {
        workers.saturating_add(1)
    }

    /// Returns the index of the lane in a list of `count`. A worker beyond the list uses the shared
    /// one.
    #[inline]
    #[must_use]
    pub const fn index(self, count: usize) -> usize {
        if self.0 < count { self.0 } else { 0 }
    }
}

/// Accesses whose bytes are on their way.
#[derive(Clone, Copy)]
pub enum Transfers<'a> {
    /// All accesses.
    All,
    /// The accesses of these askers.
    Of([u64; 2]),
    /// The accesses to some memory.
    In(&'a EachPart<'a>),
}

/// Calls its argument with the address and the length of each part of some memory.
pub type EachPart<'a> = dyn Fn(&mut dyn FnMut(GuestAddr, u64)) + 'a;

/// An address in a guest's memory.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a, M> {
    /// The guest's memory.
    pub memory: &'a M,
    /// The address of the first byte.
    pub addr: GuestAddr,
}

/// The memory of a guest.
pub trait GuestMemory {
    /// Guest memory that is held.
    type Held<'a>: HeldMemory
    where
        Self: 'a;

    /// Number of bytes of a message that are moved at once if memory is slow, such as memory that
    /// has never been used and that the kernel allocates page by page.
    const SLOW_PIECE: u64 = 16 << 10;

    /// Holds guest memory, for a thread in `lane`. The caller releases it after a bounded time,
    /// because the VMM may wait for that. One thread may hold several memories.
    fn hold(&self, lane: Lane) -> Self::Held<'_>;

    /// Waits until all present holders of guest memory have released it. The caller holds no memory
    /// of any adapter.
    fn drain(&self);

    /// Waits until no bytes of these accesses, which were made earlier, are on their way to or from
    /// guest memory ([`HeldMemory::attend`]), which takes a bounded time. If they may still arrive
    /// after that time, the guest is separated from the adapter, and never gets an answer. The
    /// caller is neither a worker nor a thread that serves the VMM, and holds no memory.
    fn wait_for_transfers(&self, _of: &Transfers<'_>) {}

    /// Ends all accesses whose bytes are on their way. The host moves no more bytes for them,
    /// except those that it moves at this moment.
    fn end_transfers(&self) {}

    /// Ends all accesses as [`Self::end_transfers`] does, and also all calls of
    /// [`Self::wait_for_transfers`], present ones and later ones, until [`Self::end_transfers`] is
    /// called.
    fn interrupt_transfers(&self) {}

    /// Waits until the host moves no bytes of accesses that were ended, which takes a bounded time.
    /// If they may still arrive after that time, the guest is separated from the adapter, and never
    /// gets an answer. The caller is neither a worker nor a thread that serves the VMM, and holds
    /// no memory.
    fn wait_until_quiet(&self) {}

    /// Returns the time after which the host has probably moved all bytes that it moves now, or
    /// zero if there are none.
    fn moves_for(&self) -> Duration {
        Duration::ZERO
    }

    /// Copies from one guest's memory to another's, or to the same. The last bytes become visible
    /// last.
    ///
    /// # Errors
    /// Returns the side that cannot be accessed.
    fn copy(
        from: Place<'_, Self::Held<'_>>,
        to: Place<'_, Self::Held<'_>>,
        len: usize,
    ) -> Result<(), CopyFault>;

    /// Copies a part of a message that is not its end, in any order of the bytes.
    ///
    /// # Errors
    /// Returns the side that cannot be accessed.
    #[inline]
    fn copy_part(
        from: Place<'_, Self::Held<'_>>,
        to: Place<'_, Self::Held<'_>>,
        len: usize,
    ) -> Result<(), CopyFault> {
        Self::copy(from, to, len)
    }
}

/// BAR2, which the guest has mapped: doorbells, and send queues in device memory.
/// [`vrnic_abi::doorbell`] computes the addresses of words.
pub trait DoorbellBar {
    /// Loads a word with acquire semantics; zero outside of BAR2.
    fn bar_load32(&self, word: BarWord32) -> u32;

    /// Stores a word with release semantics.
    fn bar_store32(&self, word: BarWord32, value: u32);

    /// Loads a word with acquire semantics; zero outside of BAR2.
    fn bar_load64(&self, word: BarWord64) -> u64;

    /// Clears the bits of `mask` in a word, with sequential consistency. Returns those that were
    /// set.
    fn bar_take64(&self, word: BarWord64, mask: u64) -> u64;

    /// Copies bytes from the start of the range, until `into` is full. Bytes outside of BAR2 are
    /// zero.
    fn bar_read(&self, range: BarRange, into: &mut [u8]);

    /// Zeroes a range.
    fn bar_zero(&self, range: BarRange);

    /// Zeroes all of BAR2.
    fn bar_clear(&self);
}

/// Interrupts of the guest, and wake-ups of the workers.
pub trait Interrupts {
    /// Raises an MSI-X vector.
    fn raise(&self, vector: u16);

    /// Wakes a worker, if it sleeps.
    fn wake(&self, worker: usize);
}

/// A source of the time.
pub trait Clock {
    /// Returns monotonic time.
    fn now(&self) -> Nanos;

    /// Tells a clock that the work of tests moves about work that usually takes this many
    /// nanoseconds, before the clock is read.
    #[inline]
    fn work(&self, _ns: u64) {}
}

/// The host of one adapter. All methods can be called from any thread. None waits for a guest.
pub trait Host: GuestMemory + DoorbellBar + Interrupts + Clock + Send + Sync + 'static {
    /// Records that work for the adapter has panicked because of a bug. Nothing more is done for
    /// the adapter until a reset.
    fn fail(&self);
}
