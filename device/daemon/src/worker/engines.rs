//! The list of engines that a worker polls. Other threads change it while the worker runs. A ping
//! counts as a change: the worker answers it when it reads the list again.

use std::sync::Arc;

use parking_lot::Mutex;

use super::engine::Engine;
use super::pulse::{Pinged, Pulse};
use super::waker::Waker;

/// A list of engines.
type List = Vec<Arc<dyn Engine>>;

/// The engines of a worker, as other threads see them.
pub struct Engines {
    list: Mutex<List>,
    /// Counts pings, and changes of the list as pings.
    pulse: Pulse,
    waker: Arc<Waker>,
}

/// The worker's copy of the list.
pub struct Polled {
    list: List,
    /// The number of pings that reading this list answers.
    changes: u64,
}

impl Engines {
    /// Creates an empty list for the worker that `waker` wakes.
    #[must_use]
    pub fn new(waker: Arc<Waker>) -> Self {
        Self { list: Mutex::default(), pulse: Pulse::default(), waker }
    }

    /// Returns the waker of the worker.
    #[must_use]
    pub const fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Appends an engine. The worker polls it from its next turn on.
    pub fn add(&self, engine: Arc<dyn Engine>) {
        self.change(|list| list.push(engine));
    }

    /// Removes an engine. The worker stops to poll it at its next turn.
    pub fn remove(&self, engine: &Arc<dyn Engine>) {
        let gone = Arc::as_ptr(engine);
        self.change(|list| list.retain(|other| !std::ptr::addr_eq(Arc::as_ptr(other), gone)));
    }

    /// Makes the worker read the shares of its engines again.
    pub fn renew(&self) {
        self.change(|_| ());
    }

    fn change(&self, change: impl FnOnce(&mut List)) {
        let mut list = self.list.lock();
        change(&mut list);
        self.pulse.ask();
        drop(list);
        // A sleeping worker has not registered itself as asleep with a new engine, so a doorbell of
        // that engine would not wake it.
        self.waker.unpark();
    }

    /// Returns the list. The caller is the worker, or has not started it yet.
    #[must_use]
    pub fn polled(&self) -> Polled {
        let list = self.list.lock();
        let changes = self.pulse.asked();
        self.pulse.answer(changes);
        Polled { list: list.clone(), changes }
    }
}

impl Pinged for Engines {
    fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    fn wake(&self) {
        self.waker.unpark();
    }
}

impl Polled {
    /// Returns whether the list of `engines` has changed.
    #[inline]
    #[must_use]
    pub fn is_old(&self, engines: &Engines) -> bool {
        self.changes != engines.pulse.asked()
    }

    /// Returns the engines.
    #[inline]
    #[must_use]
    pub fn list(&self) -> &[Arc<dyn Engine>] {
        &self.list
    }
}
