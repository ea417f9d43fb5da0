// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The programming interface of the vrnic adapter: all data that both the guest and the adapter
//! access. The daemon, the kernel module and the libibverbs plugin compile this source, so there is
//! no second definition.
//!
//! | module | what it defines |
//! | --- | --- |
//! | [`pci`] | identity, BARs, MSI-X |
//! | [`regs`] | BAR0: trapped registers and the kick page |
//! | [`uar`] | BAR2: doorbell pages and the memory of device-resident send queues |
//! | [`doorbell`] | the addresses and words of doorbells |
//! | [`sq`], [`rq`] | work queue entries and the geometry of their rings |
//! | [`cq`] | completion queue entries and statuses |
//! | [`eq`] | event queue entries |
//! | [`admin`] | admin commands, parameters, results and statuses |
//! | [`qp`] | QP states, attributes and the address vector |
//! | [`direct`] | the window of BAR0 for direct transfers, and its address ranges |
//! | [`flow`] | rules for the frames that QPs of raw packets receive |
//! | [`rss`] | how a QP of raw packets spreads them over others |
//! | [`connection`] | TCP connections that the adapter takes over |
//! | [`iscsi`] | the iSCSI mode of such connections |
//! | [`uverbs`] | private payloads between provider and kernel module |
//! | `wire` | the macro that declares enums |
//! | `number` | types for numbers of objects, for keys and for addresses |
//!
//! Conventions: all integers are little-endian, and all structs are packed without implicit
//! padding, so that each derives zerocopy's traits. Reserved fields are written as zero; admin
//! commands with other values are refused. Ring indices are free-running 32-bit counters: entry `i`
//! is at slot `i mod size`, and sizes are powers of two. Entries that the device writes into a ring
//! have a *stamp*, `i + 1` (mod 2^32), which is stored last. An entry is valid if its stamp is the
//! one that the reader waits for, whatever an earlier round left in its place.
//!
//! The crate contains no logic except arithmetic on these formats.
#![forbid(unsafe_code)]
#![no_std]

#[macro_use]
mod wire;

pub mod admin;
pub mod connection;
pub mod cq;
pub mod direct;
pub mod doorbell;
pub mod eq;
pub mod flow;
pub mod iscsi;
mod number;
pub mod pci;
pub mod qp;
pub mod regs;
pub mod rq;
pub mod rss;
pub mod sq;
pub mod uar;
pub mod uverbs;

pub use number::{
    ContextId, CountersId, Cqn, Eqn, FlowId, GuestAddr, Key, Pdn, Qpn, RangeNumber, SlotIndex,
    Srqn, UarIndex, Xrcdn,
};

/// Version of the register, queue and command formats (major in the upper half). A driver
/// refuses a device whose major number it does not know; minor numbers only add.
pub const ABI_VERSION: u32 = 0x0003_0000;

/// Version of [`uverbs`], reported as `uverbs_abi_ver`.
pub const UVERBS_ABI_VERSION: u32 = 1;

/// `rdma_driver_id` that the kernel module registers and the provider matches
/// (`enum rdma_driver_id` in include/uapi/rdma/ib_user_ioctl_verbs.h is not range-checked;
/// this private number, "vrni", stays clear of it).
pub const RDMA_DRIVER_ID: u32 = 0x7672_6e69;

/// Returns the stamp of ring entry `index`; see the conventions of the crate.
#[inline]
#[must_use]
pub const fn stamp(index: u32) -> u32 {
    index.wrapping_add(1)
}
