// SPDX-License-Identifier: GPL-2.0
//! The state of the connection of a queue pair of iWARP, and its end, as its owner asks for it.

use abi::{
    connection::{Closed, Closing},
    uverbs::{ConnectionOp, ConnectionReq, ConnectionResp, NO_FD, Payload},
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::Delta, //
};

use crate::verbs::{Ctx, Verbs, qp};
use crate::{
    iwarp::{Connections, Observer},
    rdma::{queues::qp::Qp, user::eventfd::Eventfd, user::ucontext::User},
};

/// The longest time in which a connection is closed, in milliseconds.
pub(crate) const MAX_LIMIT_MS: u32 = 60_000;

/// The eventfd of a process that observes a connection.
struct Signal(Eventfd);

impl Observer for Signal {
    fn changed(&self) {
        self.0.signal();
    }
}

/// Carries out a request of a process.
pub(crate) fn run(ctx: &Ctx<'_>, qp: &Qp<Verbs>, user: &User<'_, Verbs>) -> Result {
    let request: ConnectionReq = user.data.request(ConnectionReq::REQUIRED)?;
    let op = ConnectionOp::from_raw(request.op).ok_or(EINVAL)?;
    let (fd, limit) = (request.fd.get(), request.time_limit_ms.get());
    let zero = (op == ConnectionOp::Watch || fd == 0) && (op == ConnectionOp::Close || limit == 0);
    if !zero || request.reserved != [0; 3] || request.reserved2.get() != 0 {
        return Err(EINVAL);
    }
    let how = match op {
        ConnectionOp::Query => return user.data.respond(&query(ctx, qp)?),
        ConnectionOp::Watch => {
            let observer = match fd {
                NO_FD => None,
                // CAST: no descriptor has such a large number.
                fd => Some(signal(Eventfd::get(fd as i32)?)?),
            };
            return observe(ctx, qp, observer);
        }
        ConnectionOp::Close => Closing::Graceful,
        ConnectionOp::Abort => Closing::Abortive,
        ConnectionOp::Release => Closing::Release,
        ConnectionOp::Idle => Closing::Idle,
        ConnectionOp::IdleNow => Closing::IdleNow,
    };
    let closed = end(ctx, qp, how, limit)?;
    user.data.respond(&ConnectionResp { closed: closed as u8, ..ConnectionResp::default() })
}

fn signal(eventfd: Eventfd) -> Result<Arc<dyn Observer>> {
    Ok(Arc::new(Signal(eventfd), GFP_KERNEL)?)
}

fn connections<'a>(ctx: &'a Ctx<'_>) -> Result<&'a Arc<Connections>> {
    ctx.connections().ok_or(EOPNOTSUPP)
}

/// Returns the state of the connection.
pub(crate) fn query(ctx: &Ctx<'_>, qp: &Qp<Verbs>) -> Result<ConnectionResp> {
    let status = connections(ctx)?.state(qp.qpn)?;
    Ok(ConnectionResp {
        state: status.state,
        stage: status.stage,
        ending: status.ending,
        events: status.events,
        ird: status.ird,
        ord: status.ord,
        ..ConnectionResp::default()
    })
}

/// Names the observer of the connection, or none.
pub(crate) fn observe(
    ctx: &Ctx<'_>,
    qp: &Qp<Verbs>,
    observer: Option<Arc<dyn Observer>>,
) -> Result {
    connections(ctx)?.observe(qp.qpn, observer)
}

/// Ends the connection, or makes the queue pair idle. `limit_ms` is the time limit of a graceful
/// end, or zero for the driver's.
pub(crate) fn end(ctx: &Ctx<'_>, qp: &Qp<Verbs>, how: Closing, limit_ms: u32) -> Result<Closed> {
    if limit_ms > MAX_LIMIT_MS {
        return Err(EINVAL);
    }
    let limit = (limit_ms > 0).then(|| Delta::from_millis(limit_ms.into()));
    let connections = connections(ctx)?;
    qp::rnic::end(ctx, qp, how, || connections.end_one(qp.qpn, how, limit))
}
