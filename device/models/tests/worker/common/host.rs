//! A host whose doorbell page, and nothing else of guest and BAR2, is modelled.

use std::sync::atomic::{AtomicU64 as Time, Ordering};
use std::sync::{Arc, OnceLock};

use loom::sync::atomic::{AtomicU32, AtomicU64};
use vrnic_abi::doorbell::{BarRange, BarWord32, BarWord64};
use vrnic_abi::uar::{ARMED_OFFSET, SUMMARY_OFFSET, UAR_LEN};
use vrnic_adapter::host::{
    Clock, CopyFault, DoorbellBar, Fault, GuestMemory, HeldMemory, Host, Interrupts, Lane,
};

use super::memory::Memory as Bytes;
use crate::waker::Waker;

/// Guest address of the first byte of memory.
pub(crate) const BASE: u64 = 0x4000_0000;
const RAM_LEN: u64 = 16 << 20;

/// BAR2, of which only UAR 0 is there.
pub(crate) struct Bar {
    rest: Bytes,
    summary: AtomicU64,
    armed: AtomicU32,
    /// The word that says what is posted, and where it is.
    posted: OnceLock<(u64, AtomicU32)>,
}

impl Bar {
    /// The summary, whatever its offset.
    pub(crate) fn word(&self, offset: u64) -> Option<&AtomicU64> {
        (offset == u64::from(SUMMARY_OFFSET)).then_some(&self.summary)
    }

    /// Returns whether the guest is asked to kick.
    pub(crate) fn armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst) != 0
    }

    /// Models the producer index at this offset from now on.
    pub(crate) fn model(&self, offset: u64) {
        assert!(self.posted.set((offset, AtomicU32::new(0))).is_ok());
    }

    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Option<()> {
        self.rest.write(offset, from)
    }

    fn word32(&self, offset: u64) -> Option<&AtomicU32> {
        if offset == u64::from(ARMED_OFFSET) {
            return Some(&self.armed);
        }
        self.posted.get().filter(|(at, _)| *at == offset).map(|(_, word)| word)
    }
}

pub(crate) struct Inner {
    ram: Bytes,
    bar: Bar,
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
        let bar = Bar {
            rest: Bytes::new(u64::from(UAR_LEN)),
            summary: AtomicU64::new(0),
            armed: AtomicU32::new(0),
            posted: OnceLock::new(),
        };
        let (ram, clock) = (Bytes::new(RAM_LEN), Arc::clone(clock));
        Self(Arc::new(Inner { ram, bar, clock, waker: OnceLock::new() }))
    }

    /// The waker of the worker.
    pub(crate) fn set_waker(&self, waker: &Arc<Waker>) {
        assert!(self.0.waker.set(Arc::clone(waker)).is_ok());
    }

    /// BAR2 as the guest sees it.
    pub(crate) fn bar(&self) -> &Bar {
        &self.0.bar
    }
}

/// Guest memory, which nobody takes away.
pub(crate) struct Held<'a>(&'a Bytes);

impl Held<'_> {
    fn offset(addr: u64) -> Result<u64, Fault> {
        addr.checked_sub(BASE).ok_or(Fault { addr, why: "not memory" })
    }
}

impl HeldMemory for Held<'_> {
    fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.0.read(Self::offset(addr)?, into).ok_or(Fault { addr, why: "not memory" })
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), Fault> {
        self.0.write(Self::offset(addr)?, from).ok_or(Fault { addr, why: "not memory" })
    }

    fn fetch_add(&self, addr: u64, _value: u64) -> Result<u64, Fault> {
        Err(Fault { addr, why: "no atomics here" })
    }

    fn compare_swap(&self, addr: u64, _compare: u64, _new: u64) -> Result<u64, Fault> {
        Err(Fault { addr, why: "no atomics here" })
    }

    fn check(&self, _addr: u64, _len: u64, _write: bool) -> Result<(), Fault> {
        Ok(())
    }
}

/// BAR2 by offset.
impl TestHost {
    pub(crate) fn bar_load32(&self, offset: u64) -> u32 {
        if let Some(word) = self.0.bar.word32(offset) {
            return word.load(Ordering::Acquire);
        }
        let mut bytes = [0; 4];
        self.bar_read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub(crate) fn bar_store32(&self, offset: u64, value: u32) {
        match self.0.bar.word32(offset) {
            Some(word) => word.store(value, Ordering::Release),
            None => drop(self.0.bar.write(offset, &value.to_le_bytes())),
        }
    }

    pub(crate) fn bar_load64(&self, offset: u64) -> u64 {
        self.0.bar.word(offset).map_or_else(
            || {
                let mut bytes = [0; 8];
                self.bar_read(offset, &mut bytes);
                u64::from_le_bytes(bytes)
            },
            |word| word.load(Ordering::Acquire),
        )
    }

    pub(crate) fn bar_take64(&self, offset: u64, mask: u64) -> u64 {
        self.0.bar.word(offset).map_or(0, |word| word.fetch_and(!mask, Ordering::SeqCst) & mask)
    }

    pub(crate) fn bar_read(&self, offset: u64, into: &mut [u8]) {
        if self.0.bar.rest.read(offset, into).is_none() {
            into.fill(0);
        }
    }

    pub(crate) fn bar_zero(&self, offset: u64, len: u64) {
        let _outside = self.0.bar.write(offset, &vec![0; len as usize]);
    }
}

impl GuestMemory for TestHost {
    type Held<'a> = Held<'a>;

    fn hold(&self, _lane: Lane) -> Held<'_> {
        Held(&self.0.ram)
    }

    fn drain(&self) {}

    fn copy(
        (from, addr): (&Held<'_>, u64),
        (to, to_addr): (&Held<'_>, u64),
        len: usize,
    ) -> Result<(), CopyFault> {
        let mut bytes = vec![0; len];
        from.read(addr, &mut bytes).map_err(CopyFault::Source)?;
        to.write(to_addr, &bytes).map_err(CopyFault::Target)
    }
}

impl DoorbellBar for TestHost {
    fn bar_load32(&self, word: BarWord32) -> u32 {
        self.bar_load32(word.offset())
    }

    fn bar_store32(&self, word: BarWord32, value: u32) {
        self.bar_store32(word.offset(), value);
    }

    fn bar_load64(&self, word: BarWord64) -> u64 {
        self.bar_load64(word.offset())
    }

    fn bar_take64(&self, word: BarWord64, mask: u64) -> u64 {
        self.bar_take64(word.offset(), mask)
    }

    fn bar_read(&self, range: BarRange, into: &mut [u8]) {
        self.bar_read(range.start, into);
    }

    fn bar_zero(&self, range: BarRange) {
        self.bar_zero(range.start, range.len);
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
    fn now(&self) -> u64 {
        self.0.clock.load(Ordering::Acquire)
    }
}

impl Host for TestHost {
    fn fail(&self) {
        panic!("a fault of the adapter");
    }
}
