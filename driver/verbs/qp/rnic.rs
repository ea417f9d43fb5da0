// SPDX-License-Identifier: GPL-2.0
//! States of queue pairs of iWARP. They are in INIT from the beginning, and OPEN_CONNECTION takes
//! them to RTS, whatever their owner asks for. Their owner only takes them out of RTS, and from SQE
//! back to it.

use abi::qp::{Attr, AttrMask, State};
use kernel::prelude::*;

use super::modify;
use crate::{
    rdma::{
        qp::Qp,
        qp_attr::{QpAttr, QpAttrMask, QpState},
    },
    verbs::{Ctx, Verbs},
};

/// Changes a queue pair as the connection manager asks for it (`iw_cm_init_qp_attr`), which names
/// few attributes, and often no state.
pub(super) fn modify(ctx: &Ctx<'_>, qp: &Qp<Verbs>, attr: &QpAttr<'_>, mask: QpAttrMask) -> Result {
    let mut state = qp.state.lock();
    let to = if mask.contains(QpAttrMask::STATE) { Some(attr.state()?) } else { None };
    match to {
        Some(QpState::SendQueueDrained) => close(ctx, qp),
        Some(QpState::Error) => {
            *state = QpState::Error;
            change_state(ctx, qp, State::Err, QpState::Error)
        }
        Some(QpState::Reset | QpState::SendQueueError) => Err(EINVAL),
        _ if *state == QpState::Error => Err(EINVAL),
        None | Some(QpState::ReadyToSend) if mask.contains(QpAttrMask::RATE_LIMIT) => {
            let rate_limit = attr.values().rate_limit.into();
            let attr = Attr { rate_limit, ..Attr::default() };
            modify::change(ctx, qp, &attr, AttrMask::RATE_LIMIT, *state)
        }
        Some(QpState::ReadyToSend) => resume(ctx, qp),
        _ => Ok(()),
    }
}

/// Starts the send queue again, if a refused request has stopped it. Otherwise the connection takes
/// the queue pair to this state.
fn resume(ctx: &Ctx<'_>, qp: &Qp<Verbs>) -> Result {
    match modify::query(ctx, qp)?.state {
        QpState::SendQueueError => change_state(ctx, qp, State::Rts, QpState::ReadyToSend),
        _ => Ok(()),
    }
}

/// Closes the connection in an orderly way, unless it is being closed or has ended: a program asks
/// for this, and then the connection manager on its behalf.
fn close(ctx: &Ctx<'_>, qp: &Qp<Verbs>) -> Result {
    let Err(error) = change_state(ctx, qp, State::Sqd, QpState::SendQueueDrained) else {
        return Ok(());
    };
    match modify::query(ctx, qp)?.state {
        QpState::SendQueueDrained | QpState::Error => Ok(()),
        _ => Err(error),
    }
}

fn change_state(ctx: &Ctx<'_>, qp: &Qp<Verbs>, state: State, to: QpState) -> Result {
    let attr = Attr { state: state as u8, ..Attr::default() };
    modify::change(ctx, qp, &attr, AttrMask::STATE, to)
}
