//! The connection to an adapter.

use crate::memory::{Memory, Ram};

/// The connection to an adapter: its registers, and the memory that it shares.
pub trait Bus: Send + Sync + 'static {
    /// Returns guest memory.
    fn ram(&self) -> &Ram;

    /// Returns BAR2, the memory of doorbells.
    fn bar(&self) -> &Memory;

    /// Returns the MAC of the adapter.
    fn mac(&self) -> [u8; 6];

    /// Reads the register at a byte offset in BAR0.
    fn read_register(&self, offset: u32) -> u32;

    /// Writes the register at a byte offset in BAR0.
    fn write_register(&self, offset: u32, value: u32);

    /// Lets the adapter access memory and raise interrupts, if a PCI command register controls
    /// this.
    fn enable_dma(&self) {}
}
