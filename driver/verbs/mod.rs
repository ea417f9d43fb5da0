// SPDX-License-Identifier: GPL-2.0
//! The adapter's verbs: [`Operations`](crate::rdma::Operations) translated into admin commands
//! and queue entries. Safe code throughout.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`ctx`] | the context of all operations; creation that undoes itself |
//! | [`device`] | limits, port, GIDs |
//! | [`counters`], [`pma`] | the port's counters; the agent that reports them |
//! | [`context`], [`uar`] | user contexts and their doorbell pages |
//! | [`mr`], [`mw`], [`pages`] | memory regions and windows; page tables of 0, 1 or 2 levels |
//! | [`paged`] | memory of regions that is not pinned |
//! | [`dmabuf`] | DMA buffers whose exporter may take them back |
//! | [`dm`] | device memory |
//! | [`direct`], [`direct_user`], [`range_end`] | address ranges of direct transfers; ranges of processes; the end of ranges |
//! | [`ah`] | address handles |
//! | [`cq`] | completion queues |
//! | [`srq`], [`xrc`] | shared receive queues; XRC domains and targets |
//! | [`qp`] | queue pairs, by owner, and their attributes; multicast groups |
//! | [`flow`] | flow rules of queue pairs of raw packets |
//! | [`wq`] | work queues, over which queue pairs of raw packets spread frames |
//! | [`iwcm`] | connections of iWARP, and references to queue pairs |
//! | [`connection`] | the states of those connections, and how their owners end them |
//! | [`toe`] | queue pairs of TCP streams, which get the connections of sockets |
//! | [`creator`] | the process that has created a queue pair, the only one that may connect it by iWARP |
//! | [`describe`] | the driver's part of `rdma resource show` |
//! | [`post`], [`poll`], [`consumer`] | queues of kernel clients |

mod ah;
pub(crate) mod connection;
mod consumer;
mod context;
mod counters;
pub(crate) mod cq;
mod creator;
mod ctx;
mod describe;
mod device;
pub(crate) mod direct;
pub(crate) mod direct_user;
pub(crate) mod dm;
mod dmabuf;
mod flow;
mod iwcm;
mod mr;
mod mw;
mod paged;
mod pages;
mod pma;
mod poll;
mod post;
mod qp;
mod range_end;
mod srq;
pub(crate) mod toe;
mod uar;
mod wq;
mod xrc;

pub(crate) use ctx::{Ctx, Verbs};
pub(crate) use post::Command;

use crate::{
    direct::work,
    rdma::{Driver, own_wr::OwnWr},
};

impl Driver for Verbs {
    type Data<'a> = Ctx<'a>;
    type Ucontext = context::Context;
    type Pd = context::Pd;
    type Cq = cq::Cq;
    type Xrcd = xrc::Xrcd;
    type Srq = srq::Srq;
    type Qp = qp::Qp;
    type Dm = dm::Dm;
    type Mr = mr::Mr;
    type Ah = ah::Ah;
    type Mw = mw::Mw;
    type Flow = flow::Flow;
    type Wq = wq::Wq;

    const OWN_WRS: &'static [OwnWr] = work::REQUESTS;
}
