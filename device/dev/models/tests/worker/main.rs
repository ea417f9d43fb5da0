//! Sleep and wake-up of a worker: by its waker, by the doorbells of a guest, and by packets for the
//! switch.
//!
//! The code is the daemon's (`device/daemon/src/worker/`), which finds loom's atomics in `sync`
//! here, and a count of loom's in `event`, and the adapter's. No thread waits with a time-out, so a
//! sleep that a doorbell does not end makes the model fail by a deadlock.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `sync` | the atomics that the code of the daemon finds |
//! | `event` | the count that a worker waits for |
//! | `host` | a host whose doorbell page is modelled |
//! | `bus` | the test driver's bus to an adapter in this process |
//! | `engine` | what workers poll, from the daemon |
//! | `sleep` | how a worker sleeps, from the daemon |
//! | `waker` | the waker of a worker, from the daemon |
//! | `attendance` | which thread runs the switch, from the daemon |
//! | `wakers` | models of the waker without a worker |
//! | `doorbells` | models of doorbells and an adapter with one worker |
//! | `attending` | models of work for the switch while workers go to sleep |
#![cfg(loom)]
#![allow(dead_code, unreachable_pub)]

#[path = "../../../../daemon/src/worker/attendance.rs"]
mod attendance;
mod attending;
#[path = "../../../../adapter/tests/adapter/bus.rs"]
mod bus;
mod doorbells;
#[path = "../../../../daemon/src/worker/engine.rs"]
mod engine;
mod event;
mod host;
#[path = "../../../../daemon/src/worker/sleep.rs"]
mod sleep;
#[path = "../../../../daemon/src/worker/waker.rs"]
mod waker;
mod wakers;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, fence};
}
