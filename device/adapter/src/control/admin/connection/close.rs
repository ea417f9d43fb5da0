//! CLOSE_CONNECTION: the end of a connection as the verbs over TCP have it.

use std::mem::offset_of;
use std::sync::Arc;

use vrnic_abi::admin::{CloseConnection, CloseResult, Status};
use vrnic_abi::connection::{Closed, Closing, Stage};
use vrnic_abi::qp::State;
use vrnic_iwarp::stream::Rest;

use super::super::modify::reset;
use super::{Outcome, bad};
use crate::adapter::Adapter;
use crate::host::Host;
use crate::objects::qp::tcp::{Content, Tcp};
use crate::objects::qp::{Path, Qp};

pub(in crate::control::admin) fn close_connection<H: Host>(
    adapter: &Arc<Adapter<H>>,
    params: &CloseConnection,
) -> Outcome<CloseResult> {
    let qp = adapter.qp(params.qpn).ok_or(Status::NotFound)?;
    let how = Closing::from_raw(params.how).ok_or(bad(offset_of!(CloseConnection, how)))?;
    let closed = match how {
        Closing::Graceful => disconnect(adapter, &qp),
        Closing::Abortive => abort(adapter, &qp),
        Closing::Release => release(&qp),
        Closing::Idle => idle(adapter, &qp, false),
        Closing::IdleNow => idle(adapter, &qp, true),
    }?;
    Ok(CloseResult { closed: closed as u8 })
}

/// Closes the local direction of a connection without outstanding work.
fn disconnect<H: Host>(adapter: &Adapter<H>, qp: &Arc<Qp<H>>) -> Outcome<Closed> {
    let mut requester = qp.requester.lock();
    match &requester.path {
        Path::Tcp(tcp) if !tcp.switches() => {}
        _ => return Err(Status::BadState.into()),
    }
    if requester.has_begun() || qp.has_posted(adapter.host()) {
        return Err(Status::Busy.into());
    }
    if !qp.change_state(State::Rts, State::Sqd) {
        return Err(Status::BadState.into());
    }
    drop(requester);
    qp.schedule(adapter.core());
    Ok(Closed::Done)
}

/// Resets a connection.
fn abort<H: Host>(adapter: &Adapter<H>, qp: &Arc<Qp<H>>) -> Outcome<Closed> {
    let mut requester = qp.requester.lock();
    if !matches!(requester.path, Path::Tcp(_)) {
        return Err(Status::BadState.into());
    }
    if qp.fail() {
        requester.path.end();
    }
    drop(requester);
    qp.schedule(adapter.core());
    Ok(Closed::Done)
}

/// Gives up a connection whose TCP is closed on both sides, or has ended. It answers no late
/// segments any more.
fn release<H: Host>(qp: &Qp<H>) -> Outcome<Closed> {
    let mut requester = qp.requester.lock();
    match &mut requester.path {
        Path::Tcp(tcp) if tcp.link.has_ended() => tcp.link.gone(),
        Path::Tcp(_) => return Ok(Closed::Pending),
        _ => return Err(Status::BadState.into()),
    }
    Ok(Closed::Done)
}

/// Makes a QP idle whose connection has ended, when all of its work requests are flushed.
fn idle<H: Host>(adapter: &Arc<Adapter<H>>, qp: &Arc<Qp<H>>, give_up: bool) -> Outcome<Closed> {
    if qp.state() != State::Err {
        return Err(Status::BadState.into());
    }
    let host = adapter.host();
    let requester = qp.requester.lock();
    let ci = qp.responder.lock().ci;
    let receives = qp.rq.is_some() && host.bar_load32(qp.doorbell.rq_pi()) != ci;
    let Path::Tcp(tcp) = &requester.path else { return Err(Status::BadState.into()) };
    let Tcp { link, content } = &**tcp;
    let rest = match content {
        Content::Rdma(rdma) => rdma.stream.rest(give_up),
        Content::Bytes(_) | Content::Iscsi(_) => Rest::Reached,
    };
    let flushed = !qp.has_posted(host) && !receives && link.outstanding().is_empty();
    let gone = link.life().stage() == Stage::Gone;
    drop(requester);
    match rest {
        Rest::Reached if flushed && gone => {
            reset(adapter, qp);
            Ok(Closed::Done)
        }
        Rest::Reached | Rest::Pending if !give_up => Ok(Closed::Pending),
        Rest::Reached | Rest::Pending | Rest::Aborted => Ok(Closed::Aborted),
    }
}
