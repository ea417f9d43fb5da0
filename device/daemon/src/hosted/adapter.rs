//! An adapter of this process, with the PCI interface through which a VMM drives it.

use std::fs::File;
use std::io;
use std::num::NonZeroI32;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use vrnic_abi::pci;
use vrnic_abi::regs::{self, FatalCode, Status};
use vrnic_adapter::assigned::{InUse, Shrink};
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::limits::Limits;
use vrnic_adapter::window::Awaited;
use vrnic_packet::{MacAddr, Mtu, Nanos};

use crate::host::control::ControlHandle;
use crate::host::external_thread::ExternalThread;
use crate::host::failure::Failure;
use crate::host::irq::{Interrupts, IrqError};
use crate::host::vfio_host::VfioHost;
use crate::memory::dma::DmaTable;
use crate::memory::fault::MapError;
use crate::memory::messages::Messages;
use crate::memory::range::DmaRange;
use crate::memory::rules::MapRules;
use crate::memory::uar::UarMemory;
use crate::os::sys;
use crate::pci::config::ConfigSpace;
use crate::vfio::device::{Device, IrqRequest, RegionId};
use crate::worker::engine::{Engine, Polled};
use crate::worker::waker::Waker;

/// Maximum time for which a read of the window waits for its data. The VMM waits during this time.
const HOLD_LIMIT: Duration = Duration::from_millis(250);
/// Pause between two checks for the data.
const HOLD_PAUSE: Duration = Duration::from_micros(100);

/// Returns whether an offset in BAR0 is that of a byte of the MSI-X table or the pending bits.
fn in_msix(offset: u64) -> bool {
    let end = pci::MSIX_PBA_OFFSET + pci::MSIX_PART_LEN;
    (u64::from(pci::MSIX_TABLE_OFFSET)..u64::from(end)).contains(&offset)
}

/// The adapter model in this process.
pub type Adapter = vrnic_adapter::adapter::Adapter<VfioHost>;

/// An adapter of this process, shared by its server, the workers and housekeeping.
#[derive(Debug)]
pub struct HostedAdapter {
    pub(super) adapter: Arc<Adapter>,
    pub(super) failure: Arc<Failure>,
    control: ControlHandle,
    /// True if the Ethernet port has a link, as reported by the switch.
    link: AtomicBool,
    /// The adapter's share of the workers' time, in a millionth.
    share: AtomicU32,
    /// The process of the VMM that is connected, or 0.
    pub(super) vmm: AtomicI32,
    /// Held by the reset that ends a failure. Without this lock, both the VMM's own reset and the
    /// control thread could reset the adapter, the later one after the guest has enabled it again.
    recovery: Mutex<()>,
    /// The thread for memory that is reached by messages to the VMM, if the settings allow these.
    _external: Option<ExternalThread>,
}

/// A worker's part of an adapter.
#[derive(Debug)]
pub struct Part {
    hosted: Arc<HostedAdapter>,
    worker: usize,
    /// Time of the next poll even if no doorbell is rung; `u64::MAX` for never.
    deadline: AtomicU64,
}

impl HostedAdapter {
    /// Creates an adapter in its state after power-on. Workers with these wakers poll it; `control`
    /// wakes its control thread.
    ///
    /// # Errors
    /// Returns an error if the doorbell memory or the resources for interrupts cannot be allocated.
    pub fn new(
        name: &str,
        mac: MacAddr,
        wakers: &Arc<[Arc<Waker>]>,
        fabric: &Arc<Fabric<VfioHost>>,
        limits: Limits,
        rules: MapRules,
        control: ControlHandle,
    ) -> io::Result<Self> {
        let failure = Arc::new(Failure::new(name, control.clone()));
        let host = VfioHost {
            dma: Arc::new(DmaTable::new(name, wakers.len(), rules)),
            uar: Arc::new(UarMemory::new(name, limits.device_memory)?),
            irqs: Arc::new(Interrupts::new(control.clone())?),
            wakers: Arc::clone(wakers),
            failure: Arc::clone(&failure),
            #[cfg(test)]
            trap: AtomicBool::new(false),
        };
        let external = host
            .dma
            .external()
            .map(|external| ExternalThread::start(name, external))
            .transpose()?;
        let adapter = Adapter::new(name, mac, host, fabric, wakers.len(), limits);
        let (link, recovery) = (AtomicBool::new(false), Mutex::default());
        let (share, vmm) = (AtomicU32::new(1), AtomicI32::new(0));
        Ok(Self { adapter, failure, control, link, share, vmm, recovery, _external: external })
    }

