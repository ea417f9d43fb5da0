//! The engine by which workers run the switch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use vrnic_adapter::slice::SLICE;
use vrnic_packet::Nanos;

use super::handle::Shared;
use super::switch::Switch;
use super::turn::{SHORT_TIME, TIME};
use crate::worker::engine::{Engine, Polled};
use crate::worker::pool::now;

/// Time without frames after which a worker leaves the switch to its thread. A peer usually answers
/// earlier.
const IDLE_TIMEOUT: Duration = Duration::from_millis(1);

/// Runs the switch while adapters send and receive packets. Only one worker does this at a time.
pub(super) struct Attendant {
    switch: Arc<Mutex<Switch>>,
    shared: Arc<Shared>,
    /// The time of the last frame.
    worked: AtomicU64,
    /// True if the switch has panicked in a worker. From then on only the switch's thread runs it,
    /// so that another panic cannot end a worker.
    broken: AtomicBool,
}

impl Attendant {
    pub(super) fn new(switch: Arc<Mutex<Switch>>, shared: Arc<Shared>) -> Self {
        Self { switch, shared, worked: AtomicU64::new(0), broken: AtomicBool::new(false) }
    }

    /// Wakes the thread, which takes over all work of the switch.
    #[cold]
    fn leave_to_thread(&self) {
        let _woken_anyway = self.shared.attendance.leave();
        self.shared.bell.step();
    }
}

impl Engine for Attendant {
    #[inline]
    fn poll(&self, length: Duration) -> Polled {
        if !self.shared.attendance.is_due() {
            return Polled::default();
        }
        if self.broken.load(Ordering::Relaxed) {
            self.leave_to_thread();
            return Polled::default();
        }
        let Some(mut switch) = self.switch.try_lock() else { return Polled::default() };
        if self.shared.attendance.attend() {
            self.shared.bell.step();
        }
        let time = if length < SLICE { SHORT_TIME } else { TIME };
        let start = now();
        let served = catch_unwind(AssertUnwindSafe(|| switch.serve_wires(time)));
        if served.is_err() {
            switch.recover();
        }
        drop(switch);
        let Ok(served) = served else {
            tracing::error!(
                "the Ethernet switch panicked in a worker; now only its thread runs it"
            );
            self.broken.store(true, Ordering::Relaxed);
            self.leave_to_thread();
            return Polled::default();
        };
        let now = now();
        if served.sent {
            self.worked.store(now.0, Ordering::Relaxed);
        }
        let idle = now.since(Nanos(self.worked.load(Ordering::Relaxed))) > IDLE_TIMEOUT;
        if idle || served.for_thread {
            let _woken_anyway = self.shared.attendance.leave();
        }
        // The thread may have been waiting for a wake-up that this turn has taken.
        if served.for_thread || !self.shared.attendance.is_attended() {
            self.shared.bell.step();
        }
        Polled {
            busy: served.any,
            spent: if served.any { now.0.saturating_sub(start.0) } else { 0 },
        }
    }

    fn set_asleep(&self, asleep: bool) {
        if !asleep {
            self.shared.attendance.begin();
        } else if self.shared.attendance.fall_asleep() {
            self.shared.bell.step();
        }
    }

    fn has_work(&self) -> bool {
        self.shared.attendance.has_work() && !self.broken.load(Ordering::Relaxed)
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }
}
