// SPDX-License-Identifier: GPL-2.0
//! States of queue pairs of iWARP. They are in INIT from the beginning, and OPEN_CONNECTION takes
//! them to RTS, whatever their owner asks for. Their owner only takes them out of RTS, and from SQE
//! back to it.

use abi::{
    connection::{Closed, Closing},
    qp::{Attr, AttrMask, State},
};
use kernel::prelude::*;

use super::{modify, modify_command};
use crate::{
    rdma::{
        qp_attr::{QpAttr, QpAttrMask, QpState, QpValues},
        queues::qp::Qp,
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
        None | Some(QpState::ReadyToSend) if names_depths(mask) && is_connected(ctx, qp)? => {
            let QpValues { max_rd_atomic, max_dest_rd_atomic, .. } = attr.values();
            let attr = Attr { max_rd_atomic, max_dest_rd_atomic, ..Attr::default() };
            let mask = AttrMask::from_bits(mask.bits()).ok_or(EINVAL)?;
            let mask = mask.difference(AttrMask::STATE.union(AttrMask::CUR_STATE));
            modify::change(ctx, qp, &attr, mask, *state)
        }
        Some(QpState::ReadyToSend) => resume(ctx, qp),
        _ => Ok(()),
    }
}

/// Ends the connection of a queue pair, or makes the queue pair idle by `run`. It is in the state
/// INIT then, as a new one is.
pub(in crate::verbs) fn end(
    ctx: &Ctx<'_>,
    qp: &Qp<Verbs>,
    how: Closing,
    run: impl FnOnce() -> Result<Closed>,
) -> Result<Closed> {
    let mut state = qp.state.lock();
    let closed = run()?;
    match (how, closed) {
        (Closing::Abortive, _) => *state = QpState::Error,
        (Closing::Idle | Closing::IdleNow, Closed::Done) => {
            modify_command::initialize(ctx, qp.qpn)?;
            modify::forget(ctx, qp)?;
            *state = QpState::Init;
        }
        _ => {}
    }
    Ok(closed)
}

/// Returns whether attributes are numbers of READs and nothing else.
fn names_depths(mask: QpAttrMask) -> bool {
    let depths = mask.without(QpAttrMask::STATE).without(QpAttrMask::CUR_STATE);
    !depths.is_empty() && QpAttrMask::DEPTHS.contains(depths)
}

/// Returns whether a queue pair has a connection. Before, the numbers of READs are those that the
/// connection manager gives.
fn is_connected(ctx: &Ctx<'_>, qp: &Qp<Verbs>) -> Result<bool> {
    let state = modify::query(ctx, qp)?.state;
    Ok(matches!(state, QpState::ReadyToSend | QpState::SendQueueDrained))
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
        if let Some(connections) = ctx.connections() {
            connections.closes(qp.qpn);
        }
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