    /// Returns the part of a worker.
    #[must_use]
    pub fn part(self: &Arc<Self>, worker: usize) -> Part {
        Part { hosted: Arc::clone(self), worker, deadline: AtomicU64::new(u64::MAX) }
    }

    /// Changes its share of the workers' time, a millionth each. Workers follow when they read the
    /// list of their engines again.
    pub fn set_share(&self, share: u32) {
        self.share.store(share, Ordering::Relaxed);
    }

    /// Returns the adapter model.
    #[must_use]
    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// Records the link of the Ethernet port, and asks the control thread to handle the change.
    pub fn set_link(&self, up: bool) {
        self.link.store(up, Ordering::Release);
        self.control.ask();
    }

    /// Changes the function's own maxima. An adapter that has failed takes them, too.
    ///
    /// # Errors
    /// See [`Adapter::set_limits`].
    pub fn set_limits(&self, limits: &Limits, shrink: Shrink) -> Result<(), InUse> {
        self.failure.catch(|| self.adapter.set_limits(limits, shrink)).unwrap_or(Ok(()))
    }

    /// Limits the port's MTU to what the uplinks carry.
    pub fn limit_mtu(&self, mtu: Mtu) {
        self.adapter.limit_mtu(mtu);
    }

    /// Steps the heartbeat. If memory of the guest has been lost, the adapter fails instead.
    pub fn beat(&self) {
        if self.adapter.host().dma.has_lost() {
            self.failure.set("memory of the guest was truncated, the system ran out of pages, or the VMM has disconnected while vrnicd was stopped");
        }
        self.failure.contain(|| self.adapter.beat());
    }

    /// Does what rules for faults demand now. Returns whether more will be due.
    pub fn run_faults(&self) -> bool {
        let ran = self.failure.contain(|| self.adapter.run_faults()).unwrap_or_default();
        if ran.control {
            self.control.ask();
        }
        ran.again
    }

    /// Begins no more work requests, for good.
    pub fn close(&self) {
        self.adapter.close();
    }

    /// Returns the number of QPs with work requests that have begun and have not ended.
    #[must_use]
    pub fn busy_qps(&self) -> usize {
        self.failure.contain(|| self.adapter.busy_qps()).unwrap_or(0)
    }

    /// Tells the driver that the adapter does nothing more, because the daemon ends.
    pub fn stop(&self) {
        self.failure.contain(|| self.adapter.stop());
        self.control.ask();
    }

    /// Does the control work that register writes, the switch and failures have requested.
    pub fn control(&self) {
        let Self { adapter, failure, .. } = self;
        self.end_failed();
        failure.contain(|| adapter.set_link(self.link.load(Ordering::Acquire)));
        failure.contain(|| adapter.control());
        adapter.host().irqs.deliver();
    }

    /// Resets the adapter if it has failed. It works again if its guest has requested a reset.
    fn end_failed(&self) {
        let Self { adapter, failure, .. } = self;
        let no_other_reset = self.recovery.lock();
        if !failure.is_set() {
            return;
        }
        let asked = adapter.is_resetting();
        let done = failure.catch(|| adapter.reset()).is_some();
        if asked {
            // The status register tells the guest whether the reset succeeded.
            if done {
                failure.clear();
            }
            drop(no_other_reset);
            adapter.end_reset();
        }
    }

    /// Reads a register.
    fn register(&self, offset: u32) -> u32 {
        let value = self.adapter.read_register(offset);
        match offset {
            regs::STATUS if self.failure.is_set() => value | Status::FATAL.bits(),
            regs::FATAL_CODE if self.failure.is_set() => FatalCode::Internal as u32,
            _ => value,
        }
    }

    /// Reads the window for another PCI device, and waits until the data is there. Returns ones if
    /// the data does not arrive within [`HOLD_LIMIT`].
    fn read_window(&self, mut offset: u64, into: &mut [u8]) {
        let (end, mut rest) = (Instant::now() + HOLD_LIMIT, into);
        loop {
            let read = self.failure.contain(|| self.adapter.read_window(offset, rest));
            let Some(Err(Awaited { range, done })) = read else {
                if read.is_none() {
                    rest.fill(0xff);
                }
                return;
            };
            let Some((_, behind)) = rest.split_at_mut_checked(done) else { return };
            (offset, rest) = (offset + done as u64, behind);
            if Instant::now() >= end {
                self.failure.contain(|| self.adapter.fail_early(range));
                continue;
            }
            // No doorbell wakes the workers while this thread waits.
            self.failure.contain(|| self.adapter.wake_all());
            std::thread::sleep(HOLD_PAUSE);
        }
    }

