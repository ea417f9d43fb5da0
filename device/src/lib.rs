//! vrnicd: the daemon that emulates vrnic adapters for QEMU over vfio-user.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`cli`], [`config`] | the command line, the file, and the resulting settings |
//! | [`daemon`] | start and end of everything |
//! | [`reconfig`] | changes to a running daemon |
//! | [`failure`] | containment of panics |
//! | [`adapter`] | an adapter of this process, and its PCI interface for the VMM |
//! | [`roster`] | the adapters of this process |
//! | [`vfio`] | the vfio-user sockets |
//! | [`pci`] | configuration space |
//! | [`traffic`], [`faults`], [`capture`] | faults and captures of the adapters' packets |
//! | [`memory`] | guest memory and BAR2 |
//! | [`irq`] | MSI-X vectors |
//! | [`descriptors`] | the limit of file descriptors |
//! | [`eventfd`] | signals to eventfds of other processes, without waiting |
//! | [`net`] | Ethernet ports and the switch |
//! | [`monitor`] | metrics and views over HTTP |
//! | [`housekeeping`] | heartbeats, and clients of busy sockets |
//! | [`journal`] | log lines for the journal of systemd |
//! | [`watchdog`], [`pulse`] | the progress of the threads, for systemd |
//! | [`vfio_host`] | the environment of an adapter model in this process |
//! | [`control`] | the thread that runs an adapter's control work |
//! | [`socket`], [`access`] | listening socket files, and their permissions |
//! | [`sys`] | scheduling of threads, memory of the process |
//! | [`worker`] | the threads that run the adapters |
//!
//! `unsafe` is confined to [`eventfd`], [`memory`], [`net::interface`] and [`sys`].

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
pub mod journal;
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
