//! A host whose doorbell page, and nothing else of guest and BAR2, is modelled.

use std::sync::atomic::{AtomicU64 as Time, Ordering};
use std::sync::{Arc, OnceLock};

use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use vrnic_abi::GuestAddr;
use vrnic_abi::doorbell::{BarRange, BarWord32, BarWord64, Doorbell};
use vrnic_abi::uar::UAR_LEN;
use vrnic_abi::{SlotIndex, UarIndex};
use vrnic_adapter::host::{
    Clock, CopyFault, DoorbellBar, Fault, GuestMemory, HeldMemory, Host, Interrupts, Lane, Place,
};
use vrnic_packet::Nanos;
use vrnic_testdriver::memory::{BASE, Memory, Ram};

use crate::waker::Waker;

const RAM_LEN: u64 = 16 << 20;

/// The part of BAR2 that is modelled: words of UAR 0. All else is memory.
pub(crate) struct Words {
    summary: AtomicU64,
    armed: AtomicU32,
    /// The word that says what is posted, and where it is.
    posted: OnceLock<(u64, AtomicU32)>,
}

impl Words {
    /// Models the producer index of this doorbell from now on.
    pub(crate) fn model(&self, doorbell: Doorbell) {
        assert!(self.posted.set((doorbell.sq_pi().offset(), AtomicU32::new(0))).is_ok());
    }

    /// Publishes a producer index and rings. Returns whether the guest is asked to kick.
    pub(crate) fn ring(&self, index: u32, slot: SlotIndex) -> bool {
        let (_, posted) = self.posted.get().expect("a modelled word");
        posted.store(index, Ordering::Release);
        self.summary.fetch_or(slot.summary_bit(), Ordering::SeqCst);
        // The guest's OR is the full barrier as well.
        fence(Ordering::SeqCst);
        self.armed.load(Ordering::SeqCst) != 0
    }

    fn word32(&self, word: BarWord32) -> Option<&AtomicU32> {
        if word == UAR.armed() {
            return Some(&self.armed);
        }
        self.posted.get().filter(|(at, _)| *at == word.offset()).map(|(_, word)| word)
    }
}

/// The only UAR that is there.
const UAR: UarIndex = UarIndex::new(0);

pub(crate) struct Inner {
    ram: Ram,
    bar: Memory,
    words: Words,
    clock: Arc<Time>,
    waker: OnceLock<Arc<Waker>>,
}

/// The host; clones are the same one.
#[derive(Clone)]
pub(crate) struct TestHost(Arc<Inner>);

impl std::fmt::Debug for TestHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestHost")
    }
}

impl TestHost {
    pub(crate) fn new(clock: &Arc<Time>) -> Self {
        let words =
            Words { summary: AtomicU64::new(0), armed: AtomicU32::new(0), posted: OnceLock::new() };
        let (ram, bar) = (Ram::new(RAM_LEN), Memory::zeroed(UAR_LEN.into()));
        let (clock, waker) = (Arc::clone(clock), OnceLock::new());
        Self(Arc::new(Inner { ram, bar, words, clock, waker }))
    }

    /// Sets the waker of the worker.
    pub(crate) fn set_waker(&self, waker: &Arc<Waker>) {
        assert!(self.0.waker.set(Arc::clone(waker)).is_ok());
    }

    pub(crate) fn ram(&self) -> &Ram {
        &self.0.ram
    }

    /// Returns BAR2, except the words that are modelled.
    pub(crate) fn bar(&self) -> &Memory {
        &self.0.bar
    }

    pub(crate) fn words(&self) -> &Words {
        &self.0.words
    }
}

/// Guest memory, which is always accessible.
pub(crate) struct Held<'a>(&'a Ram);

impl HeldMemory for Held<'_> {
    fn read(&self, addr: GuestAddr, into: &mut [u8]) -> Result<(), Fault> {
        let fault = Fault { addr, why: "not memory" };
        self.0.memory().read(addr.get().wrapping_sub(BASE), into).ok_or(fault)
    }

    fn write(&self, addr: GuestAddr, from: &[u8]) -> Result<(), Fault> {
        let fault = Fault { addr, why: "not memory" };
        self.0.memory().write(addr.get().wrapping_sub(BASE), from).ok_or(fault)
    }

    fn fetch_add(&self, addr: GuestAddr, _value: u64) -> Result<u64, Fault> {
        Err(Fault { addr, why: "no atomics here" })
    }

    fn compare_swap(&self, addr: GuestAddr, _compare: u64, _new: u64) -> Result<u64, Fault> {
        Err(Fault { addr, why: "no atomics here" })
    }

    fn store(&self, addr: GuestAddr, _value: u64) -> Result<(), Fault> {
        Err(Fault { addr, why: "no atomics here" })
    }

    fn check(&self, _addr: GuestAddr, _len: u64, _write: bool) -> Result<(), Fault> {
        Ok(())
    }
}

impl GuestMemory for TestHost {
    type Held<'a> = Held<'a>;

    fn hold(&self, _lane: Lane) -> Held<'_> {
        Held(&self.0.ram)
    }

    fn drain(&self) {}

    fn copy(
        from: Place<'_, Held<'_>>,
        to: Place<'_, Held<'_>>,
        len: usize,
    ) -> Result<(), CopyFault> {
        let mut bytes = vec![0; len];
        from.memory.read(from.addr, &mut bytes).map_err(|_| CopyFault::Source)?;
        to.memory.write(to.addr, &bytes).map_err(|_| CopyFault::Target)
    }
}

impl DoorbellBar for TestHost {
    fn bar_load32(&self, word: BarWord32) -> u32 {
        match self.0.words.word32(word) {
            Some(word) => word.load(Ordering::Acquire),
            None => self.0.bar.word32(word.offset()).map_or(0, |word| word.load(Ordering::Acquire)),
        }
    }

    fn bar_store32(&self, word: BarWord32, value: u32) {
        if let Some(word) = self.0.words.word32(word) {
            word.store(value, Ordering::Release);
        } else if let Some(word) = self.0.bar.word32(word.offset()) {
            word.store(value, Ordering::Release);
        }
    }

    fn bar_load64(&self, word: BarWord64) -> u64 {
        if word == UAR.summary() {
            return self.0.words.summary.load(Ordering::Acquire);
        }
        self.0.bar.word64(word.offset()).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn bar_take64(&self, word: BarWord64, mask: u64) -> u64 {
        assert_eq!(word, UAR.summary());
        self.0.words.summary.fetch_and(!mask, Ordering::SeqCst) & mask
    }

    fn bar_read(&self, range: BarRange, into: &mut [u8]) {
        if self.0.bar.read(range.start, into).is_none() {
            into.fill(0);
        }
    }

    fn bar_zero(&self, range: BarRange) {
        let _outside = self.0.bar.write(range.start, &vec![0; range.len as usize]);
    }

    fn bar_clear(&self) {}
}

impl Interrupts for TestHost {
    fn raise(&self, _vector: u16) {}

    fn wake(&self, _worker: usize) {
        if let Some(waker) = self.0.waker.get() {
            waker.unpark();
        }
    }
}

impl Clock for TestHost {
    fn now(&self) -> Nanos {
        Nanos(self.0.clock.load(Ordering::Acquire))
    }
}

impl Host for TestHost {
    fn fail(&self) {
        panic!("a fault of the adapter");
    }
}
