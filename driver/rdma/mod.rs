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
//! | [`attr`] | attributes of the device and its port |
//! | [`ucontext`], [`mmap`], [`udata`] | a user's context, its mmap keys, private payloads |
//! | [`pd`], [`xrcd`] | protection and XRC domains |
//! | [`mr`], [`mw`], [`ah`] | regions, windows, address handles |
//! | [`dm`] | device memory |
//! | [`umem`], [`page_list`] | pinned memory of users, page lists for fast registration |
//! | [`paged_umem`], [`fault`] | memory of users that is not pinned, page faults for it |
//! | [`cq`], [`wc`] | completion queues and completions |
//! | [`srq`] | shared receive queues |
//! | [`qp`], [`qp_attr`] | queue pairs, their attributes |
//! | [`flow`] | which frames a queue pair receives |
//! | [`wq`] | work queues, over which a queue pair spreads frames |
//! | [`wr`], [`recv_wr`] | work requests of kernel clients |
//! | [`own_wr`] | send work requests that a driver has in addition to those of verbs |
//! | `lend` | queue pairs that other modules of the kernel name |
//! | [`eventfd`] | eventfds of processes |
//! | [`gid`] | GID table entries |
//! | [`iwcm`] | the connection manager of iWARP devices |
//! | [`event`], `revocable` | asynchronous events, references that outlive their object |
//! | `references` | references that keep an object |
//! | [`netdev`] | the Ethernet devices that ports are paired with |
//! | [`stats`], [`counter`], [`mad`], [`restrack`] | counters, sets of counters, management datagrams, `rdma resource show` |
//! | [`object`] | the one wrapper of objects that the core allocates |
//!
//! The core allocates most objects itself, with room for the driver's part behind the C
//! struct: [`object`] has the one wrapper for all of them.
//!
//! C headers: `include/rdma/ib_verbs.h`, `ib_umem.h`, `iw_cm.h`, `uverbs_ioctl.h`.

pub(crate) mod ah;
pub(crate) mod attr;
pub(crate) mod counter;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod dm;
pub(crate) mod driver;
pub(crate) mod event;
pub(crate) mod eventfd;
pub(crate) mod fault;
pub(crate) mod flow;
pub(crate) mod gid;
pub(crate) mod iwcm;
pub(crate) mod lend;
pub(crate) mod mad;
pub(crate) mod mmap;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod netdev;
pub(crate) mod object;
pub(crate) mod ops;
pub(crate) mod own_wr;
pub(crate) mod page_list;
pub(crate) mod paged_umem;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod qp_attr;
pub(crate) mod recv_wr;
mod references;
pub(crate) mod registration;
pub(crate) mod restrack;
mod revocable;
pub(crate) mod srq;
pub(crate) mod stats;
pub(crate) mod ucontext;
pub(crate) mod udata;
pub(crate) mod umem;
mod vtable;
pub(crate) mod wc;
pub(crate) mod wq;
pub(crate) mod wr;
pub(crate) mod xrcd;

use crate::bindings;

pub(crate) use device::Device;
pub(crate) use driver::Driver;
pub(crate) use ops::Operations;
