//! The vrnic adapter as a model: it has no threads of its own, no sockets and no `unsafe`, and time
//! is a parameter.
//!
//! The daemon supplies the surroundings ([`host::Host`]) and calls in; guests are on the other side
//! of registers, rings and doorbells (docs/adapter.md). Everything that a guest wrote is copied
//! once, then checked.
//!
//! | module | contents |
//! | --- | --- |
//! | [`function`] | one adapter: its parts, its registers, its entry points |
//! | [`core`] | what all parts of an adapter share: surroundings, identity, counters, port, events |
//! | [`host`] | what the adapter asks of its surroundings |
//! | [`control`] | the register file, the port, admin commands |
//! | [`objects`] | QPs, CQs, SRQs, EQs and the other numbered objects, their doorbells and their users |
//! | [`memory`] | page lists and rings, the TPT with its translation tables, memory of device-resident SQs |
//! | [`datapath`] | one QP's turn: fetching work requests, executing them, receiving |
//! | [`transport`] | ways from one QP to another: the local copy, datagrams, the known peers |
//! | [`scheduling`] | a worker's poll: doorbells, whose turn it is, timers |
//! | [`inspect`] | snapshots for monitoring and debugging |
//! | [`limits`], [`stats`], [`log_ratelimit`] | numbers of objects, counters, warnings at a bounded rate |
//! | `sync` | the locks and atomics that loom replaces in models |
#![forbid(unsafe_code)]

pub mod control;
pub mod core;
pub mod datapath;
pub mod function;
pub mod host;
pub mod inspect;
pub mod limits;
pub mod log_ratelimit;
pub mod memory;
pub mod objects;
pub mod scheduling;
pub mod stats;
mod sync;
pub mod transport;
