// SPDX-License-Identifier: GPL-2.0
//! The adapter's verbs: [`Operations`](crate::rdma::Operations) translated into admin commands
//! and queue entries. Safe code throughout.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`ctx`] | the context of all operations; creation that undoes itself |
//! | `port` | the device, its port and its counters |
//! | [`context`], [`uar`] | user contexts and their doorbell pages |
//! | [`memory`] | regions, windows, device memory |
//! | [`direct`], [`direct_user`], [`range_end`] | address ranges of direct transfers; ranges of processes; the end of ranges |
//! | [`ah`] | address handles |
//! | [`cq`] | completion queues |
//! | [`srq`], [`xrc`] | shared receive queues; XRC domains and targets |
//! | [`qp`] | queue pairs, by owner, and their attributes; multicast groups |
//! | [`flow`] | flow rules of queue pairs of raw packets |
//! | [`wq`] | work queues, over which queue pairs of raw packets spread frames |
//! | [`tcp`] | queue pairs that have TCP connections |
//! | [`creator`] | the process that has created a queue pair, the only one that may connect it by iWARP |
//! | [`describe`] | the driver's part of `rdma resource show` |
//! | [`post`], [`poll`], [`consumer`] | queues of kernel clients |

mod ah;
mod consumer;
mod context;
pub(crate) mod cq;
mod creator;
mod ctx;
mod describe;
pub(crate) mod direct;
pub(crate) mod direct_user;
mod flow;
pub(crate) mod memory;
mod poll;
mod port;
mod post;
mod qp;
mod range_end;
mod srq;
pub(crate) mod tcp;
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
    type Dm = memory::dm::Dm;
    type Mr = memory::mr::Mr;
    type Ah = ah::Ah;
    type Mw = memory::mw::Mw;
    type Flow = flow::Flow;
    type Wq = wq::Wq;

    const OWN_WRS: &'static [OwnWr] = work::REQUESTS;
}
