// SPDX-License-Identifier: GPL-2.0 OR MIT
//! PCI identity and the layout of the BARs.

/// Vendor id (the one that QEMU uses for experimental devices).
pub const VENDOR_ID: u16 = 0x1234;
/// Device id, "RN".
pub const DEVICE_ID: u16 = 0x524e;
/// Subsystem id.
pub const SUBSYSTEM_ID: u16 = 0x0001;
/// Class code 02h (network controller), subclass 07h (InfiniBand), interface 00h.
pub const CLASS_CODE: u32 = 0x0002_0700;

/// BAR of the trapped registers ([`crate::regs`]) and the trapped window ([`crate::direct`]);
/// 64 bits, not prefetchable.
pub const BAR_REGS: u32 = 0;
/// BAR of doorbells, device-resident queues and device memory ([`crate::uar`]); 64 bits,
/// prefetchable, backed by memory that the guest accesses without a trap.
pub const BAR_UAR: u32 = 2;
/// BAR of the MSI-X table and pending bits; 64 bits, trapped.
pub const BAR_MSIX: u32 = 4;

/// Length of [`BAR_REGS`] in bytes.
pub const BAR_REGS_LEN: u64 = 256 << 10;
/// Length of [`BAR_UAR`] in bytes.
pub const BAR_UAR_LEN: u64 = 256 << 20;
/// Length of [`BAR_MSIX`] in bytes.
pub const BAR_MSIX_LEN: u64 = 0x2000;

/// MSI-X vectors: one for admin completions and asynchronous events, 64 for completion event
/// queues.
pub const MSIX_VECTORS: u16 = 65;
/// Offset of the MSI-X table in [`BAR_MSIX`].
pub const MSIX_TABLE_OFFSET: u32 = 0;
/// Offset of the MSI-X pending bits in [`BAR_MSIX`].
pub const MSIX_PBA_OFFSET: u32 = 0x1000;
/// The vector of admin completions and asynchronous events.
pub const VECTOR_ASYNC: u16 = 0;

const _: () = assert!(BAR_UAR_LEN.is_power_of_two() && BAR_REGS_LEN.is_power_of_two());
const _: () = assert!(MSIX_VECTORS as u32 * 16 <= MSIX_PBA_OFFSET);