    /// Resets the adapter.
    fn reset(&self) {
        let _no_other_reset = self.recovery.lock();
        if self.failure.catch(|| self.adapter.reset()).is_some() {
            self.failure.clear();
        }
    }
}

impl Engine for Part {
    fn poll(&self, length: Duration) -> Polled {
        let HostedAdapter { adapter, failure, .. } = &*self.hosted;
        let polled = failure.contain(|| adapter.poll_for(self.worker, length));
        let polled = polled.unwrap_or_default();
        self.deadline.store(polled.deadline.map_or(u64::MAX, |at| at.0), Ordering::Relaxed);
        Polled { busy: polled.busy, spent: polled.spent }
    }

    fn set_asleep(&self, asleep: bool) {
        // Counted even if the adapter has failed, so that the count is right when the worker wakes.
        self.hosted.failure.catch(|| self.hosted.adapter.set_asleep(asleep));
    }

    fn has_work(&self) -> bool {
        let HostedAdapter { adapter, failure, .. } = &*self.hosted;
        failure.contain(|| adapter.has_work(self.worker)).unwrap_or(false)
    }

    fn deadline(&self) -> Option<Nanos> {
        Some(Nanos(self.deadline.load(Ordering::Relaxed))).filter(|at| at.0 != u64::MAX)
    }

    fn share(&self) -> Option<u32> {
        Some(self.hosted.share.load(Ordering::Relaxed))
    }
}

/// The part of an adapter that belongs to its server thread.
#[derive(Debug)]
pub struct AdapterDevice {
    hosted: Arc<HostedAdapter>,
    adapter: Arc<Adapter>,
    config: ConfigSpace,
    /// The MSI-X table as the VMM writes it. VMMs use a table of their own.
    msix_table: Box<[u8]>,
}

impl AdapterDevice {
    /// Creates the part that the VMM drives.
    #[must_use]
    pub fn new(hosted: &Arc<HostedAdapter>) -> Self {
        let table = vec![0; pci::MSIX_PART_LEN as usize].into_boxed_slice();
        let adapter = Arc::clone(&hosted.adapter);
        let hosted = Arc::clone(hosted);
        Self { hosted, adapter, config: ConfigSpace::new(), msix_table: table }
    }

    /// Resets the adapter, and takes all memory from it.
    fn stop(&self) {
        self.adapter.interrupt();
        // The QPs are reset first, so that requests of a peer find no QP instead of a QP without
        // memory.
        self.hosted.reset();
        self.set_bus_master(false);
        self.adapter.host().place_device_memory(None);
    }

    fn set_bus_master(&self, on: bool) {
        tracing::debug!(function = self.adapter.name(), on, "the guest switches bus mastering");
        self.adapter.host().dma.set_bus_master(on);
        self.adapter.host().irqs.set_bus_master(on);
    }

    /// Reads bytes of the MSI-X table and of the pending bits.
    fn read_msix(&self, offset: u64, into: &mut [u8]) {
        for (at, byte) in (offset - u64::from(pci::MSIX_TABLE_OFFSET)..).zip(into) {
            let table = usize::try_from(at).ok().and_then(|at| self.msix_table.get(at));
            let pba = at.saturating_sub(u64::from(pci::MSIX_PART_LEN));
            *byte = table.copied().unwrap_or_else(|| self.pending_byte(pba));
        }
    }

    /// Stores bytes in the MSI-X table. The pending bits do not change.
    fn write_msix(&mut self, offset: u64, from: &[u8]) {
        let start = offset - u64::from(pci::MSIX_TABLE_OFFSET);
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        if let Some(table) = self.msix_table.get_mut(start..) {
            table.iter_mut().zip(from).for_each(|(old, new)| *old = *new);
        }
    }

    /// Returns a byte of the pending bit array, in which bit n belongs to vector n.
    fn pending_byte(&self, index: u64) -> u8 {
        (0..8).fold(0, |byte, bit| {
            let vector = index.checked_mul(8).and_then(|first| u16::try_from(first + bit).ok());
            let pending = vector.is_some_and(|vector| self.adapter.host().irqs.pending(vector));
            byte | u8::from(pending) << bit
        })
    }
}

