// SPDX-License-Identifier: GPL-2.0
//! A holding completion queue that is full: its completions and the messages after them wait, and
//! follow in order when they are taken, or when the queue has grown.

use kernel::{prelude::*, sync::Arc};

use crate::{
    bindings,
    check::{ends, expect, has_ended, within_limit},
    kclient::{
        attached::Attached,
        cq::{Cq, Poll},
        pd::Device,
        request::{Request, Status},
        work::Op,
    },
    sides::{DEPTH, Test},
};

/// Entries of the queue, and of one that has grown.
const ENTRIES: u32 = 4;
const MORE: u32 = 32;
/// Messages, more than that.
const MESSAGES: usize = 12;

/// Runs the test, on a connection of its own.
pub(crate) fn run(test: &Test, device: &Arc<Attached>) -> Result {
    fill(test, device, |_| Ok(()))?;
    fill(test, device, |small| {
        expect(resize(small, 0) == EINVAL.to_errno(), "no queue without entries")?;
        expect(resize(small, u32::MAX) == EINVAL.to_errno(), "no queue that is too large")?;
        expect(resize(small, ENTRIES / 2) < 0, "no queue with fewer entries than wait")?;
        expect(resize(small, MORE) == 0, "the queue grows")?;
        let room = bindings::vrnic_cq_state_VRNIC_CQ_ROOM;
        within_limit("there is room in the larger queue", || state(small) == Some(room))
    })
}

/// Fills a queue, and takes its completions after `then`, which gets the queue.
fn fill(test: &Test, device: &Arc<Attached>, then: impl FnOnce(&Cq) -> Result) -> Result {
    let device: Arc<dyn Device> = device.clone();
    let large = Cq::new(device.clone(), 4 * DEPTH, Poll::Workqueue)?;
    let small = Cq::holding(device, ENTRIES)?;
    let sides = Test::on(&test.pd, &large, &small)?;
    sides.connect()?;
    let mut received = KVec::new();
    for _ in 0..MESSAGES {
        let request = Request::new()?;
        sides.b.receive_as(&request)?;
        received.push(request, GFP_KERNEL)?;
    }
    let mut sent = KVec::new();
    for _ in 0..MESSAGES {
        let request = Request::new()?;
        sides.a.qp.post_inline(&request, &Op::Send, &[7; 8])?;
        sent.push(request, GFP_KERNEL)?;
    }
    within_limit("the queue is full", || {
        state(&small) == Some(bindings::vrnic_cq_state_VRNIC_CQ_FULL)
    })?;
    // The last message cannot arrive before room has been made.
    expect(sent.last().is_some_and(|last| last.outcome().is_none()), "the last message waits")?;
    then(&small)?;
    for request in &received {
        let mut outcome = None;
        within_limit("a message has arrived", || {
            small.take();
            outcome = request.outcome();
            outcome.is_some()
        })?;
        has_ended(outcome, Status::SUCCESS, "a receive of a full queue")?;
    }
    for request in &sent {
        ends(request, Status::SUCCESS, "a message to a full queue")?;
    }
    expect(state(&small) == Some(bindings::vrnic_cq_state_VRNIC_CQ_ROOM), "there is room again")
}

/// Gives a queue another size. Returns zero or a negative errno.
fn resize(cq: &Cq, entries: u32) -> i32 {
    // SAFETY: the queue is alive.
    unsafe { bindings::vrnic_cq_resize(cq.as_raw(), entries) }
}

/// Returns the state of a queue.
fn state(cq: &Cq) -> Option<bindings::vrnic_cq_state> {
    // SAFETY: the queue is alive.
    u32::try_from(unsafe { bindings::vrnic_cq_state(cq.as_raw()) }).ok()
}
