// SPDX-License-Identifier: GPL-2.0
//! Test of requests that are outstanding when the adapter dies, and of those that are posted later:
//! all are flushed, in order, as on a queue pair in error. So draining it returns.

use kernel::{prelude::*, sync::Arc, time::Msecs};

use crate::{
    check::{ends_within, expect, has_ended},
    handlers::Handlers,
    kclient::{request::Request, request::Status, work::Op},
    sides::{HALF, Side, Test},
};

/// Receives outstanding on either side.
const BEFORE: usize = 5;
/// Receives posted later.
const AFTER: usize = 3;
/// Longest time until the driver has seen the death.
const TIMEOUT_MS: Msecs = 20_000;

/// Both sides, with receives outstanding.
pub(crate) struct Doomed {
    test: Test,
    of_a: KVec<Arc<Request>>,
    of_b: KVec<Arc<Request>>,
    handlers: Handlers,
}

impl Doomed {
    /// Posts the receives.
    pub(crate) fn new(test: Test, handlers: Handlers) -> Result<Self> {
        test.reconnect()?;
        let (of_a, of_b) = (receives(&test.a, BEFORE)?, receives(&test.b, BEFORE)?);
        Ok(Self { test, of_a, of_b, handlers })
    }

    /// To be called when the adapter has died.
    pub(crate) fn check(&self) -> Result {
        await_flush(&self.of_a)?;
        await_flush(&self.of_b)?;
        drain(&self.test.a)?;
        drain(&self.test.b)?;
        self.handlers.check_dead()
    }
}

fn receives(side: &Side, count: usize) -> Result<KVec<Arc<Request>>> {
    let mut requests = KVec::with_capacity(count, GFP_KERNEL)?;
    for _ in 0..count {
        let request = Request::new()?;
        side.receive_as(&request)?;
        requests.push(request, GFP_KERNEL)?;
    }
    Ok(requests)
}

/// Outstanding requests are flushed although no task polls for them.
fn await_flush(requests: &[Arc<Request>]) -> Result {
    let what = "receive outstanding at death";
    let mut last = None;
    for request in requests {
        let turn = Some(ends_within(request, TIMEOUT_MS, Status::FLUSHED, what)?.turn);
        expect(turn > last, "order of receives outstanding at death")?;
        last = turn;
    }
    Ok(())
}

/// Drains a side: everything that was posted before has ended when that returns.
fn drain(side: &Side) -> Result {
    let requests = receives(side, AFTER)?;
    side.post(&Op::Send, HALF)?;
    side.qp.drain();
    has_ended(side.sent.outcome(), Status::FLUSHED, "SEND after death")?;
    let mut last = None;
    for request in &requests {
        let outcome = has_ended(request.outcome(), Status::FLUSHED, "receive after death")?;
        expect(Some(outcome.turn) > last, "order of receives after death")?;
        last = Some(outcome.turn);
    }
    Ok(())
}
