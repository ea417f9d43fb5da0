//! A function: an adapter with its PCI face, as a VMM drives it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use vrnic_abi::{pci, regs, uar};

use crate::irq::{Interrupts, IrqError};
use crate::memory::dma::{DmaRange, DmaTable, MapError};
use crate::memory::uar::UarMemory;
use crate::net::mac::MacAddr;
use crate::pci::config::ConfigSpace;
use crate::vfio::device::{Device, IrqRequest, RegionId};

/// A function, shared by its server, the workers and housekeeping.
#[derive(Debug)]
pub struct Function {
    name: String,
    mac: MacAddr,
    dma: Arc<DmaTable>,
    uar: Arc<UarMemory>,
    irqs: Arc<Interrupts>,
    link: AtomicBool,
    heartbeat: AtomicU32,
}

impl Function {
    /// A function after power-on.
    ///
    /// # Errors
    /// When its doorbell memory cannot be had.
    pub fn new(name: String, mac: MacAddr) -> io::Result<Self> {
        Ok(Self {
            dma: Arc::new(DmaTable::new(&name)),
            uar: Arc::new(UarMemory::new(&name)?),
            irqs: Arc::new(Interrupts::new()),
            name,
            mac,
            link: AtomicBool::new(false),
            heartbeat: AtomicU32::new(0),
        })
    }

    /// The doorbell memory.
    #[must_use]
    pub fn uar(&self) -> &UarMemory {
        &self.uar
    }

    /// The Ethernet port's link has changed.
    pub fn set_link(&self, up: bool) {
        self.link.store(up, Ordering::SeqCst);
    }

    /// Steps the heartbeat.
    pub fn beat(&self) {
        let beat = self.heartbeat.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if let Some(word) = self.uar.memory().word64(uar::HEARTBEAT_OFFSET as usize) {
            let _stored = word.store(u64::from(beat), Ordering::Release);
        }
    }

    fn register(&self, offset: u32) -> u32 {
        let [a, b, c, d, e, f] = self.mac.0;
        match offset {
            regs::MAGIC => regs::MAGIC_VALUE,
            regs::VERSION => vrnic_abi::ABI_VERSION,
            regs::HEARTBEAT => self.heartbeat.load(Ordering::Relaxed),
            regs::MAC_LO => u32::from_le_bytes([a, b, c, d]),
            regs::MAC_HI => u32::from_le_bytes([e, f, 0, 0]),
            _ => 0,
        }
    }
}

/// The part of a function that belongs to its server thread.
#[derive(Debug)]
pub struct FunctionDevice {
    function: Arc<Function>,
    config: ConfigSpace,
    /// The MSI-X table as written; VMMs keep their own.
    msix_table: Box<[u8]>,
}

impl FunctionDevice {
    /// The VMM's side of `function`.
    #[must_use]
    pub fn new(function: Arc<Function>) -> Self {
        let table = vec![0; pci::MSIX_PBA_OFFSET as usize].into_boxed_slice();
        Self { function, config: ConfigSpace::new(), msix_table: table }
    }

    fn set_bus_master(&self, on: bool) {
        self.function.dma.set_bus_master(on);
        self.function.irqs.set_bus_master(on);
    }

    /// The pending bit array: vector n in bit n.
    fn pending_byte(&self, index: u64) -> u8 {
        (0..8).fold(0, |byte, bit| {
            let vector = index.checked_mul(8).and_then(|first| u16::try_from(first + bit).ok());
            let pending = vector.is_some_and(|vector| self.function.irqs.pending(vector));
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
                    *word = self.function.register(offset).to_le_bytes();
                }
                _ => into.fill(0xff),
            },
            RegionId::Uar => {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                if self.function.uar.memory().read(offset, into).is_none() {
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
                    tracing::info!(function = self.function.name, "function level reset");
                    self.config.reset();
                    self.reset();
                } else if let Some(on) = effects.bus_master {
                    self.set_bus_master(on);
                }
            }
            RegionId::Regs => {}
            RegionId::Uar => {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                let _inside = self.function.uar.memory().write(offset, from);
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
        self.function.dma.map(range)
    }

    fn dma_unmap(&mut self, range: Option<(u64, u64)>) -> Result<(), MapError> {
        match range {
            Some((iova, size)) => self.function.dma.unmap(iova, size),
            None => {
                self.function.dma.unmap_all();
                Ok(())
            }
        }
    }

    fn set_irqs(&mut self, start: u32, count: u32, request: IrqRequest) -> Result<(), IrqError> {
        let irqs = &self.function.irqs;
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
    }

    fn disconnected(&mut self) {
        self.reset();
        self.function.irqs.clear();
        self.function.dma.unmap_all();
    }
}
