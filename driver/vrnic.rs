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
//! | [`handlers`], [`balance`], [`tree`] | completion event handlers and their processors, who gets which, and who has which |
//! | [`inspect`], [`listing`], [`debug`] | what the adapter knows of its objects, and the debugfs files that show it |
//! | [`health`] | watches the adapter's heartbeat |
//! | [`life`] | what happens when the adapter dies or is let go |
//! | [`recovery`], [`queue`] | brings the adapter up, and up again; workqueues |
//! | [`ring`] | rings in memory |
//! | [`verbs`] | verbs translated into admin commands and queue entries |
//! | [`rdma`] | abstractions over the RDMA core, the one place with bindings of it |
//!
//! `unsafe` is confined to [`rdma`] and to [`pci`], [`irq`], [`queue`], [`recovery`] and [`uar`].

extern crate vrnic_abi as abi;

use kernel::{driver, prelude::*};

use crate::rdma::hotplug::Hotplug;

mod admin;
mod balance;
mod debug;
mod eq;
mod events;
mod handlers;
mod health;
mod inspect;
mod irq;
mod life;
mod listing;
mod nic;
mod pci;
mod queue;
mod rdma;
mod recovery;
mod regs;
mod ring;
mod tree;
mod uar;
mod verbs;

/// The module: what its devices share, and their driver.
#[pin_data]
struct Module {
    // Dropped first, and with it all devices.
    #[pin]
    _driver: driver::Registration<kernel::pci::Adapter<pci::Driver>>,
    _hotplug: Hotplug,
}

impl kernel::InPlaceModule for Module {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        // Fields are initialised in this order.
        try_pin_init!(Self {
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
            description: "Part number that verbs report. Programs that know adapters by their number, as \
perftest does for inline data, take this one for another adapter if told so",
        },
        comp_vectors: u32 {
            default: 0,
            description: "Completion vectors, at most; 0 for one for each CPU",
        },
        balance: u32 {
            default: 0,
            description: "Completion vector of a queue whose creator leaves the choice: 0 that with the fewest recent events, 1 each in turn",
        },
    },
}
