// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Allocations that may fail (unsafe code). `Box::new` and `Arc::new` abort the process if memory
//! runs out; a plugin must return an error instead.

use std::alloc::{self, Layout};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::io::Errno;

/// Moves a value to the heap.
///
/// # Errors
/// `ENOMEM`.
pub fn boxed<T>(value: T) -> Result<Box<T>, Errno> {
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        // A value of size zero needs no memory.
        return Ok(Box::new(value));
    }
    // SAFETY: the size is not zero.
    let memory: *mut T = unsafe { alloc::alloc(layout) }.cast();
    if memory.is_null() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: new memory of the value's layout from the global allocator, which is where `Box`
    // frees it.
    unsafe {
        memory.write(value);
        Ok(Box::from_raw(memory))
    }
}

/// Copies a list to the heap.
///
/// # Errors
/// `ENOMEM`.
pub fn copied<T: Copy>(items: &[T]) -> Result<Vec<T>, Errno> {
    let mut list = Vec::new();
    list.try_reserve_exact(items.len()).map_err(|_| Errno::NOMEM)?;
    list.extend_from_slice(items);
    Ok(list)
}

/// A value with any number of owners; the last one drops it.
pub struct Shared<T> {
    counted: NonNull<Counted<T>>,
}

struct Counted<T> {
    /// The number of owners. Each clone adds one, so it cannot overflow in the life of a machine.
    owners: AtomicU64,
    value: T,
}

// SAFETY: owners on several threads share the value, and the last one, on any thread, drops it.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: by a reference another thread can become an owner, which may share the value and drop it.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Moves a value to the heap and becomes its only owner.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(value: T) -> Result<Self, Errno> {
        let counted = boxed(Counted { owners: AtomicU64::new(1), value })?;
        Ok(Self { counted: NonNull::from(Box::leak(counted)) })
    }

    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: made in `new`, and alive as long as it has an owner, such as `self`.
        unsafe { self.counted.as_ref() }
    }

    /// Returns whether there is no other owner.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.counted().owners.load(Ordering::Acquire) == 1
    }

    /// Returns whether both own the same value.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.counted == other.counted
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        self.counted().owners.fetch_add(1, Ordering::Relaxed);
        Self { counted: self.counted }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if self.counted().owners.fetch_sub(1, Ordering::Release) == 1 {
            // The other owners' accesses to the value come before its end.
            fence(Ordering::Acquire);
            // SAFETY: made by `boxed` in `new`, and the last owner is going.
            drop(unsafe { Box::from_raw(self.counted.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    /// A value that counts how many of its kind have been dropped.
    struct Ends<'a>(&'a AtomicU32);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_last_owner_drops_the_value() {
        let ends = AtomicU32::new(0);
        let first = Shared::new(Ends(&ends)).expect("memory");
        assert!(first.is_unique());
        thread::scope(|scope| {
            for _ in 0..4 {
                let other = first.clone();
                assert!(other.is_same(&first) && !first.is_unique());
                scope.spawn(move || (0..1000).for_each(|_| drop(other.clone())));
            }
        });
        assert!(first.is_unique());
        assert_eq!(ends.load(Ordering::Relaxed), 0);
        drop(first);
        assert_eq!(ends.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn values_keep_their_alignment_and_need_no_size() {
        #[repr(align(128))]
        struct Wide(u8);
        let wide = Shared::new(Wide(7)).expect("memory");
        assert_eq!((&raw const *wide).addr() % 128, 0);
        assert_eq!(wide.0, 7);
        let none = [Shared::new(()).expect("memory"), Shared::new(()).expect("memory")];
        assert!(!none[0].is_same(&none[1]));
        boxed(()).expect("no memory is needed");
    }
}
