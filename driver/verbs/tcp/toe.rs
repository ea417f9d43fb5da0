// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of TCP streams: a socket gives its connection to one of them, and that one to a
//! queue pair with RDMA messages. A kernel client may let the stream consist of iSCSI PDUs.

use abi::{
    admin::{DeviceFeatures, command},
    connection::RECEIVED_MAX,
    iscsi::{EndCommand, IscsiCounters, SetIscsi},
    uverbs::{AttachReq, Payload, StartReq},
};
use kernel::{
    dma::Coherent,
    prelude::*,
    uaccess::{UserPtr, UserSlice},
};
use zerocopy::FromBytes;

use crate::verbs::{Ctx, Verbs, post::Command};
use crate::{
    iwarp::{ClientSocket, Lender, Start},
    pairing::PORT,
    rdma::{qp_attr::QpType, queues::qp::Qp, user::ucontext::User},
};

/// Gives the connection of a socket of the calling process to a queue pair.
pub(crate) fn attach(ctx: &Ctx<'_>, qp: &Qp<Verbs>, user: &User<'_, Verbs>) -> Result {
    let request: AttachReq = user.data.request(AttachReq::REQUIRED)?;
    if request.reserved != [0; 12] {
        return Err(EINVAL);
    }
    // CAST: no descriptor has such a large number.
    lend(ctx, qp, &Lender::Process(request.fd.get() as i32))
}

/// Gives the connection of a kernel client's socket to its queue pair. The driver then owns the
/// socket.
pub(crate) fn attach_client(ctx: &Ctx<'_>, qp: &Qp<Verbs>, socket: &ClientSocket) -> Result {
    qp.kernel()?;
    lend(ctx, qp, &Lender::Kernel(socket))
}

fn lend(ctx: &Ctx<'_>, qp: &Qp<Verbs>, lender: &Lender<'_>) -> Result {
    if qp.kind() != QpType::DRIVER {
        return Err(EINVAL);
    }
    let connections = ctx.connections().ok_or(EOPNOTSUPP)?;
    let netdev = qp.netdev(PORT).ok_or(ENODEV)?;
    connections.lend(ctx.dma(), netdev, qp.qpn, lender)
}

/// Lets the stream that a kernel client's queue pair gets next consist of iSCSI PDUs. The number of
/// the queue pair in `terms` is set here.
pub(crate) fn set_iscsi(ctx: &Ctx<'_>, qp: &Qp<Verbs>, terms: SetIscsi) -> Result {
    check_iscsi(ctx, qp)?;
    ctx.execute::<command::SetIscsi>(&SetIscsi { qpn: qp.qpn, ..terms })
}

/// Returns what the adapter has counted for the stream of a kernel client's queue pair.
pub(crate) fn count(ctx: &Ctx<'_>, qp: &Qp<Verbs>) -> Result<IscsiCounters> {
    check_iscsi(ctx, qp)?;
    let status = ctx.connections().ok_or(EOPNOTSUPP)?.state(qp.qpn)?;
    IscsiCounters::read_from_prefix(&status.private).map(|(counters, _)| counters).map_err(|_| EIO)
}

/// Posts a SCSI command of a kernel client. Returns its Command ID.
pub(crate) fn post_command(ctx: &Ctx<'_>, qp: &Qp<Verbs>, command: &Command) -> Result<u32> {
    check_iscsi(ctx, qp)?;
    qp.kernel()?.post_command(ctx, command)
}

/// Ends a command that has got no response.
pub(crate) fn end_command(ctx: &Ctx<'_>, qp: &Qp<Verbs>, tag: u32) -> Result {
    check_iscsi(ctx, qp)?;
    ctx.destroy::<command::EndCommand>(&EndCommand::new(qp.qpn, tag))
}

fn check_iscsi(ctx: &Ctx<'_>, qp: &Qp<Verbs>) -> Result {
    qp.kernel()?;
    match qp.kind() == QpType::DRIVER && ctx.adapter.caps().has(DeviceFeatures::ISCSI) {
        true => Ok(()),
        false => Err(EOPNOTSUPP),
    }
}

/// Begins to move the connection of `from` to `to`, two queue pairs of the calling process.
pub(crate) fn start(
    ctx: &Ctx<'_>,
    from: &Qp<Verbs>,
    to: &Qp<Verbs>,
    user: &User<'_, Verbs>,
) -> Result {
    let request: StartReq = user.data.request(StartReq::REQUIRED)?;
    let len = request.received_len.get();
    if len > RECEIVED_MAX {
        return Err(EMSGSIZE);
    }
    let (at, len) = (usize::try_from(request.received.get())?, usize::try_from(len)?);
    let mut received = KVVec::from_elem(0, len, GFP_KERNEL)?;
    if len > 0 {
        UserSlice::new(UserPtr::from_addr(at), len).reader().read_slice(&mut received)?;
    }
    let (ird, ord, flags) = (request.ird.get(), request.ord.get(), request.flags.get());
    begin(ctx, from, to, &Terms { ird, ord, flags, received: &received })
}

/// What both ends of a connection have agreed on.
pub(crate) struct Terms<'a> {
    /// READs that are served at a time.
    pub(crate) ird: u32,
    /// READs that are outstanding at a time.
    pub(crate) ord: u32,
    /// [`abi::connection::StartFlags`].
    pub(crate) flags: u32,
    /// Bytes that this end has received and that belong to messages.
    pub(crate) received: &'a [u8],
}

/// Begins to move the connection of `from` to `to`, two queue pairs of a kernel client.
pub(crate) fn start_client(
    ctx: &Ctx<'_>,
    from: &Qp<Verbs>,
    to: &Qp<Verbs>,
    terms: &Terms<'_>,
) -> Result {
    from.kernel()?;
    to.kernel()?;
    begin(ctx, from, to, terms)
}

fn begin(ctx: &Ctx<'_>, from: &Qp<Verbs>, to: &Qp<Verbs>, terms: &Terms<'_>) -> Result {
    if from.kind() != QpType::DRIVER || to.kind() != QpType::RC {
        return Err(EINVAL);
    }
    let connections = ctx.connections().ok_or(EOPNOTSUPP)?;
    let received = match terms.received {
        [] => None,
        // CAST: to the wider type.
        bytes if bytes.len() > RECEIVED_MAX as usize => return Err(EMSGSIZE),
        bytes => Some(Coherent::<u8>::from_slice(ctx.dma(), bytes, GFP_KERNEL)?),
    };
    connections.start(&Start {
        from: from.qpn,
        to: to.qpn,
        ird: terms.ird.try_into()?,
        ord: terms.ord.try_into()?,
        flags: terms.flags,
        received: received.as_ref(),
    })
}
