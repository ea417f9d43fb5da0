// SPDX-License-Identifier: GPL-2.0
//! Driver of the vrnic RDMA adapter.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`probe`] | the PCI driver: probing and unbinding |
//! | [`recovery`] | brings the adapter up, again after it has died, and registers its verbs |
//! | [`adapter`] | the adapter as a whole: its bring-up, and the functions that the verbs need |
//! | [`hw`] | registers, doorbells, rings, admin queue, interrupts |
//! | [`events`], [`listeners`] | handlers of interrupts; the objects that they report events to |
//! | [`comp_vectors`] | completion vectors, their processors, and the choice among them |
//! | [`health`] | watches the adapter's heartbeat |
//! | [`quiesce`] | stops the adapter when it dies or is released |
//! | [`iwarp`] | connections of iWARP adapters, by sockets of the kernel |
//! | [`pairing`] | keeps the port paired with the Ethernet device of its MAC |
//! | [`port_link`] | the link of the adapter's own port |
//! | [`stations`] | RDMA devices of an iWARP adapter for macvlan devices, bridges and bonds |
//! | [`workqueue`] | workqueues of the driver's own |
//! | [`debugfs`] | files that show what the driver and the adapter know of each object |
//! | [`paging`] | what regions share whose pages come and go |
//! | [`verbs`] | verbs translated into admin commands and queue entries |
//! | [`rdma`] | abstractions over the RDMA core |
//! | [`exports`] | the functions of `direct.h` |
//! | [`adapter_memory`] | memory of the adapter with page structs: the window, device memory |
//! | `direct` | direct transfers and direct verbs |
//! | [`methods`] | methods for the provider that the core does not have |
//! | [`bindings`] | C entities that the kernel's own bindings lack |
//!
//! `unsafe` is confined to [`rdma`] and to [`hw::irq`], [`hw::p2p`], [`hw::pci`], [`hw::uar`],
//! [`comp_vectors::cpuhp`], [`debugfs::permission`], [`direct::work`], [`exports`],
//! [`iwarp::socket`], [`methods`], [`pairing`], [`probe`], [`recovery`] and [`workqueue`].

extern crate vrnic_abi as abi;

use kernel::{driver, prelude::*};

use crate::{comp_vectors::cpuhp::Hotplug, rdma::memory::fault::FaultQueues};

mod adapter;
mod adapter_memory;
mod bindings;
mod comp_vectors;
mod debugfs;
mod direct;
mod events;
mod exports;
mod health;
mod hw;
mod iwarp;
mod listeners;
mod methods;
mod paging;
mod pairing;
mod port_link;
mod probe;
mod quiesce;
mod rdma;
mod recovery;
mod stations;
mod verbs;
mod workqueue;

/// The module: what its devices share, and their driver.
#[pin_data]
struct Module {
    // Dropped first. This removes all devices.
    #[pin]
    _driver: driver::Registration<kernel::pci::Adapter<probe::Driver>>,
    _hotplug: Hotplug,
    _faults: FaultQueues,
}

impl kernel::InPlaceModule for Module {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        // Fields are initialised in this order.
        try_pin_init!(Self {
            _faults: FaultQueues::new()?,
            _hotplug: Hotplug::new()?,
            _driver <- driver::Registration::new(<Self as kernel::ModuleMetadata>::NAME, module),
        })
    }
}

module! {
    type: Module,
    name: "vrnic",
    authors: ["vrnic"],
    description: "vrnic RDMA adapter",
    license: "GPL v2",
    params: {
        part_id: u32 {
            default: 0x524e,
            description: "Part number that verbs report. Programs that choose settings by part number, as \
perftest does for inline data, then treat the adapter as the one with that number",
        },
        comp_vectors: u32 {
            default: 0,
            description: "Largest number of completion vectors; 0 means one for each possible CPU",
        },
        balance: u32 {
            default: 0,
            description: "How the driver chooses a completion vector for a CQ whose creator leaves the choice to it. 0: the vector with the fewest recent events; 1: each vector in turn",
        },
    },
}
