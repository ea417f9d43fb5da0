//! A thread that lets adapters do what rules for faults demand by time, while there are such rules.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use parking_lot::{Condvar, Mutex};
use vrnic_faults::Rules;

use crate::hosted::roster::Roster;

/// The time between two calls of the adapters.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The thread, which the first rule starts. On drop it ends.
#[derive(Debug)]
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    rules: Arc<Rules>,
    roster: Arc<Roster>,
    ended: Mutex<bool>,
    /// Notified when a rule was added, and at the end.
    bell: Condvar,
}

impl Ticker {
    /// Returns one whose thread does not run yet.
    pub(super) fn new(rules: &Arc<Rules>, roster: &Arc<Roster>) -> Self {
        let (rules, roster) = (Arc::clone(rules), Arc::clone(roster));
        let shared = Shared { rules, roster, ended: Mutex::new(false), bell: Condvar::new() };
        Self { shared: Arc::new(shared), thread: Mutex::default() }
    }

    /// Starts the thread, unless it runs.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub(super) fn start(&self) -> anyhow::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("fault-ticker".into());
            *thread = Some(builder.spawn(move || shared.run()).context("cannot start a thread")?);
        }
        Ok(())
    }

    /// Returns what wakes the thread.
    pub(super) fn bell(&self) -> Bell {
        Bell(Arc::clone(&self.shared))
    }
}

/// What wakes the thread of a [`Ticker`].
#[derive(Debug)]
pub(super) struct Bell(Arc<Shared>);

impl Bell {
    /// Lets the thread know that rules have changed.
    pub(super) fn ring(&self) {
        // Between its look at the rules and its wait, the thread has the lock.
        let _ended = self.0.ended.lock();
        self.0.bell.notify_one();
    }
}

impl Shared {
    fn run(&self) {
        let mut ended = self.ended.lock();
        while !*ended {
            drop(ended);
            let adapters = self.roster.all();
            let again = adapters.iter().fold(false, |again, hosted| hosted.run_faults() | again);
            ended = self.ended.lock();
            if *ended {
                return;
            }
            if again || self.rules.any() {
                let _over = self.bell.wait_for(&mut ended, POLL_INTERVAL);
            } else {
                self.bell.wait(&mut ended);
            }
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.shared.ended.lock() = true;
        self.shared.bell.notify_all();
        if self.thread.lock().take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread for rules for faults panicked");
        }
    }
}
