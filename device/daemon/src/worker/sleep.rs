//! The steps before a worker sleeps, and the argument that no doorbell is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_adapter::slice::SLICE;

use super::engine::Engine;
use super::sync::{AtomicBool, fence};
use super::waker::Waker;

/// Polls each engine. Returns false if none had work.
#[inline]
pub fn poll(engines: &[Arc<dyn Engine>]) -> bool {
    engines.iter().fold(false, |any, engine| engine.poll(SLICE).busy | any)
}

/// Sleeps by `wait`, which parks with `waker`, unless there is work or the worker has to end.
/// Returns whether there was work. The order of the steps ensures that no wake-up is lost: either
/// the last check finds the doorbell, or the guest rings the doorbell after that check and then
/// sees `armed`.
pub fn sleep(
    waker: &Waker,
    engines: &[Arc<dyn Engine>],
    stop: &AtomicBool,
    wait: impl FnOnce(),
) -> bool {
    waker.prepare_park();
    engines.iter().for_each(|engine| engine.set_asleep(true));
    fence(Ordering::SeqCst);
    let work = poll(engines) || engines.iter().any(|engine| engine.has_work());
    if !work && !stop.load(Ordering::SeqCst) {
        wait();
    }
    waker.end_park();
    engines.iter().for_each(|engine| engine.set_asleep(false));
    work
}
