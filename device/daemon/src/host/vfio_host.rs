//! The environment of an adapter model in this process: guest memory, BAR2, vectors, clock and
//! wakers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vrnic_abi::GuestAddr;
use vrnic_abi::doorbell::{BarRange, BarWord32, BarWord64};
use vrnic_abi::uar::DEVICE_MEMORY_OFFSET;
use vrnic_adapter::host::{
    Awaited, Clock, CopyFault, DoorbellBar, Fault, GuestMemory, HandedOver, HeldMemory, Host,
    Interrupts, Lane, Place, Transfers,
};
use vrnic_packet::Nanos;

use super::failure::{self, Failure};
use super::irq;
use crate::memory::dma::DmaTable;
use crate::memory::fault as cause;
use crate::memory::mapping::{Order, Word32, Word64};
use crate::memory::uar::UarMemory;
use crate::memory::view::{DmaView, Intent};
use crate::worker::pool::now;
use crate::worker::waker::Waker;

/// A range longer than this is zeroed by freeing its pages.
const PUNCH: u64 = 1 << 20;

/// The host of one adapter.
#[derive(Debug)]
pub struct VfioHost {
    /// Guest memory.
    pub dma: Arc<DmaTable>,
    /// BAR2.
    pub uar: Arc<UarMemory>,
    /// MSI-X vectors.
    pub irqs: Arc<irq::Interrupts>,
    /// The workers' wakers, by the number of the worker.
    pub wakers: Arc<[Arc<Waker>]>,
    /// True if a panic has stopped the adapter. See [`Failure`].
    pub failure: Arc<Failure>,
    /// If true, the next access to BAR2 panics, and so does the next wake-up of a worker.
    #[cfg(test)]
    pub(crate) trap: std::sync::atomic::AtomicBool,
}

impl VfioHost {
    /// Panics if a test has asked for this. Does nothing in the program.
    #[cfg(test)]
    fn spring(&self) {
        assert!(!self.trap.load(Ordering::SeqCst), "an injected fault");
    }

    #[cfg(not(test))]
    #[inline(always)]
    fn spring(&self) {}

    /// Makes device memory accessible at the address of BAR2, or not at all.
    pub fn place_device_memory(&self, bar: Option<u64>) {
        if let Some(memory) = self.uar.device() {
            let at = bar.and_then(|bar| bar.checked_add(DEVICE_MEMORY_OFFSET));
            self.dma.set_device_memory(at, memory);
        }
    }

    fn word32(&self, word: BarWord32) -> Option<Word32<'_>> {
        self.spring();
        self.uar.doorbells().word32(usize::try_from(word.offset()).ok()?)
    }

    fn word64(&self, word: BarWord64) -> Option<Word64<'_>> {
        self.spring();
        self.uar.doorbells().word64(usize::try_from(word.offset()).ok()?)
    }
}

fn fault(fault: cause::Fault) -> Fault {
    Fault { addr: GuestAddr::new(fault.addr), why: fault.why.text() }
}

fn copy_fault(failed: cause::CopyFault) -> CopyFault {
    match failed {
        cause::CopyFault::Source(_) => CopyFault::Source,
        cause::CopyFault::Target(_) => CopyFault::Target,
    }
}

#[inline]
fn copy(
    from: Place<'_, DmaView<'_>>,
    to: Place<'_, DmaView<'_>>,
    len: usize,
    order: Order,
) -> Result<(), CopyFault> {
    let (addr, to_addr) = (from.addr.get(), to.addr.get());
    from.memory.copy_to(addr, to.memory, to_addr, len, order).map_err(copy_fault)
}

impl HeldMemory for DmaView<'_> {
    #[inline]
    fn read(&self, addr: GuestAddr, into: &mut [u8]) -> Result<(), Fault> {
        self.read(addr.get(), into).map_err(fault)
    }

    #[inline]
    fn write(&self, addr: GuestAddr, from: &[u8]) -> Result<(), Fault> {
        self.write(addr.get(), from).map_err(fault)
    }

    #[inline]
    fn fetch_ahead(&self, addr: GuestAddr, len: usize) {
        self.fetch_ahead(addr.get(), len);
    }

    #[inline]
    fn fetch_for_write(&self, addr: GuestAddr) {
        self.fetch_for_write(addr.get());
    }

    fn fetch_add(&self, addr: GuestAddr, value: u64) -> Result<u64, Fault> {
        self.fetch_add(addr.get(), value).map_err(fault)
    }

    fn compare_swap(&self, addr: GuestAddr, compare: u64, new: u64) -> Result<u64, Fault> {
        self.compare_swap(addr.get(), compare, new).map_err(fault)
    }

    fn store(&self, addr: GuestAddr, value: u64) -> Result<(), Fault> {
        self.store(addr.get(), value).map_err(fault)
    }

    fn check(&self, addr: GuestAddr, len: u64, write: bool) -> Result<(), Fault> {
        let intent = if write { Intent::Write } else { Intent::Read };
        self.check(addr.get(), len, intent).map_err(fault)
    }

    #[inline]
    fn attend(&self, asker: u64) {
        self.attend(asker);
    }

    fn awaited(&self, addr: GuestAddr, len: u64) -> Awaited {
        self.awaited(addr.get(), len)
    }

    #[inline]
    fn may_wait(&self) -> bool {
        self.may_wait()
    }

    fn is_immediate(&self, addr: GuestAddr, len: u64) -> bool {
        self.is_immediate(addr.get(), len)
    }

    fn hand_over(
        &self,
        addr: GuestAddr,
        from: &[u8],
        progress: &Arc<HandedOver>,
    ) -> Result<(), Fault> {
        self.hand_over(addr.get(), from, progress).map_err(fault)
    }

    #[inline]
    fn of_message(&self, number: u64) {
        self.of_message(number);
    }

    fn announce(&self, addr: GuestAddr, len: usize) {
        self.announce(addr.get(), len);
    }

    #[inline]
    fn settle(&self) {
        self.settle();
    }

    #[inline]
    fn forget(&self) {
        self.forget();
    }
}

