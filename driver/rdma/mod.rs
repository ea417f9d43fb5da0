// SPDX-License-Identifier: GPL-2.0
//! Abstractions for RDMA device drivers.
//!
//! A driver implements [`Operations`] for a type of its own and registers a device with
//! [`Registration`]; the core's objects then carry the driver's types:
//!
//! | module | what it wraps |
//! | --- | --- |
//! | [`ops`] | `struct ib_device_ops` as a trait |
//! | `vtable` | the table of trampolines: pointer in, safe trait call, result out |
//! | [`device`] | `struct ib_device`, its registration |
//! | [`attr`] | attributes of the device and its port |
//! | [`ucontext`], [`mmap`], [`udata`] | a user's context, its mmap keys, private payloads |
//! | [`pd`], [`mr`], [`mw`], [`ah`] | protection domains, regions, windows, address handles |
//! | [`umem`], [`page_list`] | pinned memory of users, page lists for fast registration |
//! | [`cq`], [`wc`] | completion queues and completions |
//! | [`srq`], [`xrcd`] | shared receive queues, XRC domains |
//! | [`qp`], [`qp_attr`], [`wr`] | queue pairs, their attributes, work requests of kernel clients |
//! | [`gid`] | GID table entries |
//! | [`event`], [`link`] | asynchronous events, references that outlive their object |
//! | [`netdev`], `pairing` | Ethernet devices, pairing with that of the same MAC |
//! | [`stats`], [`pma`], [`details`] | hardware counters, the port's own, what `rdma resource show` tells |
//! | [`workqueue`] | work queues |
//!
//! The core allocates most objects itself, with room for the driver's part behind the C
//! struct: [`object`] has the one wrapper for all of them.
//!
//! C headers: `include/rdma/ib_verbs.h`, `ib_umem.h`, `uverbs_ioctl.h`.

pub(crate) mod ah;
pub(crate) mod attr;
pub(crate) mod cq;
pub(crate) mod details;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod gid;
pub(crate) mod link;
pub(crate) mod mmap;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod netdev;
pub(crate) mod object;
pub(crate) mod ops;
pub(crate) mod page_list;
mod pairing;
pub(crate) mod pd;
pub(crate) mod pma;
pub(crate) mod qp;
pub(crate) mod qp_attr;
pub(crate) mod srq;
pub(crate) mod stats;
pub(crate) mod ucontext;
pub(crate) mod udata;
pub(crate) mod umem;
mod vtable;
pub(crate) mod wc;
pub(crate) mod workqueue;
pub(crate) mod wr;
pub(crate) mod xrcd;

use crate::bindings;

pub(crate) use device::{Device, Registration};
pub(crate) use ops::Operations;
