//! The vrnic adapter as a model: it has no threads of its own, no sockets and no `unsafe`, and time
//! is a parameter.
//!
//! The daemon is its host ([`host::Host`]) and calls it. Guests access it by registers, rings and
//! doorbells (docs/adapter.md). All data that a guest writes is copied once and then checked.
//!
//! | module | contents |
//! | --- | --- |
//! | [`adapter`] | an adapter: its registers and entry points |
//! | [`domain`] | the function to which an object belongs |
//! | [`assigned`] | the adapter's own maximum of each kind of resource, and how many it uses |
//! | `lifecycle` | the reset of an adapter, and its end |
//! | [`injected`] | faults by rules for the state of a port or a device, and what they hold back |
//! | [`host`] | the interface to the host |
//! | [`ethernet`] | frames to and from other daemons |
//! | [`watch`] | observation of traffic by the daemon |
//! | [`poll`], [`slice`] | a worker's poll: doorbells, turns, timers, events; its time limit |
//! | [`control`] | admin commands |
//! | [`window`] | the window of BAR0 for direct transfers |
//! | [`vlans`] | the VLANs of a port |
//! | [`registers`], `port` | the register file of BAR0; link, MTU, and whether the port carries traffic |
//! | [`objects`] | QPs, CQs, SRQs, EQs and the other numbered objects, and the core that they share |
//! | [`memory`] | page lists and rings, the TPT with its translation tables, memory of device-resident SQs |
//! | [`datapath`] | the turn of a QP: fetching and executing work requests, receiving |
//! | [`requests`], [`network_header`] | work requests, parsed and checked; the header that datagrams begin with |
//! | [`scheduling`] | the state of a worker between polls, and the order of turns |
//! | [`inspect`] | snapshots for monitoring and debugging |
//! | [`limits`], [`stats`], [`log_ratelimit`] | numbers of objects, counters, warnings at a bounded rate |
//! | `sync` | the locks and atomics that loom replaces in models |
#![forbid(unsafe_code)]

pub mod adapter;
pub mod assigned;
pub mod control;
pub mod datapath;
pub mod domain;
pub mod ethernet;
pub mod host;
pub mod injected;
pub mod inspect;
mod lifecycle;
pub mod limits;
pub mod log_ratelimit;
pub mod memory;
pub mod network_header;
pub mod objects;
pub mod poll;
mod port;
pub mod registers;
pub mod requests;
pub mod scheduling;
pub mod slice;
pub mod stats;
mod sync;
pub mod vlans;
pub mod watch;
pub mod window;
