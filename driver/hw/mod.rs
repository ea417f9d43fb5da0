// SPDX-License-Identifier: GPL-2.0
//! Registers, rings and interrupts: the interface between the driver and the hardware.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`pci`] | functions of PCI devices that the kernel crate lacks |
//! | [`p2p`] | the part of a BAR that the kernel gives out to devices and programs |
//! | [`regs`], [`uar`] | registers and doorbells |
//! | [`ring`] | rings in memory |
//! | [`admin`] | admin commands |
//! | [`eq`], [`irq`] | event queues and interrupts |
//! | [`turns`] | turns of threads that take what an adapter adds |

pub(crate) mod admin;
pub(crate) mod eq;
pub(crate) mod irq;
pub(crate) mod p2p;
pub(crate) mod pci;
pub(crate) mod regs;
pub(crate) mod ring;
pub(crate) mod turns;
pub(crate) mod uar;