impl Device for AdapterDevice {
    fn connected(&mut self, connection: OwnedFd, messages: Arc<dyn Messages>) -> io::Result<File> {
        let file = self.adapter.host().uar.renew()?;
        self.adapter.restart_pace();
        let vmm = sys::peer(connection.as_fd()).map_or(0, NonZeroI32::get);
        self.hosted.vmm.store(vmm, Ordering::Relaxed);
        self.adapter.host().dma.connect(connection, messages);
        Ok(file)
    }

    fn read(&mut self, region: RegionId, offset: u64, into: &mut [u8]) {
        match region {
            RegionId::Config => self.config.read(offset, into),
            RegionId::Regs if in_msix(offset) => self.read_msix(offset, into),
            RegionId::Regs => match (<&mut [u8; 4]>::try_from(&mut *into), u32::try_from(offset)) {
                (Ok(word), Ok(offset)) if offset.is_multiple_of(4) => {
                    *word = self.hosted.register(offset).to_le_bytes();
                }
                _ => into.fill(0xff),
            },
            RegionId::Uar => {
                let part = self.adapter.host().uar.part(offset);
                if part.and_then(|(memory, at)| memory.read(at, into)).is_none() {
                    into.fill(0xff);
                }
            }
            RegionId::Window => self.hosted.read_window(offset, into),
        }
    }

    fn write(&mut self, region: RegionId, offset: u64, from: &[u8]) {
        match region {
            RegionId::Config => {
                let effects = self.config.write(offset, from);
                if effects.reset {
                    tracing::debug!(
                        function = self.adapter.name(),
                        "the guest asks for a function level reset"
                    );
                    self.config.reset_function();
                    self.stop();
                    return;
                }
                if let Some(bar) = effects.doorbells {
                    self.adapter.host().place_device_memory(bar);
                }
                if let Some(on) = effects.bus_master {
                    self.set_bus_master(on);
                }
            }
            RegionId::Regs if in_msix(offset) => self.write_msix(offset, from),
            RegionId::Regs => {
                let word = from.try_into().map(u32::from_le_bytes);
                match (word, u32::try_from(offset)) {
                    (Ok(value), Ok(offset)) if offset.is_multiple_of(4) => {
                        // An adapter that has failed is reset by a register, too.
                        let write = || self.adapter.write_register(offset, value);
                        if self.hosted.failure.catch(write) == Some(true) {
                            self.hosted.control.ask();
                        }
                    }
                    _ => self.adapter.core().warn(|name| {
                        let len = from.len();
                        tracing::warn!(
                            function = name,
                            "a write of {len} bytes to register {offset:#x} was ignored: registers have 4 bytes"
                        );
                    }),
                }
            }
            RegionId::Uar => {
                let part = self.adapter.host().uar.part(offset);
                let _inside = part.and_then(|(memory, at)| memory.write(at, from));
            }
            RegionId::Window => {
                self.hosted.failure.contain(|| self.adapter.store_in_window(offset, from));
            }
        }
    }

    fn dma_map(&mut self, range: DmaRange) -> Result<(), MapError> {
        self.adapter.host().dma.map(range)
    }

    fn dma_unmap(&mut self, range: Option<(u64, u64)>) -> Result<(), MapError> {
        match range {
            Some((iova, size)) => self.adapter.host().dma.unmap(iova, size),
            None => {
                self.adapter.host().dma.unmap_all();
                Ok(())
            }
        }
    }

    fn set_irqs(&mut self, start: u32, count: u32, request: IrqRequest) -> Result<(), IrqError> {
        let irqs = &self.adapter.host().irqs;
        match request {
            IrqRequest::Assign(fds) => irqs.assign(start, count, fds),
            IrqRequest::Trigger => irqs.trigger(start, count),
            IrqRequest::Mask => irqs.mask(start, count, true),
            IrqRequest::Unmask => irqs.mask(start, count, false),
            IrqRequest::Disable => {
                irqs.clear();
                Ok(())
            }
        }
    }

    fn reset(&mut self) {
        self.config.reset();
        self.stop();
    }

    fn disconnected(&mut self) {
        self.hosted.vmm.store(0, Ordering::Relaxed);
        self.reset();
        self.adapter.host().irqs.clear();
        self.adapter.host().dma.disconnect();
    }
}

#[cfg(test)]
mod tests;
