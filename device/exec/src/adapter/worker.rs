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
use super::switch::Switch;
use super::waker::Waker;
use crate::signals::mask_signals;

/// The time between two looks at rules for faults.
const RULES_PERIOD: Duration = Duration::from_millis(1);
/// The longest sleep while no program has opened an adapter: the heart must beat.
const UNUSED: Duration = Duration::from_millis(HEARTBEAT_PERIOD_MS as u64 / 2);

/// Maximum number of rounds at the end.
const LAST_ROUNDS: usize = 1000;

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
    /// Starts the thread for these adapters. It also runs a switch while it is awake.
    ///
    /// # Errors
    /// The error of starting a thread.
    pub fn start(
        drivers: Arc<[Driver]>,
        events: Arc<impl Events>,
        waker: &Arc<Waker>,
        rules: Arc<Rules>,
        switch: Option<Arc<dyn Switch>>,
    ) -> std::io::Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let (seen, sleeps) = (Arc::clone(&ends), Arc::clone(waker));
        let thread = thread::Builder::new().name("adapter".to_owned()).spawn(move || {
            let engines =
                Engines { drivers: &drivers, events: &*events, switch: switch.as_deref() };
            run(&engines, &sleeps, &rules, &seen);
        })?;
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

/// What the worker runs, and what it tells of that.
struct Engines<'a> {
    drivers: &'a [Driver],
    events: &'a dyn Events,
    switch: Option<&'a dyn Switch>,
}

fn run(engines: &Engines<'_>, waker: &Waker, rules: &Rules, ends: &AtomicBool) {
    let Engines { drivers, events, switch } = *engines;
    mask_signals();
    let _exact = set_current_timer_slack(NonZeroU64::new(1));
    let mut beaten = Instant::now();
    let (mut pause, mut ruled) = (Pause::new(beaten), beaten);
    let writes = || drivers.first().map_or(0, |driver| driver.host().spaces().writes());
    if let Some(switch) = switch {
        switch.set_asleep(false);
    }
    while !ends.load(Ordering::Relaxed) {
        let work = engines.round();
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
                let _work = engines.round();
                pause.napped(Instant::now(), writes().wrapping_sub(before));
            }
            _ => {
                let most = if events.is_used() { pause.longest(now) } else { UNUSED };
                let work = engines.sleep(waker, most, ends);
                let after = Instant::now();
                pause.slept(after, after.duration_since(now), work);
            }
        }
    }
    // Peers hear of connections that have ended with their programs.
    let _rounds = (0..LAST_ROUNDS).take_while(|_| engines.round().busy).count();
    if let Some(switch) = switch {
        switch.set_asleep(true);
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

impl Engines<'_> {
    /// Polls all adapters and the switch, and hands events on.
    fn round(&self) -> Work {
        let mut work = Work::default();
        for (place, driver) in self.drivers.iter().enumerate() {
            let polled = poll(driver);
            work.busy |= polled.busy;
            work.deadline = work.deadline.into_iter().chain(polled.deadline).min();
            while let Some((kind, id)) = driver.event() {
                work.busy = true;
                self.events.event(place, kind, id);
            }
            if driver.gsi().has_received(driver.host()) {
                self.events.messages();
            }
        }
        work.busy |= self.switch.is_some_and(Switch::poll);
        self.events.retry();
        work
    }

    /// Sleeps until there is work, or for the time `most`. No doorbell is lost: either the last
    /// round finds it, or the program rings it after that, sees that the adapter sleeps, and writes
    /// to the kick page. Returns whether there is work.
    fn sleep(&self, waker: &Waker, most: Duration, ends: &AtomicBool) -> bool {
        let sleep = waker.prepare();
        self.set_asleep(true);
        fence(Ordering::SeqCst);
        let work = self.round();
        let waits = || {
            self.drivers.iter().any(|driver| driver.adapter().has_work(0))
                || self.switch.is_some_and(Switch::has_work)
        };
        let mut any = work.busy || waits();
        if !any && !ends.load(Ordering::SeqCst) {
            let until = |at: Nanos| {
                let now = self.drivers.first().map_or(at, |driver| driver.host().now());
                Duration::from_nanos(at.0.saturating_sub(now.0))
            };
            sleep.wait(work.deadline.map_or(most, |at| until(at).min(most)));
            any = waits();
        }
        drop(sleep);
        self.set_asleep(false);
        any
    }

    /// Tells programs and the switch whether the worker sleeps.
    fn set_asleep(&self, asleep: bool) {
        self.drivers.iter().for_each(|driver| driver.adapter().set_asleep(asleep));
        if let Some(switch) = self.switch {
            switch.set_asleep(asleep);
        }
    }
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