impl GuestMemory for VfioHost {
    type Held<'a> = DmaView<'a>;

    #[inline]
    fn hold(&self, lane: Lane) -> DmaView<'_> {
        self.dma.view(lane)
    }

    fn drain(&self) {
        self.dma.drain();
    }

    fn wait_for_transfers(&self, of: &Transfers<'_>) {
        self.dma.wait_for_transfers(of);
    }

    fn end_transfers(&self) {
        self.dma.end_transfers();
        self.dma.let_wait(true);
    }

    fn interrupt_transfers(&self) {
        self.dma.let_wait(false);
        self.dma.end_transfers();
    }

    fn wait_until_quiet(&self) {
        self.dma.wait_until_quiet();
    }

    fn moves_for(&self) -> Duration {
        self.dma.external().map_or(Duration::ZERO, |external| external.ends_in())
    }

    #[inline]
    fn copy(
        from: Place<'_, DmaView<'_>>,
        to: Place<'_, DmaView<'_>>,
        len: usize,
    ) -> Result<(), CopyFault> {
        copy(from, to, len, Order::LastBytesLast)
    }

    #[inline]
    fn copy_part(
        from: Place<'_, DmaView<'_>>,
        to: Place<'_, DmaView<'_>>,
        len: usize,
    ) -> Result<(), CopyFault> {
        copy(from, to, len, Order::Any)
    }
}

impl DoorbellBar for VfioHost {
    fn bar_load32(&self, word: BarWord32) -> u32 {
        self.word32(word).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn bar_store32(&self, word: BarWord32, value: u32) {
        // BAR2 is writable, so only a word outside of it fails, and no doorbell is there.
        let _outside = self.word32(word).map(|word| word.store(value, Ordering::Release));
    }

    fn bar_load64(&self, word: BarWord64) -> u64 {
        self.word64(word).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn bar_take64(&self, word: BarWord64, mask: u64) -> u64 {
        self.word64(word).and_then(|word| word.fetch_clear(mask)).unwrap_or(0) & mask
    }

    fn bar_read(&self, range: BarRange, into: &mut [u8]) {
        let offset = usize::try_from(range.start).unwrap_or(usize::MAX);
        if self.uar.doorbells().read(offset, into).is_none() {
            into.fill(0);
        }
    }

    fn bar_zero(&self, BarRange { start, len }: BarRange) {
        if len > PUNCH {
            if let Err(error) = self.uar.clear_range(start, len) {
                tracing::error!(%error, "doorbell memory of a send queue cannot be zeroed");
            }
            return;
        }
        const ZEROES: [u8; 4096] = [0; 4096];
        let mut at = start;
        while at < start + len {
            let some = (start + len - at).min(ZEROES.len() as u64);
            let (Ok(to), Some(zeroes)) = (usize::try_from(at), ZEROES.get(..some as usize)) else {
                return;
            };
            let _outside = self.uar.doorbells().write(to, zeroes);
            at += some;
        }
    }

    fn bar_clear(&self) {
        self.spring();
        if let Err(error) = self.uar.clear() {
            tracing::error!(%error, "doorbell memory cannot be zeroed");
        }
    }
}

impl Interrupts for VfioHost {
    fn raise(&self, vector: u16) {
        self.irqs.raise(vector);
    }

    fn wake(&self, worker: usize) {
        self.spring();
        if let Some(waker) = self.wakers.get(worker) {
            waker.unpark();
        }
    }
}

impl Clock for VfioHost {
    fn now(&self) -> Nanos {
        now()
    }
}

impl Host for VfioHost {
    fn fail(&self) {
        self.failure.set(failure::INTERNAL);
    }
}
