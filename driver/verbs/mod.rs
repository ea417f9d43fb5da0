// SPDX-License-Identifier: GPL-2.0
//! The adapter's verbs: [`Operations`](crate::rdma::Operations) translated into admin commands
//! and queue entries. Safe code throughout.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`hca`] | what all operations work on; creation that undoes itself |
//! | `ops` | the trait's methods: one line each, to the module of the object |
//! | [`device`], [`pma`] | limits, port, GIDs, counters; the agent that tells the port's counters |
//! | [`context`], [`uar`] | user contexts and their doorbell pages |
//! | [`mr`], [`mw`], [`pages`] | memory regions and windows; page tables of 0, 1 or 2 levels |
//! | [`ah`], [`mcast`] | address handles; multicast groups |
//! | [`cq`] | completion queues |
//! | [`srq`], [`xrc`] | shared receive queues; XRC domains and targets |
//! | [`qp`], [`qp_user`], [`qp_kernel`], [`modify`] | queue pairs and their attributes |
//! | [`describe`] | what `rdma resource show` tells |
//! | [`post`], [`poll`], [`consumer`] | rings of kernel clients |

mod ah;
mod consumer;
mod context;
mod cq;
mod describe;
mod device;
mod hca;
mod mcast;
mod modify;
mod mr;
mod mw;
mod ops;
mod pages;
mod pma;
mod poll;
mod post;
mod qp;
mod qp_kernel;
mod qp_user;
mod srq;
mod uar;
mod xrc;

pub(crate) use hca::Hca;
pub(crate) use ops::Verbs;
