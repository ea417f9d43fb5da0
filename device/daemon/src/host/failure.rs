//! Containment of panics: a panic in work for an adapter fails that adapter only.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use vrnic_adapter::log_ratelimit::Limiter;

use super::control::ControlHandle;
use crate::worker::pool::now;

/// The reason for which an adapter fails when work for it has panicked.
pub const INTERNAL: &str = "vrnicd panicked, which is a bug of vrnicd";

/// Records whether a panic has failed an adapter. The control thread of a failed adapter resets it,
/// its status register reports the failure, its heartbeat stops, and nothing more is done for it
/// until its guest or its VMM resets it. The other adapters are not affected.
#[derive(Debug)]
pub struct Failure {
    /// The adapter's name.
    name: String,
    failed: AtomicBool,
    control: ControlHandle,
    limiter: Limiter,
}

impl Failure {
    /// Returns the record of adapter `name`, which has not failed. `control` wakes its control
    /// thread.
    #[must_use]
    pub fn new(name: &str, control: ControlHandle) -> Self {
        let (failed, limiter) = (AtomicBool::new(false), Limiter::default());
        Self { name: name.to_owned(), failed, control, limiter }
    }

    /// Returns whether the adapter has failed.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Records that the adapter has failed, and logs `why`.
    pub fn set(&self, why: &str) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            self.limiter.warn(now(), || {
                tracing::error!(
                    function = self.name,
                    "the function stops until it is reset: {why}"
                );
            });
            self.control.ask();
        }
    }

    /// Records that the adapter has been reset.
    pub fn clear(&self) {
        self.failed.store(false, Ordering::Release);
    }

    /// Runs a step of the adapter. If it panics, the adapter fails, and the result is none.
    pub fn catch<T>(&self, step: impl FnOnce() -> T) -> Option<T> {
        // Unwinding releases the locks of the adapter, and a reset drops the state that they
        // protect.
        catch_unwind(AssertUnwindSafe(step)).inspect_err(|_| self.set(INTERNAL)).ok()
    }

    /// Runs a step of the adapter as [`Self::catch`] does, unless the adapter has failed.
    pub fn contain<T>(&self, step: impl FnOnce() -> T) -> Option<T> {
        if self.is_set() { None } else { self.catch(step) }
    }
}
