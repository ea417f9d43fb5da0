//! A function: an adapter with its PCI face, as a VMM drives it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi::pci;
use vrnic_adapter::fabric::Fabric;

use crate::control::Asker;
use crate::irq::{Interrupts, IrqError};
use crate::memory::dma::{DmaRange, DmaTable, MapError};
use crate::memory::uar::UarMemory;
use crate::net::mac::MacAddr;
use crate::pci::config::ConfigSpace;
use crate::surroundings::Surroundings;
use crate::vfio::device::{Device, IrqRequest, RegionId};
use crate::worker::bell::Bell;
use crate::worker::engine::Engine;

/// The adapter model in this process's surroundings.
pub type Adapter = vrnic_adapter::function::Function<Surroundings>;

/// A function, shared by its server, the workers and housekeeping.
#[derive(Debug)]
pub struct Function {
    adapter: Arc<Adapter>,
    /// When to poll again though nothing rings; `u64::MAX` for never.
    deadline: AtomicU64,
}

impl Function {
    /// A function after power-on, polled by the worker with this bell.
    ///
    /// # Errors
    /// When its doorbell memory cannot be had.
    pub fn new(
        name: &str,
        mac: MacAddr,
        bell: Arc<Bell>,
        fabric: &Arc<Fabric<Surroundings>>,
    ) -> io::Result<Self> {
        let surroundings = Surroundings {
            dma: Arc::new(DmaTable::new(name)),
            uar: Arc::new(UarMemory::new(name)?),
            irqs: Arc::new(Interrupts::new()),
            bell,
        };
        let adapter = Adapter::new(name, mac.0, surroundings, fabric);
        Ok(Self { adapter, deadline: AtomicU64::new(u64::MAX) })
    }

    /// The adapter.
    #[must_use]
    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// The doorbell memory.
    #[must_use]
    pub fn uar(&self) -> &UarMemory {
        &self.adapter.host().uar
    }

    /// The Ethernet port's link has changed.
    pub fn set_link(&self, up: bool) {
        self.adapter.set_link(up);
    }

    /// Steps the heartbeat.
    pub fn beat(&self) {
        self.adapter.beat();
    }
}

impl Engine for Function {
    fn poll(&self, _now: u64) -> bool {
        let polled = self.adapter.poll();
        self.deadline.store(polled.deadline.unwrap_or(u64::MAX), Ordering::Relaxed);
        polled.busy
    }

    fn arm(&self, armed: bool) {
        self.adapter.set_armed(armed);
    }

    fn has_work(&self) -> bool {
        self.adapter.has_work()
    }

    fn deadline(&self) -> Option<u64> {
        Some(self.deadline.load(Ordering::Relaxed)).filter(|at| *at != u64::MAX)
    }
}

/// The part of a function that belongs to its server thread.
#[derive(Debug)]
pub struct FunctionDevice {
    adapter: Arc<Adapter>,
    control: Asker,
    config: ConfigSpace,
    /// The MSI-X table as written; VMMs keep their own.
    msix_table: Box<[u8]>,
}

impl FunctionDevice {
    /// The VMM's side of `function`.
    #[must_use]
    pub fn new(function: &Function, control: Asker) -> Self {
        let table = vec![0; pci::MSIX_PBA_OFFSET as usize].into_boxed_slice();
        let adapter = Arc::clone(&function.adapter);
        Self { adapter, control, config: ConfigSpace::new(), msix_table: table }
    }

    fn set_bus_master(&self, on: bool) {
        self.adapter.host().dma.set_bus_master(on);
        self.adapter.host().irqs.set_bus_master(on);
    }

    /// The pending bit array: vector n in bit n.
    fn pending_byte(&self, index: u64) -> u8 {
        (0..8).fold(0, |byte, bit| {
            let vector = index.checked_mul(8).and_then(|first| u16::try_from(first + bit).ok());
            let pending = vector.is_some_and(|vector| self.adapter.host().irqs.pending(vector));
            byte | u8::from(pending) << bit
        })
    }
}

impl Device for FunctionDevice {
    fn read(&mut self, region: RegionId, offset: u64, into: &mut [u8]) {
        match region {
            RegionId::Config => self.config.read(offset, into),
            RegionId::Regs => match (<&mut [u8; 4]>::try_from(&mut *into), u32::try_from(offset)) {
                (Ok(word), Ok(offset)) if offset.is_multiple_of(4) => {
                    *word = self.adapter.read_register(offset).to_le_bytes();
                }
                _ => into.fill(0xff),
            },
            RegionId::Uar => {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                if self.adapter.host().uar.memory().read(offset, into).is_none() {
                    into.fill(0xff);
                }
            }
            RegionId::Msix => {
                for (at, byte) in (offset..).zip(into) {
                    let table = usize::try_from(at).ok().and_then(|at| self.msix_table.get(at));
                    let pba = at.saturating_sub(u64::from(pci::MSIX_PBA_OFFSET));
                    *byte = table.copied().unwrap_or_else(|| self.pending_byte(pba));
                }
            }
        }
    }

    fn write(&mut self, region: RegionId, offset: u64, from: &[u8]) {
        match region {
            RegionId::Config => {
                let effects = self.config.write(offset, from);
                if effects.reset {
                    tracing::debug!(function = self.adapter.name(), "function level reset");
                    self.reset();
                } else if let Some(on) = effects.bus_master {
                    self.set_bus_master(on);
                }
            }
            RegionId::Regs => {
                let word = from.try_into().map(u32::from_le_bytes);
                match (word, u32::try_from(offset)) {
                    (Ok(value), Ok(offset)) if offset.is_multiple_of(4) => {
                        if self.adapter.write_register(offset, value) {
                            self.control.ask();
                        }
                    }
                    _ => self.adapter.warn(|name| {
                        let len = from.len();
                        tracing::warn!(
                            function = name,
                            "write of {len} bytes to {offset:#x} ignored"
                        );
                    }),
                }
            }
            RegionId::Uar => {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                let _inside = self.adapter.host().uar.memory().write(offset, from);
            }
            RegionId::Msix => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                if let Some(table) = self.msix_table.get_mut(start..) {
                    table.iter_mut().zip(from).for_each(|(old, new)| *old = *new);
                }
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
        self.set_bus_master(false);
        self.adapter.reset();
    }

    fn disconnected(&mut self) {
        self.reset();
        self.adapter.host().irqs.clear();
        self.adapter.host().dma.unmap_all();
    }
}
