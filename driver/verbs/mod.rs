// SPDX-License-Identifier: GPL-2.0
//! The adapter's verbs: [`Operations`](crate::rdma::Operations) translated into admin commands
//! and queue entries. Safe code throughout.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`ctx`] | the context of all operations; creation that undoes itself |
//! | [`ops`] | the trait's methods, each of which calls the module of the object |
//! | [`device`], [`pma`] | limits, port, GIDs, counters; the agent that reports the port's counters |
//! | [`context`], [`uar`] | user contexts and their doorbell pages |
//! | [`mr`], [`mw`], [`pages`] | memory regions and windows; page tables of 0, 1 or 2 levels |
//! | [`dm`] | device memory |
//! | [`direct`], [`direct_user`], [`range_end`] | address ranges of direct transfers; those of processes; their end |
//! | [`ah`], [`mcast`] | address handles; multicast groups |
//! | [`cq`] | completion queues |
//! | [`srq`], [`xrc`] | shared receive queues; XRC domains and targets |
//! | [`qp`], [`modify`], [`modify_command`] | queue pairs and their attributes |
//! | [`rnic`] | states of queue pairs of iWARP |
//! | [`qp_user`], [`qp_kernel`], [`qp_params`] | creation of queue pairs, by owner |
//! | [`iwcm`] | connections of iWARP, and references to queue pairs |
//! | [`creator`] | the process that has created a queue pair, which alone may connect it by iWARP |
//! | [`describe`] | the driver's part of `rdma resource show` |
//! | [`kernel_qp`], [`post`], [`poll`], [`consumer`] | queues of kernel clients |

mod ah;
mod consumer;
mod context;
mod cq;
mod creator;
mod ctx;
mod describe;
mod device;
pub(crate) mod direct;
pub(crate) mod direct_user;
pub(crate) mod dm;
mod iwcm;
mod kernel_qp;
mod mcast;
mod modify;
mod modify_command;
mod mr;
mod mw;
mod ops;
mod pages;
mod pma;
mod poll;
mod post;
mod qp;
mod qp_kernel;
mod qp_params;
mod qp_user;
mod range_end;
mod rnic;
mod srq;
mod uar;
mod xrc;

pub(crate) use ctx::{Ctx, Verbs};
