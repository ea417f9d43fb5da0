//! The model's access to the memory of programs, to doorbells and to time.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use vrnic_abi::GuestAddr;
use vrnic_abi::doorbell::{BarRange, BarWord32, BarWord64, Doorbell};
use vrnic_adapter::host::{
    Clock, CopyFault, DoorbellBar, Fault, GuestMemory, HeldMemory, Host, Interrupts, Lane, Place,
};
use vrnic_packet::Nanos;
use vrnic_queues::mapping::Mapping;

use super::bar::Bar;
use super::waker::Waker;
use crate::memory::spaces::{HeldSpaces, Number, Spaces, split};
use crate::memory::words;

/// Number of bytes that are copied at once from one process to another.
const BOUNCE: usize = 128 << 10;
/// Number of bytes of the memory of the driver. Pages that it does not use do not exist.
pub(super) const DRIVER_LEN: u64 = 1 << 20;

/// Returns the system's monotonic clock in nanoseconds.
#[must_use]
pub fn system_clock() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative.
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The host of an adapter. All clones refer to the same one.
#[derive(Clone, Debug)]
pub struct ProcessHost(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The memory of programs, which all adapters share.
    spaces: Arc<Spaces>,
    /// The memory of the driver.
    driver: Mapping,
    bar: Bar,
    waker: Arc<Waker>,
    /// What the clock of the adapters is ahead of the system's, modulo 2^64.
    ahead: u64,
    failed: AtomicBool,
}

impl ProcessHost {
    /// Creates the host of an adapter that reaches the memory of these programs. Its clock has been
    /// running since the time `start` of [`system_clock`].
    ///
    /// # Errors
    /// The errors of mmap, such as `ENOMEM`.
    pub fn new(
        spaces: &Arc<Spaces>,
        waker: &Arc<Waker>,
        start: u64,
    ) -> Result<Self, rustix::io::Errno> {
        Ok(Self(Arc::new(Inner {
            spaces: Arc::clone(spaces),
            driver: Mapping::anonymous(DRIVER_LEN as usize)?,
            bar: Bar::new()?,
            waker: Arc::clone(waker),
            // No time of the adapter is zero.
            ahead: 1u64.wrapping_sub(start),
            failed: AtomicBool::new(false),
        })))
    }

    /// Returns the memory of programs.
    #[must_use]
    pub fn spaces(&self) -> &Arc<Spaces> {
        &self.0.spaces
    }

    /// Returns what the clock of the adapter is ahead of [`system_clock`], modulo 2^64.
    #[must_use]
    pub fn ahead(&self) -> u64 {
        self.0.ahead
    }

    /// Returns what wakes the worker.
    #[must_use]
    pub fn waker(&self) -> &Arc<Waker> {
        &self.0.waker
    }

    /// Returns the memory of the driver.
    #[must_use]
    pub fn driver(&self) -> &[AtomicU64] {
        self.0.driver.words()
    }

    /// Rings a doorbell of the driver, whose word has been stored.
    pub(super) fn ring(&self, doorbell: Doorbell) {
        if let Some(summary) = self.word64(doorbell.uar().summary().offset()) {
            summary.fetch_or(doorbell.slot().summary_bit(), Ordering::SeqCst);
        }
        self.waker().wake();
    }

    /// Returns BAR2.
    #[must_use]
    pub fn bar(&self) -> &Bar {
        &self.0.bar
    }

    /// Returns whether the adapter has failed because of a bug.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.0.failed.load(Ordering::Relaxed)
    }

    fn word64(&self, offset: u64) -> Option<&AtomicU64> {
        self.0.bar.words().get(usize::try_from(offset / 8).ok()?)
    }
}

/// Memory during a turn.
#[derive(Debug)]
pub struct Held<'a> {
    host: &'a ProcessHost,
    spaces: HeldSpaces<'a>,
}

/// Returns the fault of memory that does not exist.
fn absent(addr: GuestAddr) -> Fault {
    Fault { addr, why: "the program has no such memory" }
}

impl Held<'_> {
    /// Replaces an aligned word by what `new` makes of it. One thread runs all adapters, so no
    /// other adapter changes it meanwhile. The program itself may (`IBV_ATOMIC_HCA`).
    fn replace(&self, addr: GuestAddr, new: impl FnOnce(u64) -> Option<u64>) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.read(addr, &mut bytes)?;
        let old = u64::from_le_bytes(bytes);
        if let Some(new) = new(old) {
            self.write(addr, &new.to_le_bytes())?;
        }
        Ok(old)
    }
}

