// SPDX-License-Identifier: GPL-2.0
//! Registers, rings and interrupts: the things that the driver shares with the hardware.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`pci`] | functions of PCI devices that the kernel crate lacks |
//! | [`regs`], [`uar`] | registers and doorbells |
//! | [`ring`] | rings in memory |
//! | [`admin`] | admin commands |
//! | [`eq`], [`irq`] | event queues and interrupts |

pub(crate) mod admin;
pub(crate) mod eq;
pub(crate) mod irq;
pub(crate) mod pci;
pub(crate) mod regs;
pub(crate) mod ring;
pub(crate) mod uar;
