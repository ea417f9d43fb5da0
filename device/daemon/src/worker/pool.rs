//! The worker threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::nanosleep;
use rustix::time::{ClockId, clock_gettime};
pub use vrnic_control::now;
use vrnic_packet::Nanos;

use super::engines::{Engines, Polled};
use super::idle::{IdleConfig, IdlePolicy, IdleStep, NAP};
use super::sleep;
use super::turns::{Clocks, Turns};
use super::waker::Waker;
use crate::memory::stall::Watched;
use crate::os::sys::{self, LoadMeter};

/// Number of polls without work between two readings of the clock.
const POLLS_PER_CLOCK_READ: u32 = 16;

/// The clocks of the present thread.
struct ThreadClocks;

impl Clocks for ThreadClocks {
    #[inline]
    fn now(&self) -> Nanos {
        now()
    }

    fn on_processor(&self) -> Nanos {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        // A time on a processor is not negative.
        Nanos::default().plus(time.try_into().unwrap_or_default())
    }
}

/// Configuration of a worker.
pub struct WorkerSetup {
    /// The engines that it polls in turn.
    pub engines: Arc<Engines>,
    /// The processor it is bound to.
    pub cpu: Option<usize>,
}

/// The running workers. They end on drop.
#[derive(Debug)]
pub struct Pool {
    stop: Arc<AtomicBool>,
    workers: Vec<(Arc<Waker>, JoinHandle<()>)>,
}

impl Pool {
    /// Starts the workers.
    ///
    /// # Errors
    /// Returns an error if no thread can be started, or if a processor to pin to does not exist.
    pub fn start(setups: Vec<WorkerSetup>, idle: &IdleConfig) -> io::Result<Self> {
        let mut this = Self { stop: Arc::new(AtomicBool::new(false)), workers: Vec::new() };
        for (id, setup) in setups.into_iter().enumerate() {
            let waker = Arc::clone(setup.engines.waker());
            let polled = setup.engines.polled();
            let worker = Worker {
                turns: Turns::new(polled.list()),
                polled,
                setup,
                look: if idle.look.is_zero() { Duration::MAX } else { idle.look },
                idle: idle_policy(idle),
                stop: Arc::clone(&this.stop),
            };
            let (report, ready) = std::sync::mpsc::sync_channel(1);
            let thread =
                std::thread::Builder::new().name(format!("worker-{id}")).spawn(move || {
                    let prepared = worker.prepare();
                    let run = prepared.is_ok();
                    let _watched = Watched::begin();
                    // The receiver waits for exactly one message.
                    if report.send(prepared).is_ok() && run {
                        worker.run();
                    }
                })?;
            this.workers.push((waker, thread));
            ready.recv().map_err(io::Error::other)??;
        }
        Ok(this)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for (waker, thread) in self.workers.drain(..) {
            waker.unpark();
            if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
    }
}

fn idle_policy(config: &IdleConfig) -> IdlePolicy<LoadMeter> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let load = LoadMeter::new().inspect_err(|error| tracing::warn!(%error, "the load of the machine is unknown, so workers may spin when CPUs are scarce"));
    IdlePolicy::new(config, cpus, load.ok(), now())
}

/// The state of a worker thread.
struct Worker {
    setup: WorkerSetup,
    polled: Polled,
    turns: Turns,
    look: Duration,
    idle: IdlePolicy<LoadMeter>,
    stop: Arc<AtomicBool>,
}

impl Worker {
    /// Sets the thread's scheduling.
    fn prepare(&self) -> io::Result<()> {
        if let Some(cpu) = self.setup.cpu {
            sys::pin(cpu).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("a worker cannot be pinned to processor {cpu}: {error}"),
                )
            })?;
        }
        // If one of these two fails, the worker is only slower on a busy machine.
        for (what, result) in [
            ("short time slices", sys::set_slice(sys::SLICE_MIN)),
            ("precise timers", sys::set_precise_timers()),
        ] {
            if let Err(error) = result {
                tracing::warn!(%error, "the kernel refuses {what}; workers may be slower on a busy machine");
            }
        }
        // The first reading of a process may call the kernel for the place of the clock. That call
        // must not come in a turn.
        let _time = ThreadClocks.on_processor();
        Ok(())
    }

    fn run(mut self) {
        // The number of polls without work until the next reading of the clock, which costs as much
        // as a poll.
        let mut polls_left = 0;
        while !self.stop.load(Ordering::Relaxed) {
            if self.polled.is_old(&self.setup.engines) {
                self.polled = self.setup.engines.polled();
                self.turns = Turns::new(self.polled.list());
            }
            if self.poll() {
                while self.poll() && !self.is_disturbed() {}
                self.idle.worked(now());
                polls_left = POLLS_PER_CLOCK_READ;
            }
            if polls_left > 0 {
                polls_left -= 1;
                std::hint::spin_loop();
                continue;
            }
            let time = now();
            match self.idle.next_step(time) {
                IdleStep::Spin => polls_left = POLLS_PER_CLOCK_READ,
                IdleStep::Nap => self.nap(time),
                IdleStep::Sleep => self.sleep(),
            }
        }
    }

    #[inline]
    fn poll(&mut self) -> bool {
        self.turns.pass(&ThreadClocks)
    }

    /// Returns whether the worker has to end, or its list of engines has changed.
    #[inline]
    fn is_disturbed(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.polled.is_old(&self.setup.engines)
    }

    /// Returns the duration of the next nap or sleep: until the earliest deadline, at most `limit`.
    fn pause(&self, now: Nanos, limit: Duration) -> Duration {
        let deadline = self.polled.list().iter().filter_map(|engine| engine.deadline()).min();
        deadline.map_or(Duration::MAX, |at| at.since(now)).min(limit)
    }

    fn nap(&mut self, start: Nanos) {
        if let Ok(limit) = self.pause(start, NAP).try_into() {
            // A signal may shorten the nap, which does no harm.
            let _whole = nanosleep(&limit);
        }
        self.idle.rested(now());
    }

    /// Sleeps until woken.
    fn sleep(&mut self) {
        let engines = &self.setup.engines;
        let waker = engines.waker();
        let start = now();
        let work = sleep::sleep(waker, self.polled.list(), &self.stop, || {
            // Each change of the list after this point unparks the worker.
            if !self.polled.is_old(engines) {
                waker.park(self.pause(start, self.look));
            }
        });
        if work {
            self.idle.worked(start);
        } else {
            self.idle.rested(now());
        }
    }
}
