//! The interface between the vfio-user server and an adapter. All requests of a VMM pass through
//! it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::host::irq::IrqError;
use crate::memory::fault::MapError;
use crate::memory::messages::Messages;
use crate::memory::range::DmaRange;

/// Regions that an adapter offers, by their vfio numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionId {
    /// BAR0.
    Regs,
    /// BAR2.
    Uar,
    /// BAR4.
    Window,
    /// Configuration space.
    Config,
}

/// The action of SET_IRQS.
#[derive(Debug)]
pub enum IrqRequest {
    /// Assign these eventfds to the vectors, or remove theirs if the list is empty.
    Assign(Vec<File>),
    /// Raise the vectors.
    Trigger,
    /// Mask the vectors.
    Mask,
    /// Unmask the vectors.
    Unmask,
    /// Remove all eventfds.
    Disable,
}

/// An adapter as the VMM drives it. All calls come from one thread and return at once, except reads
/// of the window ([`vrnic_abi::direct`]), which wait for data for a bounded time.
pub trait Device: Send {
    /// Handles a new VMM, whose connection this is. `messages` reads and writes memory of its guest
    /// by messages to the VMM on this connection. Returns the file of BAR2's memory, which is
    /// newly allocated because the previous VMM may still map the old memory.
    ///
    /// # Errors
    /// Returns the kernel's error. The VMM cannot be served in this case.
    fn connected(&mut self, connection: OwnedFd, messages: Arc<dyn Messages>) -> io::Result<File>;

    /// Reads a region. Returns ones if the adapter does not define the access.
    fn read(&mut self, region: RegionId, offset: u64, into: &mut [u8]);

    /// Writes to a region. Does nothing if the adapter does not define the access.
    fn write(&mut self, region: RegionId, offset: u64, from: &[u8]);

    /// Makes guest memory accessible.
    ///
    /// # Errors
    /// See [`MapError`].
    fn dma_map(&mut self, range: DmaRange) -> Result<(), MapError>;

    /// Removes guest memory; `None` means all of it. On return no thread uses it any more.
    ///
    /// # Errors
    /// See [`MapError`].
    fn dma_unmap(&mut self, range: Option<(u64, u64)>) -> Result<(), MapError>;

    /// Changes `count` MSI-X vectors from `start` on.
    ///
    /// # Errors
    /// See [`IrqError`].
    fn set_irqs(&mut self, start: u32, count: u32, request: IrqRequest) -> Result<(), IrqError>;

    /// Resets the adapter to its state after power-on. Memory and interrupts stay assigned.
    fn reset(&mut self);

    /// Handles the end of a VMM's connection: resets the adapter, and removes its memory and
    /// interrupts.
    fn disconnected(&mut self);
}
