// SPDX-License-Identifier: GPL-2.0
//! Abstractions for RDMA device drivers.
//!
//! A driver implements [`Driver`] and [`Operations`] for a type of its own and registers a device
//! with [`registration::Registration`]; the core's objects then carry the driver's types:
//!
//! | module | what it wraps |
//! | --- | --- |
//! | [`driver`], [`ops`] | the types that a driver gives; `struct ib_device_ops` as traits, of which each object has its own |
//! | `vtable` | the tables of trampolines: pointer in, safe trait call, result out |
//! | [`device`], [`registration`] | `struct ib_device`, its registration |
//! | [`port`] | attributes of the port, its addresses and its counters |
//! | [`user`] | contexts of processes |
//! | [`pd`], [`ah`] | protection domains, address handles |
//! | [`memory`] | regions, windows, device memory, and memory of users |
//! | [`queues`] | queue pairs, the queues that they use, and flows |
//! | [`qp_attr`] | attributes of queue pairs |
//! | [`requests`] | work requests and completions |
//! | [`own_wr`] | send work requests that a driver has in addition to those of verbs |
//! | `lend` | queue pairs that other modules of the kernel name |
//! | [`iwcm`] | the connection manager of iWARP devices |
//! | [`event`], `revocable` | asynchronous events, references that outlive their object |
//! | `references` | references that keep an object |
//! | [`counter`], [`restrack`] | sets of counters, `rdma resource show` |
//! | [`object`] | the one wrapper of objects that the core allocates |
//!
//! The core allocates most objects itself, with room for the driver's part after the C
//! struct: [`object`] has the one wrapper for all of them.
//!
//! C headers: `include/rdma/ib_verbs.h`, `ib_umem.h`, `iw_cm.h`, `uverbs_ioctl.h`.

pub(crate) mod ah;
pub(crate) mod counter;
pub(crate) mod device;
pub(crate) mod driver;
pub(crate) mod event;
pub(crate) mod iwcm;
pub(crate) mod lend;
pub(crate) mod memory;
pub(crate) mod object;
pub(crate) mod ops;
pub(crate) mod own_wr;
pub(crate) mod pd;
pub(crate) mod port;
pub(crate) mod qp_attr;
pub(crate) mod queues;
mod references;
pub(crate) mod registration;
pub(crate) mod requests;
pub(crate) mod restrack;
mod revocable;
pub(crate) mod user;
mod vtable;

pub(crate) use device::Device;
pub(crate) use driver::Driver;
pub(crate) use ops::Operations;
