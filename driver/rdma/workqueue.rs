// SPDX-License-Identifier: GPL-2.0
//! Work queues of one's own.
//!
//! C header: `include/linux/workqueue.h`; see `Documentation/core-api/workqueue.rst`.

use core::{ops::Deref, ptr::NonNull};

use kernel::{prelude::*, str::CStr, workqueue::Queue};

use super::bindings;

/// A queue that runs one item at a time, in the order in which they came, also while the kernel waits for memory.
pub(crate) struct OrderedQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: the functions of a work queue may be called on any thread.
unsafe impl Send for OrderedQueue {}
// SAFETY: as above.
unsafe impl Sync for OrderedQueue {}

impl OrderedQueue {
    /// A queue whose workers have this name.
    pub(crate) fn new(name: &'static CStr) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND
            | bindings::wq_flags___WQ_ORDERED
            | bindings::wq_flags_WQ_MEM_RECLAIM;
        // SAFETY: the format `%s` takes one string, which is copied.
        let raw = unsafe {
            bindings::alloc_workqueue_noprof(c"%s".as_char_ptr(), flags, 1, name.as_char_ptr())
        };
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }

    /// Waits until all that was enqueued before has run.
    pub(crate) fn flush(&self) {
        // SAFETY: a live queue.
        unsafe { bindings::__flush_workqueue(self.0.as_ptr()) };
    }
}

impl Deref for OrderedQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: a live queue, until `drop`.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OrderedQueue {
    fn drop(&mut self) {
        // SAFETY: made by `new`; what is still enqueued runs before this returns.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}
