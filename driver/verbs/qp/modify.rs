// SPDX-License-Identifier: GPL-2.0
//! Attributes of queue pairs.

use abi::{
    admin::{QueryQp, command},
    qp::{Attr, AttrMask},
};
use kernel::{dma::Coherent, io::Io, prelude::*};

use super::{Queues, modify_command};
use crate::{
    pairing::PORT,
    rdma::{
        qp_attr::{QpAttr, QpAttrMask, QpQuery, QpState, QpType, QpValues, transition_is_ok},
        queues::qp::Qp,
    },
    verbs::{
        Ctx, Verbs,
        ah::{decode_av, encode_av},
    },
};

pub(super) fn modify(ctx: &Ctx<'_>, qp: &Qp<Verbs>, attr: &QpAttr<'_>, mask: QpAttrMask) -> Result {
    let mut state = qp.state.lock();
    let from = if mask.contains(QpAttrMask::CUR_STATE) { attr.cur_state()? } else { *state };
    let to = if mask.contains(QpAttrMask::STATE) { attr.state()? } else { from };
    let mask = match (qp.kind(), from, to) {
        // The core adds the port to a process' address vector (uverbs_cmd.c, `modify_qp`), which
        // its own table then refuses. There is one port.
        (QpType::UC, QpState::SendQueueDrained, QpState::SendQueueDrained)
            if mask.contains(QpAttrMask::AV) =>
        {
            mask.without(QpAttrMask::PORT)
        }
        _ => mask,
    };
    // The core's table has rate limits only for queue pairs of raw packets. The adapter checks
    // where one may be named.
    if !transition_is_ok(from, to, qp.kind(), mask.without(QpAttrMask::RATE_LIMIT)) {
        return Err(EINVAL);
    }
    let mut encoded = encode(&attr.values(), from, to);
    if let Some(av) = attr.av() {
        encoded.av = encode_av(av)?;
    }
    change(ctx, qp, &encoded, AttrMask::from_bits(mask.bits()).ok_or(EOPNOTSUPP)?, to)?;
    *state = to;
    if to == QpState::Reset { forget(ctx, qp) } else { Ok(()) }
}

/// Empties the queues of a kernel client's queue pair that was reset.
pub(super) fn forget(ctx: &Ctx<'_>, qp: &Qp<Verbs>) -> Result {
    if let Queues::Kernel(queues) = &qp.queues {
        for cq in [qp.send_cq(), qp.recv_cq()].into_iter().flatten() {
            cq.kernel()?.purge(qp.qpn)?;
        }
        queues.reset(ctx);
    }
    Ok(())
}

/// Changes attributes of the adapter's queue pair, which is in the state `to` then.
pub(super) fn change(
    ctx: &Ctx<'_>,
    qp: &Qp<Verbs>,
    attr: &Attr,
    mask: AttrMask,
    to: QpState,
) -> Result {
    match modify_command::execute(ctx, qp.qpn, attr, mask) {
        // An adapter that has died does nothing more for the queue pair, as these states want.
        Err(_) if ctx.adapter.is_dead() && matches!(to, QpState::Reset | QpState::Error) => {}
        result => result?,
    }
    if to == QpState::Error && qp.shares && ctx.adapter.is_dead() {
        // A living adapter would have reported this itself.
        qp.link().set_last_wqe_due();
        ctx.adapter.call_handlers();
    }
    Ok(())
}

/// Returns the attributes of a queue pair. If the adapter has died, it is in the error state, and
/// the other attributes are lost.
pub(super) fn query(ctx: &Ctx<'_>, qp: &Qp<Verbs>) -> Result<QpQuery> {
    let attr = match ask(ctx, qp) {
        Err(_) if ctx.adapter.is_dead() => Attr { state: QpState::Error as u8, ..Attr::default() },
        result => result?,
    };
    Ok(QpQuery {
        state: QpState::try_from(u32::from(attr.state))?,
        values: decode(&attr),
        av: decode_av(&attr.av),
        cap: qp.cap,
        sq_sig_all: qp.sq_sig_all,
    })
}

fn ask(ctx: &Ctx<'_>, qp: &Qp<Verbs>) -> Result<Attr> {
    let buffer = Coherent::<u8>::zeroed_slice(ctx.dma(), size_of::<Attr>(), GFP_KERNEL)?;
    ctx.execute::<command::QueryQp>(&QueryQp::new(qp.qpn, buffer.dma_address()))?;
    Ok((&buffer).try_cast::<Attr>()?.copy_read())
}

/// Returns the attributes that are numbers, for the adapter.
fn encode(values: &QpValues, from: QpState, to: QpState) -> Attr {
    Attr {
        // CAST: the states and MTUs are small numbers; an MTU out of range is refused by the
        // adapter, as is 255.
        state: to as u8,
        cur_state: from as u8,
        path_mtu: u8::try_from(values.path_mtu).unwrap_or(u8::MAX),
        path_mig_state: u8::try_from(values.path_mig_state).unwrap_or(u8::MAX),
        port: u8::try_from(values.port).unwrap_or(u8::MAX),
        access: values.access.into(),
        pkey_index: values.pkey_index.into(),
        max_rd_atomic: values.max_rd_atomic,
        max_dest_rd_atomic: values.max_dest_rd_atomic,
        min_rnr_timer: values.min_rnr_timer,
        timeout: values.timeout,
        retry_cnt: values.retry_cnt,
        rnr_retry: values.rnr_retry,
        qkey: values.qkey.into(),
        rq_psn: values.rq_psn.into(),
        sq_psn: values.sq_psn.into(),
        dest_qpn: values.dest_qpn.into(),
        en_sqd_async_notify: values.en_sqd_async_notify.into(),
        rate_limit: values.rate_limit.into(),
        ..Attr::default()
    }
}

/// Returns the inverse of [`encode`].
fn decode(attr: &Attr) -> QpValues {
    QpValues {
        path_mtu: attr.path_mtu.into(),
        path_mig_state: attr.path_mig_state.into(),
        access: attr.access.get(),
        qkey: attr.qkey.get(),
        rq_psn: attr.rq_psn.get(),
        sq_psn: attr.sq_psn.get(),
        dest_qpn: attr.dest_qpn.get(),
        port: PORT,
        pkey_index: attr.pkey_index.get(),
        en_sqd_async_notify: attr.en_sqd_async_notify != 0,
        sq_draining: attr.sq_draining != 0,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        rate_limit: attr.rate_limit.get(),
    }
}