impl HeldMemory for Held<'_> {
    fn read(&self, addr: GuestAddr, into: &mut [u8]) -> Result<(), Fault> {
        let read = match split(addr) {
            (Number::DRIVER, at) => words::read(self.host.driver(), at, into),
            (number, at) => self.spaces.read(number, at, into),
        };
        read.ok_or_else(|| absent(addr))
    }

    fn write(&self, addr: GuestAddr, from: &[u8]) -> Result<(), Fault> {
        let written = match split(addr) {
            (Number::DRIVER, at) => words::write(self.host.driver(), at, from),
            (number, at) => self.spaces.write(number, at, from),
        };
        written.ok_or_else(|| absent(addr))
    }

    fn fetch_add(&self, addr: GuestAddr, value: u64) -> Result<u64, Fault> {
        self.replace(addr, |old| Some(old.wrapping_add(value)))
    }

    fn compare_swap(&self, addr: GuestAddr, compare: u64, new: u64) -> Result<u64, Fault> {
        self.replace(addr, |old| (old == compare).then_some(new))
    }

    fn store(&self, addr: GuestAddr, value: u64) -> Result<(), Fault> {
        self.write(addr, &value.to_le_bytes())
    }

    /// Checks only that there can be memory: looking at each page would cost as much as an access.
    fn check(&self, addr: GuestAddr, len: u64, _write: bool) -> Result<(), Fault> {
        let (number, _) = split(addr);
        let last = addr.checked_add(len.saturating_sub(1)).ok_or_else(|| absent(addr))?;
        let exists = number == Number::DRIVER || self.spaces.has(number);
        if exists && split(last).0 == number { Ok(()) } else { Err(absent(addr)) }
    }
}

impl GuestMemory for ProcessHost {
    type Held<'a> = Held<'a>;

    /// Each piece costs two system calls, so a short one is no quicker.
    const SLOW_PIECE: u64 = BOUNCE as u64;

    fn hold(&self, _lane: Lane) -> Held<'_> {
        Held { host: self, spaces: self.0.spaces.hold() }
    }

    fn drain(&self) {
        self.0.spaces.drain();
    }

    fn copy(
        from: Place<'_, Held<'_>>,
        to: Place<'_, Held<'_>>,
        len: usize,
    ) -> Result<(), CopyFault> {
        thread_local! {
            static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BOUNCE]);
        }
        BUFFER.with_borrow_mut(|buffer| {
            let mut done = 0;
            while done < len {
                let now = (len - done).min(BOUNCE);
                let piece = buffer.get_mut(..now).unwrap_or_default();
                let at = |addr: GuestAddr| addr.wrapping_add(done as u64);
                from.memory.read(at(from.addr), piece).map_err(|_| CopyFault::Source)?;
                to.memory.write(at(to.addr), piece).map_err(|_| CopyFault::Target)?;
                done += now;
            }
            Ok(())
        })
    }
}

impl DoorbellBar for ProcessHost {
    fn bar_load32(&self, word: BarWord32) -> u32 {
        let Some(whole) = self.word64(word.offset()) else { return 0 };
        let whole = whole.load(Ordering::Acquire);
        // CAST: takes a half.
        if word.offset() % 8 < 4 { whole as u32 } else { (whole >> 32) as u32 }
    }

    fn bar_store32(&self, word: BarWord32, value: u32) {
        let bytes = value.to_le_bytes();
        let _outside = words::write(self.0.bar.words(), word.offset(), &bytes);
    }

    fn bar_load64(&self, word: BarWord64) -> u64 {
        self.word64(word.offset()).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn bar_take64(&self, word: BarWord64, mask: u64) -> u64 {
        let Some(word) = self.word64(word.offset()) else { return 0 };
        word.fetch_and(!mask, Ordering::SeqCst) & mask
    }

    fn bar_read(&self, range: BarRange, into: &mut [u8]) {
        if words::read(self.0.bar.words(), range.start, into).is_none() {
            into.fill(0);
        }
    }

    fn bar_zero(&self, range: BarRange) {
        let words = self.0.bar.words();
        let first = usize::try_from(range.start / 8).unwrap_or(usize::MAX);
        let count = usize::try_from(range.len / 8).unwrap_or(0);
        words.iter().skip(first).take(count).for_each(|word| word.store(0, Ordering::Relaxed));
    }

    fn bar_clear(&self) {
        // A reset: no program has pages of it, because the driver resets only at the start.
        let _kept = self.0.bar.clear(BarRange { start: 0, len: super::bar::LEN });
    }
}

impl Interrupts for ProcessHost {
    /// Does nothing, because the worker looks at the event queues after each poll.
    fn raise(&self, _vector: u16) {}

    fn wake(&self, _worker: usize) {
        self.0.waker.wake();
    }
}

impl Clock for ProcessHost {
    fn now(&self) -> Nanos {
        Nanos(system_clock().wrapping_add(self.0.ahead))
    }
}

impl Host for ProcessHost {
    fn fail(&self) {
        self.0.failed.store(true, Ordering::Relaxed);
    }
}
