//! The locks and atomics of what the models run ([docs/testing.md]): those of the standard library
//! and of parking_lot or, with `--cfg loom`, loom's of the same shape.
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
        /// A lock that is free.
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        /// Takes it.
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

pub(crate) use self::real::*;

/// Words that the models read and write at once with the modelled word next to them: they are
/// written and read like it, and to model each of them as well would multiply the orders to try.
pub(crate) mod beside {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};
}
