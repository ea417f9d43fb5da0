// SPDX-License-Identifier: GPL-2.0
//! A connection with its queues: what is posted to it.

use core::ptr::NonNull;

use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    time::{Delta, Instant, Monotonic, delay::fsleep, msecs_to_jiffies},
};

use crate::{
    bindings,
    events::Id,
    pages::{Mapped, Pages, Region},
    request::{Outcome, Request},
};

/// Requests outstanding on either queue.
pub(crate) const DEPTH: u32 = 8;
/// Segments of a request.
pub(crate) const SEGMENTS: u32 = 16;
/// How often to look whether the connection has ended.
const LOOK_MS: u32 = 50;
/// Between two looks for completions of a queue that nobody else polls.
const POLL: Delta = Delta::from_micros(50);

/// In which context completions are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Poll {
    /// By whoever waits.
    Direct = bindings::ib_poll_context_IB_POLL_DIRECT,
    /// In soft interrupts.
    Softirq = bindings::ib_poll_context_IB_POLL_SOFTIRQ,
    /// In a work queue.
    Workqueue = bindings::ib_poll_context_IB_POLL_WORKQUEUE,
}

/// A connection, or what becomes one.
pub(crate) struct Connection {
    // Destroyed by `drop`, in this order before the identifier.
    cq: NonNull<bindings::ib_cq>,
    pd: NonNull<bindings::ib_pd>,
    poll: Poll,
    id: Id,
}

// SAFETY: the core's objects may be used by any thread.
unsafe impl Send for Connection {}

impl Connection {
    /// Makes the queues of an identifier whose device is known.
    pub(crate) fn new(id: Id, poll: Poll) -> Result<Self> {
        let device = device_of(&id)?.as_ptr();
        let name = c"vrnic_kping".as_char_ptr();
        // One more than requests on either queue, which draining posts.
        let entries = i32::try_from(2 * (DEPTH + 1))?;
        // SAFETY: the identifier keeps its device. What was made is destroyed on failure.
        unsafe {
            let pd = NonNull::new(from_err_ptr(bindings::kping_alloc_pd(device))?).ok_or(ENOMEM)?;
            // CAST: the enum's number.
            let context = poll as u32;
            let null = core::ptr::null_mut();
            let cq = bindings::__ib_alloc_cq(device, null, entries, 0, context, name);
            let cq = from_err_ptr(cq).inspect_err(|_| bindings::kping_dealloc_pd(pd.as_ptr()))?;
            let made =
                to_result(bindings::kping_create_qp(id.as_raw(), pd.as_ptr(), cq, DEPTH, SEGMENTS));
            made.inspect_err(|_| {
                bindings::ib_free_cq(cq);
                bindings::kping_dealloc_pd(pd.as_ptr());
            })?;
            Ok(Self { cq: NonNull::new(cq).ok_or(ENOMEM)?, pd, poll, id })
        }
    }

    /// Its identifier.
    pub(crate) fn id(&self) -> &Id {
        &self.id
    }

    fn qp(&self) -> *mut bindings::ib_qp {
        // SAFETY: `new` has made one, which is there until `drop`.
        unsafe { (*self.id.as_raw()).qp }
    }

    /// The key of all of the machine's memory, for this side's own requests.
    fn lkey(&self) -> u32 {
        // SAFETY: live.
        unsafe { (*self.pd.as_ptr()).local_dma_lkey }
    }

    /// Pages for messages and for the ends of READs and WRITEs.
    ///
    /// # Safety
    ///
    /// To be dropped when nothing is outstanding that names them, and before the connection.
    pub(crate) unsafe fn map(&self, pages: Pages) -> Result<Mapped> {
        // SAFETY: by the caller's promise.
        unsafe { Mapped::new(device_of(&self.id)?, pages) }
    }

    /// Pages for the peer.
    ///
    /// # Safety
    ///
    /// As for [`Self::map`].
    pub(crate) unsafe fn region(&self, pages: Pages) -> Result<Region> {
        // SAFETY: by the caller's promise.
        unsafe { Region::new(device_of(&self.id)?, self.pd, pages) }
    }

