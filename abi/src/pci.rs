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

/// BAR of the trapped registers ([`crate::regs`]), and of the MSI-X table and pending bits; 64
/// bits, not prefetchable.
pub const BAR_REGS: u32 = 0;
/// BAR of doorbells, device-resident queues and device memory ([`crate::uar`]); 64 bits,
/// prefetchable, backed by memory that the guest accesses without a trap.
pub const BAR_UAR: u32 = 2;
/// BAR of the trapped window of direct transfers ([`crate::direct`]); 64 bits, prefetchable, so
/// that it is in the same part of a bridge's address space as [`BAR_UAR`].
pub const BAR_WINDOW: u32 = 4;

/// Length of [`BAR_REGS`] in bytes.
pub const BAR_REGS_LEN: u64 = 128 << 10;
/// Length of [`BAR_UAR`] in bytes.
pub const BAR_UAR_LEN: u64 = 256 << 20;
/// Length of [`BAR_WINDOW`] in bytes: the unit in which Linux makes page structs for memory of a
/// device (`SUBSECTION_SHIFT`).
pub const BAR_WINDOW_LEN: u64 = 2 << 20;

/// MSI-X vectors: one for admin completions and asynchronous events, 64 for completion event
/// queues.
pub const MSIX_VECTORS: u16 = 65;
/// Offset of the MSI-X table in [`BAR_REGS`].
pub const MSIX_TABLE_OFFSET: u32 = 0x1_0000;
/// Offset of the MSI-X pending bits in [`BAR_REGS`].
pub const MSIX_PBA_OFFSET: u32 = MSIX_TABLE_OFFSET + MSIX_PART_LEN;
/// Length of the part of the MSI-X table, and of that of the pending bits, in bytes: a page.
pub const MSIX_PART_LEN: u32 = 0x1000;
/// The vector of admin completions and asynchronous events.
pub const VECTOR_ASYNC: u16 = 0;

const _: () = assert!(BAR_UAR_LEN.is_power_of_two() && BAR_REGS_LEN.is_power_of_two());
const _: () = assert!(MSIX_VECTORS as u32 * 16 <= MSIX_PART_LEN);
const _: () = assert!((MSIX_PBA_OFFSET + MSIX_PART_LEN) as u64 <= BAR_REGS_LEN);
const _: () = assert!(BAR_WINDOW_LEN.is_power_of_two());
