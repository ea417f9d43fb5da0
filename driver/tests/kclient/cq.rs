// SPDX-License-Identifier: GPL-2.0
//! Completion queues.

use core::ptr::NonNull;

use kernel::{error::from_err_ptr, new_mutex, prelude::*, sync::Arc, sync::Mutex};

use super::{pd::Device, request::Request};
use crate::bindings;

/// The context in which completions are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Poll {
    /// In the task that waits.
    Direct = bindings::ib_poll_context_IB_POLL_DIRECT,
    /// In soft interrupts.
    Softirq = bindings::ib_poll_context_IB_POLL_SOFTIRQ,
    /// In a work queue.
    Workqueue = bindings::ib_poll_context_IB_POLL_WORKQUEUE,
}

/// The core's queue, freed on drop.
///
/// # Invariants
///
/// The pointer refers to a queue of the device, which this type owns. Queue pairs that complete to
/// it keep this.
struct Raw {
    cq: NonNull<bindings::ib_cq>,
    /// True if the core has allocated what polls it too.
    pooled: bool,
    #[allow(dead_code, reason = "kept")]
    device: Arc<dyn Device>,
}

// SAFETY: the core allows a completion queue to be used and freed by any thread.
unsafe impl Send for Raw {}
// SAFETY: shared uses are creating queue pairs, for which the core has locks, and polling, which
// `Cq::take` does under a lock.
unsafe impl Sync for Raw {}

impl Drop for Raw {
    fn drop(&mut self) {
        let cq = self.cq.as_ptr();
        if self.pooled {
            // SAFETY: by the type's invariants the queue is this type's own, and no queue pair uses
            // it. On return no completion is being handled.
            unsafe { bindings::ib_free_cq(cq) };
        } else {
            // SAFETY: by the type's invariants the queue is this type's own, and no queue pair uses
            // it. Nothing handles completions of such a queue but `Cq::take`.
            let _ = unsafe { bindings::ib_destroy_cq_user(cq, core::ptr::null_mut()) };
        }
    }
}

/// The requests for which completions may arrive. They are dropped when no completion can arrive
/// any more.
struct Requests(KVec<Arc<Request>>);

impl Drop for Requests {
    fn drop(&mut self) {
        self.0.iter().for_each(|request| request.free());
    }
}

/// A completion queue.
#[pin_data]
pub struct Cq {
    // This is dropped before the requests that it names.
    raw: Raw,
    poll: Poll,
    /// The request to which requests complete that do so only if they fail.
    silent: Arc<Request>,
    #[pin]
    requests: Mutex<Requests>,
}

impl Cq {
    /// Creates a queue for this many completions.
    pub fn new(device: Arc<dyn Device>, entries: u32, poll: Poll) -> Result<Arc<Self>> {
        let silent = Request::new()?;
        let raw = device.as_raw().as_ptr();
        let (null, entries) = (core::ptr::null_mut(), i32::try_from(entries)?);
        // CAST: the enum's number.
        let context = poll as u32;
        let name = device.owner().as_char_ptr();
        // SAFETY: the device is registered, as `device` is alive; the name is static.
        let raw = unsafe { bindings::__ib_alloc_cq(raw, null, entries, 0, context, name) };
        let cq = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // INVARIANT: the queue was allocated just now, for this caller.
        Self::of(Raw { cq, pooled: true, device }, poll, silent)
    }

    /// Creates a holding queue of a vrnic adapter for this many completions, which are taken by
    /// [`Self::take`].
    pub fn holding(device: Arc<dyn Device>, entries: u32) -> Result<Arc<Self>> {
        let silent = Request::new()?;
        let attr = bindings::ib_cq_init_attr {
            cqe: entries,
            comp_vector: 0,
            flags: bindings::VRNIC_CQ_HOLDING,
        };
        let (raw, name) = (device.as_raw().as_ptr(), device.owner().as_char_ptr());
        let null = core::ptr::null_mut();
        // SAFETY: the device is registered, as `device` is alive; the core copies the attributes,
        // and the name is static. There are no handlers.
        let raw = unsafe { bindings::__ib_create_cq(raw, None, None, null, &attr, name) };
        let cq = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // INVARIANT: the queue was created just now, for this caller.
        Self::of(Raw { cq, pooled: false, device }, Poll::Direct, silent)
    }

    fn of(raw: Raw, poll: Poll, silent: Arc<Request>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                raw,
                poll,
                silent,
                requests <- new_mutex!(Requests(KVec::new()), "kclient::Cq"),
            }),
            GFP_KERNEL,
        )
    }

    /// Keeps a request that is to be posted to a queue pair of this.
    pub(super) fn keep(&self, request: &Arc<Request>) -> Result {
        let mut requests = self.requests.lock();
        if !requests.0.iter().any(|known| Arc::ptr_eq(known, request)) {
            requests.0.push(request.clone(), GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Returns the place of requests for which no task waits. If one of them fails, this is logged.
    pub(super) fn silent(&self) -> &Request {
        &self.silent
    }

    /// Returns the context in which its completions are taken.
    pub fn poll(&self) -> Poll {
        self.poll
    }

    /// Takes the completions of a queue that is [`Poll::Direct`].
    pub fn take(&self) {
        if self.poll == Poll::Direct {
            // No other thread may poll at the same time.
            let _requests = self.requests.lock();
            // SAFETY: by the invariants of `Raw` the queue is alive. It was made to be polled
            // directly, and the lock lets one thread do so at a time.
            unsafe { bindings::ib_process_cq_direct(self.as_raw(), -1) };
        }
    }

    /// Returns the core's struct, valid as long as this.
    pub fn as_raw(&self) -> *mut bindings::ib_cq {
        self.raw.cq.as_ptr()
    }
}
