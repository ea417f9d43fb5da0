//! Containment of panics: a panic in work for an adapter fails that adapter only.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use vrnic_adapter::log_ratelimit::Limiter;

use crate::control::ControlHandle;
use crate::worker::pool::now_ns;

/// Why an adapter fails in whose work there was a panic.
pub const INTERNAL: &str = "vrnicd has a bug, and panicked";

/// Records whether a panic has failed an adapter. Its control thread then resets it, its status
/// says that it has failed, its heartbeat stops, and nothing more is done for it until its guest or
/// its VMM resets it. The other adapters go on.
#[derive(Debug)]
pub struct Failure {
    /// The adapter's name.
    name: String,
    failed: AtomicBool,
    control: ControlHandle,
    limiter: Limiter,
}

impl Failure {
    /// No failure of adapter `name`, whose control thread listens to `control`.
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
            self.limiter.warn(now_ns(), || {
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

    /// Runs a step of the adapter; a panic in it makes the adapter fail, and nothing else.
    pub fn catch<T>(&self, step: impl FnOnce() -> T) -> Option<T> {
        // Locks of the adapter are released by the unwinding, and a reset drops what they guarded.
        catch_unwind(AssertUnwindSafe(step)).inspect_err(|_| self.set(INTERNAL)).ok()
    }

    /// Does the same, unless the adapter has failed.
    pub fn contain<T>(&self, step: impl FnOnce() -> T) -> Option<T> {
        if self.is_set() { None } else { self.catch(step) }
    }
}
