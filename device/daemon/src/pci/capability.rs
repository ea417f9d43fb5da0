//! The capabilities in configuration space (PCI Local Bus 3.0 section 6.8.2, PCI Express Base 5.0
//! section 7.5): each is a list of bytes and of the bits that a guest may write.

use vrnic_abi::pci::{BAR_REGS, MSIX_PBA_OFFSET, MSIX_TABLE_OFFSET, MSIX_VECTORS};

/// Offset of the power management capability.
pub const PM: u16 = 0x40;
/// Offset of the MSI-X capability.
pub const MSIX: u16 = 0x50;
/// Offset of the PCI Express capability.
pub const EXPRESS: u16 = 0x60;
/// Offset of the Device Control register in the Express capability.
pub const EXPRESS_DEVCTL: u16 = EXPRESS + 0x08;
/// Device Control: initiate function level reset; reads zero.
pub const DEVCTL_FLR: u16 = 1 << 15;

/// Power management, version 3: D0 and D3hot, state kept on the way back to D0.
const PM_ID: u8 = 0x01;
const PM_CAPS: u16 = 0x0003;
const PM_CSR_NO_SOFT_RESET: u16 = 1 << 3;
const PM_CSR_STATE: u16 = 0x3;

const MSIX_ID: u8 = 0x11;
/// Enable and function mask.
const MSIX_CONTROL_WRITABLE: u16 = 0xc000;

const EXPRESS_ID: u8 = 0x10;
/// Version 2, type 0: endpoint.
const EXPRESS_FLAGS: u16 = 0x0002;
/// Payload 256 bytes, extended tags, role-based error reporting, function level reset.
const DEVCAP: u32 = 0x0000_0001 | 1 << 5 | 1 << 15 | 1 << 28;
/// Error reporting enables, relaxed ordering, payload size, extended tags, no-snoop, read request
/// size.
const DEVCTL_WRITABLE: u16 = 0x7fff;
/// Device Control after a reset: relaxed ordering, no-snoop, read requests of 512 bytes.
const DEVCTL_RESET: u16 = 0x2810;
/// 16 GT/s, 16 lanes.
const LINK: u16 = 0x0104;
/// Completion time-out ranges and disable.
const DEVCAP2: u32 = 0x0000_001f;
/// Completion time-out value and disable.
const DEVCTL2_WRITABLE: u16 = 0x001f;
/// Link speeds up to 16 GT/s.
const LINKCAP2: u32 = 0x0000_001e;

/// A capability: where it starts, its bytes from the id on, and the writable bits of each.
#[derive(Debug)]
pub struct Capability {
    /// Offset in configuration space.
    pub offset: u16,
    /// Contents; the `next` byte is filled in by the list.
    pub bytes: Vec<u8>,
    /// Bits that a write changes.
    pub writable: Vec<u8>,
}

/// Returns all capabilities, in list order.
#[must_use]
pub fn all() -> Vec<Capability> {
    vec![power_management(), msix(), express()]
}

/// Assembles a capability from fields.
#[derive(Default)]
struct Builder {
    bytes: Vec<u8>,
    writable: Vec<u8>,
}

impl Builder {
    fn u16(mut self, value: u16, writable: u16) -> Self {
        self.bytes.extend(value.to_le_bytes());
        self.writable.extend(writable.to_le_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.bytes.extend(value.to_le_bytes());
        self.writable.extend(0u32.to_le_bytes());
        self
    }

    fn at(self, offset: u16) -> Capability {
        Capability { offset, bytes: self.bytes, writable: self.writable }
    }
}

fn power_management() -> Capability {
    Builder::default()
        .u16(u16::from(PM_ID), 0)
        .u16(PM_CAPS, 0)
        .u16(PM_CSR_NO_SOFT_RESET, PM_CSR_STATE)
        .u16(0, 0)
        .at(PM)
}

fn msix() -> Capability {
    Builder::default()
        .u16(u16::from(MSIX_ID), 0)
        .u16(MSIX_VECTORS - 1, MSIX_CONTROL_WRITABLE)
        .u32(MSIX_TABLE_OFFSET | BAR_REGS)
        .u32(MSIX_PBA_OFFSET | BAR_REGS)
        .at(MSIX)
}

fn express() -> Capability {
    Builder::default()
        .u16(u16::from(EXPRESS_ID), 0)
        .u16(EXPRESS_FLAGS, 0)
        .u32(DEVCAP)
        .u16(DEVCTL_RESET, DEVCTL_WRITABLE)
        .u16(0, 0) // Device Status
        .u32(u32::from(LINK)) // Link Capabilities
        .u16(0, 0x01fb) // Link Control
        .u16(LINK, 0) // Link Status
        .u32(0) // Slot Capabilities
        .u32(0) // Slot Control, Status
        .u32(0) // Root Control, Capabilities
        .u32(0) // Root Status
        .u32(DEVCAP2)
        .u16(0, DEVCTL2_WRITABLE)
        .u16(0, 0) // Device Status 2
        .u32(LINKCAP2)
        .u16(0x0004, 0x000f) // Link Control 2: target speed
        .u16(0, 0) // Link Status 2
        .u32(0) // Slot Capabilities 2
        .u32(0) // Slot Control 2, Status 2
        .at(EXPRESS)
}
