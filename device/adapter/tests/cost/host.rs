//! A host that costs little itself: guest memory, BAR2, and a clock that stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi::GuestAddr;
use vrnic_abi::doorbell::{BarRange, BarWord32, BarWord64};
use vrnic_abi::pci::BAR_UAR_LEN;
use vrnic_adapter::host::{
    Clock, CopyFault, DoorbellBar, Fault, GuestMemory, HeldMemory, Host, Interrupts, Lane, Place,
};
use vrnic_packet::Nanos;
use vrnic_testdriver::memory::{BASE, Memory, Ram};

/// Bytes of guest memory.
const RAM_LEN: u64 = 64 << 20;
/// Bytes that are copied at a time.
const CHUNK: usize = 64;

struct Inner {
    ram: Ram,
    bar: Memory,
}

/// The host. All clones refer to the same host.
#[derive(Clone)]
pub(crate) struct TestHost(Arc<Inner>);

impl TestHost {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner { ram: Ram::new(RAM_LEN), bar: Memory::zeroed(BAR_UAR_LEN) }))
    }

    /// Returns guest memory.
    pub(crate) fn ram(&self) -> &Ram {
        &self.0.ram
    }

    /// Returns BAR2 as the guest sees it.
    pub(crate) fn bar(&self) -> &Memory {
        &self.0.bar
    }

    fn word(&self, addr: GuestAddr) -> Result<&AtomicU64, Fault> {
        self.0.ram.memory().word64(addr.get().wrapping_sub(BASE)).ok_or(fault(addr))
    }
}

const fn fault(addr: GuestAddr) -> Fault {
    Fault { addr, why: "not memory" }
}

/// Guest memory that the adapter holds.
pub(crate) struct Held<'a>(&'a TestHost);

impl HeldMemory for Held<'_> {
    fn read(&self, addr: GuestAddr, into: &mut [u8]) -> Result<(), Fault> {
        self.0.ram().memory().read(addr.get().wrapping_sub(BASE), into).ok_or(fault(addr))
    }

    fn write(&self, addr: GuestAddr, from: &[u8]) -> Result<(), Fault> {
        self.0.ram().memory().write(addr.get().wrapping_sub(BASE), from).ok_or(fault(addr))
    }

    fn fetch_add(&self, addr: GuestAddr, value: u64) -> Result<u64, Fault> {
        Ok(self.0.word(addr)?.fetch_add(value, Ordering::SeqCst))
    }

    fn compare_swap(&self, addr: GuestAddr, compare: u64, new: u64) -> Result<u64, Fault> {
        let (word, order) = (self.0.word(addr)?, Ordering::SeqCst);
        Ok(word.compare_exchange(compare, new, order, order).unwrap_or_else(|old| old))
    }

    fn store(&self, addr: GuestAddr, value: u64) -> Result<(), Fault> {
        self.0.word(addr)?.store(value, Ordering::SeqCst);
        Ok(())
    }

    fn check(&self, addr: GuestAddr, len: u64, _write: bool) -> Result<(), Fault> {
        let end = addr.get().wrapping_sub(BASE).checked_add(len);
        if end.is_some_and(|end| end <= RAM_LEN) { Ok(()) } else { Err(fault(addr)) }
    }
}

impl GuestMemory for TestHost {
    type Held<'a> = Held<'a>;

    fn hold(&self, _lane: Lane) -> Held<'_> {
        Held(self)
    }

    fn drain(&self) {}

    fn copy(
        from: Place<'_, Held<'_>>,
        to: Place<'_, Held<'_>>,
        len: usize,
    ) -> Result<(), CopyFault> {
        let mut bytes = [0; CHUNK];
        for at in (0..len).step_by(CHUNK) {
            let Some(bytes) = bytes.get_mut(..CHUNK.min(len - at)) else { break };
            let place = |start: GuestAddr| GuestAddr::new(start.get().wrapping_add(at as u64));
            from.memory.read(place(from.addr), bytes).map_err(|_| CopyFault::Source)?;
            to.memory.write(place(to.addr), bytes).map_err(|_| CopyFault::Target)?;
        }
        Ok(())
    }
}

impl DoorbellBar for TestHost {
    fn bar_load32(&self, word: BarWord32) -> u32 {
        self.0.bar.word32(word.offset()).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn bar_store32(&self, word: BarWord32, value: u32) {
        if let Some(word) = self.0.bar.word32(word.offset()) {
            word.store(value, Ordering::Release);
        }
    }

    fn bar_load64(&self, word: BarWord64) -> u64 {
        self.0.bar.word64(word.offset()).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn bar_take64(&self, word: BarWord64, mask: u64) -> u64 {
        let word = self.0.bar.word64(word.offset());
        word.map_or(0, |word| word.fetch_and(!mask, Ordering::SeqCst) & mask)
    }

    fn bar_read(&self, range: BarRange, into: &mut [u8]) {
        if self.0.bar.read(range.start, into).is_none() {
            into.fill(0);
        }
    }

    fn bar_zero(&self, range: BarRange) {
        let _outside = self.0.bar.write(range.start, &vec![0; range.len as usize]);
    }

    fn bar_clear(&self) {
        self.0.bar.clear();
    }
}

impl Interrupts for TestHost {
    fn raise(&self, _vector: u16) {}

    fn wake(&self, _worker: usize) {}
}

impl Clock for TestHost {
    fn now(&self) -> Nanos {
        Nanos(1)
    }
}

impl Host for TestHost {
    fn fail(&self) {}
}
