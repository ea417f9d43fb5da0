//! The engines that a worker polls: a list that others change while the worker runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::engine::Engine;
use super::waker::Waker;

/// A list of engines.
type List = Vec<Arc<dyn Engine>>;

/// The engines of a worker, as others see them.
pub struct Engines {
    list: Mutex<List>,
    /// Stepped after each change of the list.
    changes: AtomicU64,
    waker: Arc<Waker>,
}

/// The worker's copy of the list.
pub struct Polled {
    list: List,
    changes: u64,
}

impl Engines {
    /// No engines, for the worker that `waker` wakes.
    #[must_use]
    pub fn new(waker: Arc<Waker>) -> Self {
        Self { list: Mutex::default(), changes: AtomicU64::new(0), waker }
    }

    /// Returns what wakes the worker.
    #[must_use]
    pub const fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Appends an engine. The worker polls it from its next turn on.
    pub fn add(&self, engine: Arc<dyn Engine>) {
        self.change(|list| list.push(engine));
    }

    /// Removes an engine. The worker gives it up at its next turn.
    pub fn remove(&self, engine: &Arc<dyn Engine>) {
        let gone = Arc::as_ptr(engine);
        self.change(|list| list.retain(|other| !std::ptr::addr_eq(Arc::as_ptr(other), gone)));
    }

    fn change(&self, change: impl FnOnce(&mut List)) {
        let mut list = self.list.lock();
        change(&mut list);
        self.changes.fetch_add(1, Ordering::SeqCst);
        drop(list);
        // A worker that sleeps has not counted itself asleep for a new engine, so nobody would wake
        // it for that.
        self.waker.unpark();
    }

    /// Returns the list.
    #[must_use]
    pub fn polled(&self) -> Polled {
        let list = self.list.lock();
        Polled { list: list.clone(), changes: self.changes.load(Ordering::SeqCst) }
    }
}

impl Polled {
    /// Returns whether the list of `engines` has changed.
    #[inline]
    #[must_use]
    pub fn is_old(&self, engines: &Engines) -> bool {
        self.changes != engines.changes.load(Ordering::Relaxed)
    }

    /// Returns the engines.
    #[inline]
    #[must_use]
    pub fn list(&self) -> &[Arc<dyn Engine>] {
        &self.list
    }
}
