// SPDX-License-Identifier: GPL-2.0
//! Objects of the RDMA core as its kernel clients use them; shared by the clients in `selftest/` and `kping/`.
//!
//! | module | what |
//! | --- | --- |
//! | [`pd`] | a device that stays while it is used; protection domains |
//! | [`memory`] | memory that a device reads and writes whenever it likes |
//! | [`mapped`] | memory that a device knows by addresses, and parts of it |
//! | [`region`] | memory that peers reach by a key, by fast registration; the region of all memory |
//! | [`remote`] | where at the peer an operation goes |
//! | [`request`] | a posted request and what becomes of it |
//! | [`work`] | work requests as the core takes them |
//! | [`cq`] | completion queues |
//! | [`qp`] | queue pairs: posting to them |
//!
//! Nobody can use what has gone, because each object keeps those that it needs: a [`qp::Qp`] its CQ and PD, all of
//! them the [`pd::Device`]. A [`request::Request`] keeps the memory that it names until its completion has been taken,
//! and a CQ the requests that were posted to its queue pairs, until no completion can come. What a device could still
//! reach because something could not be destroyed is never freed.
//!
//! The crate that includes this gives `bindings` and `NAME`, by which `rdma res` shows whose the objects are.

pub(crate) mod cq;
pub(crate) mod mapped;
pub(crate) mod memory;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod region;
pub(crate) mod remote;
pub(crate) mod request;
pub(crate) mod work;
