// SPDX-License-Identifier: GPL-2.0
//! Workqueues for work in the background.

use core::{ops::Deref, ptr::NonNull};

use kernel::{bindings, prelude::*, str::CStr, workqueue::Queue};

/// A workqueue whose items run on any processor. What frees memory may wait for them
/// (`WQ_MEM_RECLAIM`).
///
/// When this is dropped, all of its items have run, and their code, which is part of a module that
/// may go, has left its functions.
///
/// # Invariants
///
/// The pointer refers to a workqueue, which this type owns.
pub struct Background(NonNull<bindings::workqueue_struct>);

// SAFETY: workqueues may be used and destroyed by any thread.
unsafe impl Send for Background {}
// SAFETY: the functions of workqueues may be called by several threads at a time.
unsafe impl Sync for Background {}

impl Background {
    /// Creates a queue of this name.
    pub fn new(name: &'static CStr) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM;
        // Zero stands for the usual number of items at a time.
        let (format, max_active, name) = (c"%s".as_char_ptr(), 0_i32, name.as_char_ptr());
        // SAFETY: the format takes one string, which is copied.
        let raw = unsafe { bindings::alloc_workqueue_noprof(format, flags, max_active, name) };
        // INVARIANT: it was allocated just now.
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }

    /// Waits until all items that were enqueued before have run.
    pub fn finish(&self) {
        // SAFETY: the queue is alive by the type's invariants.
        unsafe { bindings::__flush_workqueue(self.0.as_ptr()) };
    }
}

impl Deref for Background {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: the queue is alive by the type's invariants.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // SAFETY: the type owns the queue by its invariants, and destroys it once.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}
