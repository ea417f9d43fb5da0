// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A spin lock: posting and polling hold it for some tens of nanoseconds and must not enter the
//! kernel, which rules out a mutex that sleeps.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The threads that may take a lock.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    one_thread: bool,
}

impl Sharing {
    /// Any number of threads use the object.
    pub const ANY: Self = Self { one_thread: false };

    /// Returns the sharing of an object that one thread uses at a time, as the user has promised
    /// (`ibv_alloc_td`).
    ///
    /// # Safety
    /// No two threads may use a lock of this kind, or what holds it, at the same time.
    #[must_use]
    pub const unsafe fn one_thread() -> Self {
        Self { one_thread: true }
    }
}

/// A value that one thread at a time may touch.
#[derive(Debug)]
pub struct SpinLock<T> {
    taken: AtomicBool,
    one_thread: bool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one thread at a time (where it does not check, the maker of
// its `Sharing` has promised it), so the value must only be sendable.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// Creates a free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self::shared_by(Sharing::ANY, value)
    }

    /// Creates a free lock around `value` for the threads in `sharing`.
    pub const fn shared_by(sharing: Sharing, value: T) -> Self {
        let one_thread = sharing.one_thread;
        Self { taken: AtomicBool::new(false), one_thread, value: UnsafeCell::new(value) }
    }

    /// Waits for the lock. Not recursive.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        // A locked instruction costs more than the rest of a post. While there is one thread, in
        // the process or by promise, no other thread can take the lock between the load and the
        // store.
        if (self.one_thread || is_single_threaded()) && !self.taken.load(Ordering::Relaxed) {
            self.taken.store(true, Ordering::Relaxed);
        } else {
            self.compete();
        }
        Guard { lock: self }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let taken = self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Guard { lock: self })
    }

    #[inline]
    fn compete(&self) {
        while self
            .taken
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            // Waits with plain loads, which leave the cache line with its owner.
            while self.taken.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
    }
}

/// Returns a number that no other thread has while this one lives.
pub(crate) fn thread() -> usize {
    thread_local! {
        /// A byte of the thread, whose address is the number.
        static PLACE: u8 = const { 0 };
    }
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

/// Returns whether this process has only one thread. Only that thread can start another, so the
/// answer holds until it does. Starting a thread orders the stores before it.
#[inline]
fn is_single_threaded() -> bool {
    unsafe extern "C" {
        /// A variable of the C library (glibc 2.32, `sys/single_threaded.h`): not zero while there
        /// is only one thread.
        static __libc_single_threaded: AtomicU8;
    }
    // SAFETY: defined by the C library as a `char`, which an atomic of this size may stand for. It
    // is written by the only thread when that starts another one.
    unsafe { __libc_single_threaded.load(Ordering::Relaxed) != 0 }
}

/// Access to the value of a [`SpinLock`], which is freed on drop.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so no other reference to the value exists.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and `&mut self` is its only borrow, so no other
        // reference to the value exists.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn one_thread_takes_and_frees_without_competing() {
        // SAFETY: only this thread has it.
        let lock = SpinLock::shared_by(unsafe { Sharing::one_thread() }, 1);
        for _ in 0..3 {
            let mut guard = lock.lock();
            assert!(lock.taken.load(Ordering::Relaxed));
            *guard += 1;
        }
        assert!(!lock.taken.load(Ordering::Relaxed));
        assert_eq!(*lock.lock(), 4);
        let guard = lock.try_lock().expect("free");
        assert!(lock.try_lock().is_none() && lock.try_lock().is_none());
        drop(guard);
        assert_eq!(lock.try_lock().as_deref(), Some(&4));
    }

    #[test]
    fn increments_of_many_threads_all_count() {
        let counter = Arc::new(SpinLock::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let counter = counter.clone();
                thread::spawn(move || {
                    for _ in 0..20_000 {
                        let mut guard = counter.lock();
                        // A read and a write apart, so that two holders would lose counts.
                        let seen = std::hint::black_box(*guard);
                        *guard = seen + 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(*counter.lock(), 80_000);
    }
}
