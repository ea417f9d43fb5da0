//! vrnicd: the daemon that emulates vrnic adapters for QEMU over vfio-user.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`cli`], [`config`] | the command line, the file, and the resulting settings |
//! | [`daemon`] | start and end of everything, and periodic work |
//! | `exec_switch` | the switch for programs that run without the daemon (feature `cli`) |
//! | [`hosted`] | the adapters of this process, and their PCI interface for the VMM |
//! | [`host`] | the environment of an adapter model: vectors, control thread, containment of panics |
//! | [`vfio`] | the vfio-user sockets |
//! | [`pci`] | configuration space |
//! | [`faults`] | faults of the adapters' packets |
//! | [`memory`] | guest memory and BAR2 |
//! | [`net`] | Ethernet ports and the switch |
//! | [`resources`] | the resources that each function may use |
//! | [`os`] | scheduling of threads, memory of the process, log lines for the journal of systemd |
//! | [`worker`] | the threads that run the adapters |
//!
//! `unsafe` is confined to [`host::irq::eventfd`], [`memory`], [`net::uplinks::interface`] and
//! [`os::sys`].

pub mod cli;
pub mod config;
pub mod daemon;
#[cfg(feature = "cli")]
pub mod exec_switch;
pub mod faults;
pub mod host;
pub mod hosted;
pub mod memory;
pub mod net;
pub mod os;
pub mod pci;
pub mod resources;
pub mod vfio;
pub mod worker;
