// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of TCP streams: a socket gives its connection to one of them, and that one to a
//! queue pair with RDMA messages.

use abi::{
    connection::RECEIVED_MAX,
    uverbs::{AttachReq, Payload, StartReq},
};
use kernel::{
    dma::Coherent,
    prelude::*,
    uaccess::{UserPtr, UserSlice},
};

use super::{Ctx, Verbs};
use crate::{
    iwarp::Start,
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

/// Begins to move the connection of `from` to `to`, two queue pairs of the calling process.
pub(crate) fn start(
    ctx: &Ctx<'_>,
    from: &Qp<Verbs>,
    to: &Qp<Verbs>,
    user: &User<'_, Verbs>,
) -> Result {
    let request: StartReq = user.data.request(StartReq::REQUIRED)?;
    if from.kind() != QpType::DRIVER || to.kind() != QpType::RC {
        return Err(EINVAL);
    }
    let connections = ctx.connections().ok_or(EOPNOTSUPP)?;
    let received = match request.received_len.get() {
        0 => None,
        len if len > RECEIVED_MAX => return Err(EMSGSIZE),
        len => {
            let (at, len) = (usize::try_from(request.received.get())?, usize::try_from(len)?);
            let mut bytes = KVVec::from_elem(0, len, GFP_KERNEL)?;
            UserSlice::new(UserPtr::from_addr(at), len).reader().read_slice(&mut bytes)?;
            Some(Coherent::<u8>::from_slice(ctx.dma(), &bytes, GFP_KERNEL)?)
        }
    };
    connections.start(&Start {
        from: from.qpn,
        to: to.qpn,
        ird: request.ird.get().try_into()?,
        ord: request.ord.get().try_into()?,
        flags: request.flags.get(),
        received: received.as_ref(),
    })
}
