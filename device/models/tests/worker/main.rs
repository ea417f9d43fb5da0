//! Sleep and wake-up of a worker: by its waker, by the doorbells of a guest, and by packets for the
//! switch.
//!
//! The code is that of the daemon (`device/src/worker/`), which finds loom's atomics in `sync`
//! here, and a count of loom's in `event`; and that of the adapter. Nobody waits for a time in a
//! model, so that a sleep that a doorbell does not end is seen as what it is.
#![cfg(loom)]
#![allow(dead_code, unreachable_pub)]

#[path = "../../../src/worker/attendance.rs"]
mod attendance;
mod attending;
#[path = "../../../adapter/tests/adapter/bus.rs"]
mod bus;
mod doorbells;
#[path = "../../../src/worker/engine.rs"]
mod engine;
mod event;
mod host;
#[path = "../../../src/worker/sleep.rs"]
mod sleep;
#[path = "../../../src/worker/waker.rs"]
mod waker;
mod wakers;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, fence};
}
