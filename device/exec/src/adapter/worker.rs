//! The thread that runs the adapters: it polls them, and hands their events on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use vrnic_abi::eq::Kind;
use vrnic_abi::regs::HEARTBEAT_PERIOD_MS;

use super::driver::Driver;

/// Time for which the worker polls without a pause after the last work.
const SPIN: Duration = Duration::from_micros(100);
/// The pauses after that: the first lasts until work has been missing for the time of the second
/// number.
const NAPS: [(Duration, Duration); 3] = [
    (Duration::from_micros(20), Duration::from_millis(10)),
    (Duration::from_micros(50), Duration::from_millis(500)),
    (Duration::from_micros(500), Duration::MAX),
];
/// The pause while no program has opened an adapter.
const UNUSED: Duration = Duration::from_millis(2);

/// What the worker tells of the adapters.
pub trait Events: Send + Sync + 'static {
    /// Handles an event of an adapter, by its place in the list: its kind, and the number of its
    /// object.
    fn event(&self, adapter: usize, kind: Kind, id: u32);

    /// Tries again what could not be handed on. Called after each poll.
    fn retry(&self);

    /// Returns whether a program uses an adapter.
    fn is_used(&self) -> bool;
}

/// The running thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Worker {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread for these adapters.
    ///
    /// # Errors
    /// The error of starting a thread.
    pub fn start(drivers: Arc<[Driver]>, events: Arc<impl Events>) -> std::io::Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let thread = thread::Builder::new()
            .name("adapter".to_owned())
            .spawn(move || run(&drivers, &*events, &seen))?;
        Ok(Self { ends, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, its message has been printed.
            let _panicked = thread.join();
        }
    }
}

fn run(drivers: &[Driver], events: &dyn Events, ends: &AtomicBool) {
    // The main thread handles signals.
    let _masked = SigSet::all().thread_block();
    let (mut worked, mut beaten) = (Instant::now(), Instant::now());
    while !ends.load(Ordering::Relaxed) {
        let mut busy = false;
        for (place, driver) in drivers.iter().enumerate() {
            busy |= poll(driver);
            while let Some((kind, id)) = driver.event() {
                busy = true;
                events.event(place, kind, id);
            }
        }
        events.retry();
        let now = Instant::now();
        if now.duration_since(beaten) >= Duration::from_millis(HEARTBEAT_PERIOD_MS.into()) {
            drivers.iter().for_each(|driver| driver.adapter().beat());
            beaten = now;
        }
        if busy {
            worked = now;
        } else if !events.is_used() {
            thread::sleep(UNUSED);
        } else if let Some(nap) = nap(now.duration_since(worked)) {
            thread::sleep(nap);
        } else {
            thread::yield_now();
        }
    }
}

/// Polls an adapter. Returns whether it had work. A bug in the adapter ends the process, and its
/// program with it, which would wait for ever.
fn poll(driver: &Driver) -> bool {
    let polled = catch_unwind(AssertUnwindSafe(|| driver.adapter().poll(0).busy));
    match polled {
        Ok(busy) if !driver.host().has_failed() => busy,
        _ => {
            eprintln!("vrnic exec: the adapter has failed because of a bug");
            std::process::abort()
        }
    }
}

/// Returns the pause after this time without work.
fn nap(idle: Duration) -> Option<Duration> {
    if idle < SPIN {
        return None;
    }
    NAPS.iter().find(|(_, until)| idle < *until).map(|(nap, _)| *nap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_time_without_work() {
        assert_eq!(nap(Duration::ZERO), None);
        let idle = [1, 50, 2000].map(Duration::from_millis);
        let naps = idle.map(|idle| nap(idle).expect("a pause"));
        assert!(naps.is_sorted() && naps[0] < naps[2]);
    }
}
