//! The thread that runs the adapters: it polls them, and hands their events on.

use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;
use vrnic_abi::eq::Kind;
use vrnic_abi::regs::HEARTBEAT_PERIOD_MS;
use vrnic_adapter::host::Clock;
use vrnic_adapter::poll::Polled;
use vrnic_faults::Rules;
use vrnic_packet::Nanos;

use super::driver::Driver;
use super::pause::{Idle, NAP, Pause};
use super::waker::Waker;
use crate::signals::mask_signals;

/// The time between two looks at rules for faults.
const RULES_PERIOD: Duration = Duration::from_millis(1);
/// The longest sleep while no program has opened an adapter: the heart must beat.
const UNUSED: Duration = Duration::from_millis(HEARTBEAT_PERIOD_MS as u64 / 2);

/// What the worker tells of the adapters.
pub trait Events: Send + Sync + 'static {
    /// Handles an event of an adapter, by its place in the list: its kind, and the number of its
    /// object.
    fn event(&self, adapter: usize, kind: Kind, id: u32);

    /// Says that messages wait at queue pair 1 of an adapter. Called again until they are taken.
    fn messages(&self);

    /// Tries again what could not be handed on. Called after each poll.
    fn retry(&self);

    /// Returns whether a program uses an adapter.
    fn is_used(&self) -> bool;
}

/// The running thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Worker {
    ends: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread for these adapters.
    ///
    /// # Errors
    /// The error of starting a thread.
    pub fn start(
        drivers: Arc<[Driver]>,
        events: Arc<impl Events>,
        waker: &Arc<Waker>,
        rules: Arc<Rules>,
    ) -> std::io::Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let (seen, sleeps) = (Arc::clone(&ends), Arc::clone(waker));
        let thread = thread::Builder::new()
            .name("adapter".to_owned())
            .spawn(move || run(&drivers, &*events, &sleeps, &rules, &seen))?;
        Ok(Self { ends, waker: Arc::clone(waker), thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, its message has been printed.
            let _panicked = thread.join();
        }
    }
}

fn run(drivers: &[Driver], events: &dyn Events, waker: &Waker, rules: &Rules, ends: &AtomicBool) {
    mask_signals();
    let _exact = set_current_timer_slack(NonZeroU64::new(1));
    let mut beaten = Instant::now();
    let (mut pause, mut ruled) = (Pause::new(beaten), beaten);
    let writes = || drivers.first().map_or(0, |driver| driver.host().spaces().writes());
    while !ends.load(Ordering::Relaxed) {
        let work = round(drivers, events);
        let now = Instant::now();
        if now.duration_since(beaten) >= Duration::from_millis(HEARTBEAT_PERIOD_MS.into()) {
            drivers.iter().for_each(|driver| driver.adapter().beat());
            beaten = now;
        }
        if rules.any() && now.duration_since(ruled) >= RULES_PERIOD {
            // Commands that are due are executed by the thread that waits for them.
            let due = drivers.iter().filter(|driver| driver.adapter().run_faults().again);
            let _number = due.count();
            ruled = now;
        }
        if work.busy {
            pause.worked(now);
            continue;
        }
        match pause.idle(now) {
            Idle::Poll if events.is_used() => std::hint::spin_loop(),
            Idle::Nap => {
                let before = writes();
                thread::sleep(NAP);
                let _work = round(drivers, events);
                pause.napped(Instant::now(), writes().wrapping_sub(before));
            }
            _ => {
                let most = if events.is_used() { pause.longest(now) } else { UNUSED };
                let work = sleep(drivers, events, waker, most, ends);
                let after = Instant::now();
                pause.slept(after, after.duration_since(now), work);
            }
        }
    }
}

/// The result of a round.
#[derive(Clone, Copy, Default)]
struct Work {
    /// True if there was any.
    busy: bool,
    /// The time of the next one, if no doorbell is rung.
    deadline: Option<Nanos>,
}

/// Polls all adapters, and hands their events on.
fn round(drivers: &[Driver], events: &dyn Events) -> Work {
    let mut work = Work::default();
    for (place, driver) in drivers.iter().enumerate() {
        let polled = poll(driver);
        work.busy |= polled.busy;
        work.deadline = work.deadline.into_iter().chain(polled.deadline).min();
        while let Some((kind, id)) = driver.event() {
            work.busy = true;
            events.event(place, kind, id);
        }
        if driver.gsi().has_received(driver.host()) {
            events.messages();
        }
    }
    events.retry();
    work
}

/// Sleeps until there is work, or for the time `most`. No doorbell is lost: either the last round
/// finds it, or the program rings it after that, sees that the adapter sleeps, and writes to the
/// kick page. Returns whether there is work.
fn sleep(
    drivers: &[Driver],
    events: &dyn Events,
    waker: &Waker,
    most: Duration,
    ends: &AtomicBool,
) -> bool {
    let sleep = waker.prepare();
    drivers.iter().for_each(|driver| driver.adapter().set_asleep(true));
    fence(Ordering::SeqCst);
    let work = round(drivers, events);
    let waits = || drivers.iter().any(|driver| driver.adapter().has_work(0));
    let mut any = work.busy || waits();
    if !any && !ends.load(Ordering::SeqCst) {
        let until = |at: Nanos| {
            let now = drivers.first().map_or(at, |driver| driver.host().now());
            Duration::from_nanos(at.0.saturating_sub(now.0))
        };
        sleep.wait(work.deadline.map_or(most, |at| until(at).min(most)));
        any = waits();
    }
    drop(sleep);
    drivers.iter().for_each(|driver| driver.adapter().set_asleep(false));
    any
}

/// Polls an adapter. A bug in the adapter ends the process, and its
/// program with it, which would wait for ever.
fn poll(driver: &Driver) -> Polled {
    let polled = catch_unwind(AssertUnwindSafe(|| driver.adapter().poll(0)));
    match polled {
        Ok(polled) if !driver.host().has_failed() => polled,
        _ => {
            eprintln!("vrnic exec: the adapter has failed because of a bug");
            std::process::abort()
        }
    }
}
