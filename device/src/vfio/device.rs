//! The device behind a vfio-user server. Everything that a VMM can ask for passes here.

use std::fs::File;
use std::io;

use crate::irq::IrqError;
use crate::memory::dma::DmaRange;
use crate::memory::fault::MapError;

/// Regions that an adapter offers, by their vfio numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionId {
    /// BAR0.
    Regs,
    /// BAR2.
    Uar,
    /// BAR4.
    Msix,
    /// Configuration space.
    Config,
}

/// The action of SET_IRQS.
#[derive(Debug)]
pub enum IrqRequest {
    /// Give these eventfds to the vectors, or take theirs away when there are none.
    Assign(Vec<File>),
    /// Raise the vectors.
    Trigger,
    /// Hold the vectors back.
    Mask,
    /// Let the vectors go.
    Unmask,
    /// Take all eventfds away.
    Disable,
}

/// An adapter as the VMM drives it. All calls come from one thread and return at once,
/// but for reads of the window ([`vrnic_abi::direct`]), which wait for data for a bounded time.
pub trait Device: Send {
    /// A VMM has come. Returns the file of BAR2's memory, made anew: the VMM before may still map
    /// the old one.
    ///
    /// # Errors
    /// Returns the kernel's error; the VMM cannot be served then.
    fn connected(&mut self) -> io::Result<File>;

    /// Reads a region. An access that the adapter does not define reads as ones.
    fn read(&mut self, region: RegionId, offset: u64, into: &mut [u8]);

    /// Writes a region. An access that the adapter does not define is ignored.
    fn write(&mut self, region: RegionId, offset: u64, from: &[u8]);

    /// Makes guest memory reachable.
    ///
    /// # Errors
    /// See [`MapError`].
    fn dma_map(&mut self, range: DmaRange) -> Result<(), MapError>;

    /// Takes guest memory away; `None` means all of it. On return nothing uses it any more.
    ///
    /// # Errors
    /// See [`MapError`].
    fn dma_unmap(&mut self, range: Option<(u64, u64)>) -> Result<(), MapError>;

    /// Changes `count` MSI-X vectors from `start` on.
    ///
    /// # Errors
    /// See [`IrqError`].
    fn set_irqs(&mut self, start: u32, count: u32, request: IrqRequest) -> Result<(), IrqError>;

    /// Resets the adapter, as at power-on; memory and interrupts stay assigned.
    fn reset(&mut self);

    /// The VMM has gone: reset, and forget its memory and interrupts.
    fn disconnected(&mut self);
}
