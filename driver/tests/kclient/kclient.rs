// SPDX-License-Identifier: GPL-2.0
//! Objects of the RDMA core as its kernel clients use them: a crate that is linked into each of the
//! clients in `tests/`.
//!
//! | module | what it wraps |
//! | --- | --- |
//! | [`bindings`] | the C entities of the RDMA core, for what is not wrapped here |
//! | [`client`], [`attached`] | a client of the core, to which devices come and go; those devices |
//! | [`pd`] | a device that stays while it is used; protection domains |
//! | [`memory`] | memory that a device may read and write at any time, and regions of all memory |
//! | [`mapped`] | memory that a device knows by addresses, and parts of it |
//! | [`region`] | fast registration |
//! | [`remote`] | the place at the peer that an operation works on |
//! | [`request`] | a posted request and its outcome |
//! | [`work`] | work requests as the core takes them |
//! | [`cq`] | completion queues |
//! | [`qp`] | queue pairs: posting to them |
//! | [`cm`] | identifiers of the connection manager and their events |
//! | [`connection`] | a connection with its queues: posting to it |
//! | [`server`] | a server in the background, which takes callers in turn |
//! | [`background`] | workqueues for work in the background |
//!
//! No object is used after its end, because each object keeps those that it needs: a [`qp::Qp`]
//! keeps its CQ and PD, and all of them keep the [`pd::Device`]. A [`request::Request`] keeps the
//! memory that it names until its completion has been taken. A CQ keeps the requests that were
//! posted to its queue pairs until no completion can arrive. If an object cannot be destroyed, the
//! memory that the device could still reach is never freed.
//!
//! `unsafe` is in all modules but [`bindings`], [`remote`], [`server`] and [`work`].

/// The start of this crate's messages.
const __LOG_PREFIX: &[u8] = b"vrnic_kclient\0";

pub mod attached;
pub mod background;
#[path = "../../bindings/mod.rs"]
pub mod bindings;
pub mod client;
pub mod cm;
pub mod connection;
pub mod cq;
pub mod mapped;
pub mod memory;
pub mod pd;
pub mod qp;
pub mod region;
pub mod remote;
pub mod request;
pub mod server;
pub mod work;