    /// Posts a receive of a message of `length` bytes.
    pub(crate) fn receive(&self, request: &Request, into: &Mapped, length: usize) -> Result {
        let mut list = into.segments(length, self.lkey())?;
        // SAFETY: live; the list is copied.
        to_result(unsafe {
            bindings::kping_post_recv(self.qp(), request.cqe(), list.as_mut_ptr(), count(&list)?)
        })
    }

    /// Posts a message, which invalidates a key of the peer unless that is zero.
    pub(crate) fn send(
        &self,
        request: &Request,
        from: &Mapped,
        length: usize,
        invalidate: u32,
    ) -> Result {
        let mut list = from.segments(length, self.lkey())?;
        let (qp, cqe) = (self.qp(), request.cqe());
        // SAFETY: live; the list is copied.
        to_result(unsafe {
            bindings::kping_post_send(qp, cqe, list.as_mut_ptr(), count(&list)?, invalidate)
        })
    }

    /// Posts a WRITE from, or a READ into, pages of this side.
    pub(crate) fn rdma(
        &self,
        request: &Request,
        pages: &Mapped,
        length: usize,
        write: bool,
        (address, key): (u64, u32),
    ) -> Result {
        let mut list = pages.segments(length, self.lkey())?;
        let (qp, cqe) = (self.qp(), request.cqe());
        // SAFETY: live; the list is copied.
        to_result(unsafe {
            let count = count(&list)?;
            bindings::kping_post_rdma(qp, cqe, list.as_mut_ptr(), count, write, address, key)
        })
    }

    /// Posts the registration of a region, which has a new key from then on.
    pub(crate) fn register(&self, request: &Request, region: &mut Region) -> Result {
        let mr = region.prepare()?;
        // SAFETY: live.
        to_result(unsafe { bindings::kping_post_reg(self.qp(), request.cqe(), mr.as_ptr()) })
    }

    /// Posts the invalidation of a key of this side.
    pub(crate) fn invalidate(&self, request: &Request, key: u32) -> Result {
        // SAFETY: live.
        to_result(unsafe { bindings::kping_post_inv(self.qp(), request.cqe(), key) })
    }

    /// What became of a request.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` when the connection has ended, `ETIMEDOUT` after `patience`, `EINTR` when the caller got a signal.
    pub(crate) fn wait(&self, request: &Request, patience: Delta) -> Result<Outcome> {
        let start = Instant::<Monotonic>::now();
        while start.elapsed() < patience {
            if let Some(outcome) = self.look(request)? {
                return Ok(outcome);
            }
            if self.id.has_ended() {
                return Err(ECONNRESET);
            }
        }
        Err(ETIMEDOUT)
    }

    /// The same of a request that has succeeded.
    pub(crate) fn done(&self, request: &Request, patience: Delta) -> Result<Outcome> {
        self.wait(request, patience)?.success()
    }

    /// Looks for completions, and waits for some time.
    fn look(&self, request: &Request) -> Result<Option<Outcome>> {
        if self.poll != Poll::Direct {
            return request.wait(msecs_to_jiffies(LOOK_MS));
        }
        // SAFETY: live, and nobody else polls it.
        unsafe { bindings::ib_process_cq_direct(self.cq.as_ptr(), -1) };
        let outcome = request.outcome();
        if outcome.is_none() {
            fsleep(POLL);
        }
        Ok(outcome)
    }

    /// Ends the connection: on return nothing is outstanding.
    pub(crate) fn drain(&self) {
        self.id.disconnect();
        // SAFETY: live; there is room for one more request on either queue.
        unsafe { bindings::ib_drain_qp(self.qp()) };
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: ours; nothing is outstanding when the queue pair has gone.
        unsafe {
            bindings::rdma_destroy_qp(self.id.as_raw());
            bindings::ib_free_cq(self.cq.as_ptr());
            bindings::kping_dealloc_pd(self.pd.as_ptr());
        }
    }
}

/// The device that an identifier is bound to.
fn device_of(id: &Id) -> Result<NonNull<bindings::ib_device>> {
    // SAFETY: live; the field does not change any more.
    NonNull::new(unsafe { (*id.as_raw()).device }).ok_or(ENODEV)
}

fn count(list: &[bindings::ib_sge]) -> Result<u32> {
    Ok(u32::try_from(list.len())?)
}
