//! vrnicd: the daemon that emulates vrnic adapters for QEMU over vfio-user.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`cli`], [`config`] | command line, file, and the settings that come of them |
//! | [`daemon`] | start and end of everything |
//! | [`reconfig`] | changes to a running daemon |
//! | [`failure`] | what becomes of an adapter after a fault of ours |
//! | [`adapter`] | an adapter as this process hosts it, and its PCI face, which a VMM drives |
//! | [`roster`] | the adapters of this process |
//! | [`vfio`] | the vfio-user sockets |
//! | [`pci`] | configuration space |
//! | [`traffic`], [`faults`], [`capture`] | faults and captures of the adapters' packets |
//! | [`memory`] | guest memory and BAR2 |
//! | [`irq`] | MSI-X vectors |
//! | [`descriptors`] | room for file descriptors |
//! | [`eventfd`] | signals to eventfds of others, which never wait |
//! | [`net`] | Ethernet ports and the switch |
//! | [`monitor`] | metrics and views for watchers |
//! | [`housekeeping`] | heartbeats, and clients of busy sockets |
//! | [`watchdog`], [`pulse`] | whether the threads go on, for systemd |
//! | [`vfio_host`] | what the adapter model sees of this process |
//! | [`control`] | the thread that runs an adapter's control work |
//! | [`socket`], [`access`] | listening socket files, and who may connect to them |
//! | [`sys`] | scheduling of threads |
//! | [`worker`] | the threads that run the adapters |

pub mod access;
pub mod adapter;
pub mod capture;
pub mod cli;
pub mod config;
pub mod control;
pub mod daemon;
pub mod descriptors;
pub mod eventfd;
pub mod failure;
pub mod faults;
pub mod housekeeping;
pub mod irq;
pub mod memory;
pub mod monitor;
pub mod net;
pub mod pci;
pub mod pulse;
pub mod reconfig;
pub mod roster;
pub mod socket;
pub mod sys;
pub mod traffic;
pub mod vfio;
pub mod vfio_host;
pub mod watchdog;
pub mod worker;
