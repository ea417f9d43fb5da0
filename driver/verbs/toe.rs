// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of TCP streams: a socket gives its connection to one of them.

use abi::uverbs::{AttachReq, Payload};
use kernel::prelude::*;

use super::{Ctx, Verbs};
use crate::{
    pairing::PORT,
    rdma::{qp::Qp, qp_attr::QpType, ucontext::User},
};

/// Gives the connection of a socket of the calling process to a queue pair.
pub(crate) fn attach(ctx: &Ctx<'_>, qp: &Qp<Verbs>, user: &User<'_, Verbs>) -> Result {
    let request: AttachReq = user.data.request(AttachReq::REQUIRED)?;
    if request.reserved != [0; 12] || qp.kind() != QpType::DRIVER {
        return Err(EINVAL);
    }
    let connections = ctx.connections().ok_or(EOPNOTSUPP)?;
    let netdev = qp.netdev(PORT).ok_or(ENODEV)?;
    // CAST: no descriptor has such a large number.
    connections.lend(ctx.dma(), netdev, qp.qpn, request.fd.get() as i32)
}
