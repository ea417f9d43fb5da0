// SPDX-License-Identifier: GPL-2.0
//! Test of two requests for events of a completion queue. One that is for any completion is not
//! taken back by a later one for solicited completions only.

use core::ptr;

use kernel::{
    ffi::c_void,
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
};

use crate::{
    bindings,
    check::{ends, expect, has_ended, within_limit},
    kclient::{
        attached::Attached,
        cq::{Cq, Poll},
        pd::Device,
        request::Status,
        work::Op,
    },
    sides::{DEPTH, Test},
};

/// Rounds, because the adapter may read the first request before the second one in some of them.
const ROUNDS: u32 = 100;
/// Bytes of a message.
const MESSAGE: usize = 64;

/// Runs the test, on a connection of its own.
pub(crate) fn run(test: &Test, device: &Arc<Attached>) -> Result {
    let calls = KBox::new(Atomic::new(0), GFP_KERNEL)?;
    let device: Arc<dyn Device> = device.clone();
    let sends = Cq::new(device.clone(), 4 * DEPTH, Poll::Workqueue)?;
    let counted = Cq::new(device, 4 * DEPTH, Poll::Direct)?;
    // SAFETY: no queue pair completes there yet. The number is dropped after the queue and the
    // queue pairs that keep it, which are declared later.
    unsafe { count_calls(&counted, &calls) };
    let sides = Test::on(&test.pd, &sends, &counted)?;
    sides.connect()?;
    for round in 1..=ROUNDS {
        sides.b.receive()?;
        for solicited_only in [false, true] {
            // SAFETY: the queue is alive.
            let armed = unsafe { bindings::kclient_arm(counted.as_raw(), solicited_only) };
            expect(armed == 0, "a request for an event")?;
        }
        sides.a.post(&Op::Send, MESSAGE)?;
        ends(&sides.a.sent, Status::SUCCESS, "a SEND without a solicited event")?;
        within_limit("a message raises the event of the first of two requests", || {
            calls.load(Relaxed) == round
        })?;
        counted.take();
        has_ended(sides.b.received.outcome(), Status::SUCCESS, "a receive with an event")?;
    }
    Ok(())
}

/// Lets events of a queue be counted.
///
/// # Safety
///
/// Nothing may complete meanwhile. `calls` must be there as long as the queue is.
unsafe fn count_calls(cq: &Cq, calls: &Atomic<u32>) {
    let cq = cq.as_raw();
    // SAFETY: the queue is live, and nothing looks at its context now.
    unsafe { (*cq).cq_context = ptr::from_ref(calls).cast_mut().cast() };
    // SAFETY: the queue is live, its context is what `counted` takes, and its handler is not called
    // now.
    unsafe { (*cq).comp_handler = Some(counted) };
}

/// Counts an event.
unsafe extern "C" fn counted(_cq: *mut bindings::ib_cq, context: *mut c_void) {
    // SAFETY: `count_calls` has set this context, which is there as long as the queue.
    unsafe { &*context.cast::<Atomic<u32>>() }.fetch_add(1, Relaxed);
}
