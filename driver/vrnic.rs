// SPDX-License-Identifier: GPL-2.0
//! Driver of the vrnic RDMA adapter.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`pci`] | probes: brings the adapter up and registers its verbs |
//! | [`nic`] | the adapter as one thing: bring-up, reset, what verbs need of it |
//! | [`regs`], [`uar`] | registers and doorbells |
//! | [`admin`] | admin commands |
//! | [`eq`], [`events`], [`irq`] | event queues, who hears of them, interrupts |
//! | [`health`] | watches the adapter's heartbeat |
//! | [`life`] | what happens when the adapter dies or is let go |
//! | [`ring`] | rings in memory |
//! | [`verbs`] | verbs translated into admin commands and queue entries |
//! | [`rdma`] | abstractions over the RDMA core, the one place with bindings of it |
//!
//! `unsafe` is confined to [`rdma`] and to [`pci`], [`irq`], [`life`] and [`uar`].

extern crate vrnic_abi as abi;

mod admin;
mod eq;
mod events;
mod health;
mod irq;
mod life;
mod nic;
mod pci;
mod rdma;
mod regs;
mod ring;
mod uar;
mod verbs;

kernel::module_pci_driver! {
    type: pci::Driver,
    name: "vrnic",
    authors: ["vrnic"],
    description: "vrnic RDMA adapter",
    license: "GPL v2",
    params: {
        part_id: u32 {
            default: 0x524e,
            description: "Part number that verbs report. Programs that know adapters by their number, as \
perftest does for inline data, take this one for another adapter if told so",
        },
    },
}
