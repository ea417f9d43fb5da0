// SPDX-License-Identifier: GPL-2.0
//! Workqueues of the driver's own, and waiting for work items.

use core::{ops::Deref, ptr::NonNull};

use kernel::{
    bindings,
    prelude::*,
    str::CStr,
    sync::Arc,
    workqueue::{HasDelayedWork, HasWork, Queue, Work},
};

/// A workqueue. It must not be dropped by one of its own work items.
///
/// # Invariants
///
/// The pointer refers to a workqueue, which this type owns.
pub(crate) struct OwnQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: workqueues may be used and destroyed by any thread.
unsafe impl Send for OwnQueue {}
// SAFETY: the functions of workqueues may be called by several threads at a time.
unsafe impl Sync for OwnQueue {}

impl OwnQueue {
    /// Creates a queue whose work also runs while the machine is being suspended, and when memory
    /// is short: what frees memory may wait for it.
    pub(crate) fn new(name: &'static CStr) -> Result<Arc<Self>> {
        Self::with_flags(name, bindings::wq_flags_WQ_MEM_RECLAIM)
    }

    /// Creates a queue that stands still while the machine is suspended. Its work may wait for that
    /// of the RDMA core, whose queue has no `WQ_MEM_RECLAIM`.
    pub(crate) fn freezable(name: &'static CStr) -> Result<Arc<Self>> {
        Self::with_flags(name, bindings::wq_flags_WQ_FREEZABLE)
    }

    /// Creates a queue as [`Self::new`] does, which runs one item at a time, in the order in
    /// which they came.
    pub(crate) fn ordered(name: &'static CStr) -> Result<Arc<Self>> {
        Self::with_flags(name, bindings::wq_flags_WQ_MEM_RECLAIM | bindings::wq_flags___WQ_ORDERED)
    }

    /// Creates a queue whose work may wait for memory.
    pub(crate) fn unbound(name: &'static CStr) -> Result<Arc<Self>> {
        Self::with_flags(name, 0)
    }

    /// Waits until all that was enqueued before has run.
    pub(crate) fn flush(&self) {
        // SAFETY: the queue is alive by the type's invariants.
        unsafe { bindings::__flush_workqueue(self.0.as_ptr()) };
    }

    fn with_flags(name: &'static CStr, flags: bindings::wq_flags) -> Result<Arc<Self>> {
        // Zero stands for the usual number of work items at a time.
        let max_active = i32::from(flags & bindings::wq_flags___WQ_ORDERED != 0);
        let flags = flags | bindings::wq_flags_WQ_UNBOUND;
        // SAFETY: the format takes one string, which is copied.
        let raw = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                flags,
                max_active,
                name.as_char_ptr(),
            )
        };
        // INVARIANT: it was allocated just now.
        let queue = Self(NonNull::new(raw).ok_or(ENOMEM)?);
        Ok(Arc::new(queue, GFP_KERNEL)?)
    }
}

impl Deref for OwnQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: the queue is alive by the type's invariants.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnQueue {
    fn drop(&mut self) {
        // SAFETY: the type owns the queue by its invariants, and destroys it once.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

/// Runs a delayed work item that is enqueued without further delay, and waits as [`flush`] does. If
/// the item enqueues itself meanwhile, it stays enqueued.
pub(crate) fn flush_delayed<T: HasDelayedWork<T, ID>, const ID: u64>(item: &Arc<T>) {
    let item = Arc::as_ptr(item).cast_mut();
    // SAFETY: `item` keeps the object alive, and with it its work.
    let work = unsafe { T::raw_get_work(item) };
    // SAFETY: the work is alive, and was initialised with the object.
    let work = unsafe { Work::raw_get(work) };
    // SAFETY: the work is part of a `delayed_work`, because the type has delayed work of this
    // number.
    let work = unsafe { kernel::container_of!(work, bindings::delayed_work, work) };
    // SAFETY: the work is alive until `item` is dropped, which the caller does after this.
    unsafe { bindings::flush_delayed_work(work) };
}

/// Waits until a work item that is enqueued has run, and its code, which is part of this module,
/// has left its function.
pub(crate) fn flush<T: HasWork<T, ID>, const ID: u64>(item: &Arc<T>) {
    let item = Arc::as_ptr(item).cast_mut();
    // SAFETY: `item` keeps the object alive, and with it its work.
    let work = unsafe { T::raw_get_work(item) };
    // SAFETY: the work is alive, and was initialised with the object.
    let work = unsafe { Work::raw_get(work) };
    // SAFETY: the work is alive until `item` is dropped, which the caller does after this.
    unsafe { bindings::flush_work(work) };
}
