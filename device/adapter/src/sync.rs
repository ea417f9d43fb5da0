//! The locks and atomics of the code that the models run ([docs/testing.md]): those of the standard
//! library and of parking_lot or, with `--cfg loom`, their counterparts in loom.
//!
//! [docs/testing.md]: ../../../docs/testing.md

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};

    pub(crate) use parking_lot::Mutex;
}

#[cfg(loom)]
mod real {
    use std::sync::PoisonError;

    use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

    /// A lock that is never poisoned.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// Creates a lock.
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        /// Acquires the lock.
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

pub(crate) use self::real::*;

/// Words that are always read and written together with the modelled word next to them. To model
/// each of them as well would multiply the number of orders to try.
pub(crate) mod beside {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};
}
