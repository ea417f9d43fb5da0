// SPDX-License-Identifier: GPL-2.0
//! A connection with its queues: what is posted to it.

use core::ptr::NonNull;

use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*,
    str::CStr,
    sync::Arc,
    time::{Delta, Instant, Monotonic, delay::fsleep, msecs_to_jiffies},
};

use super::{
    cm::Id,
    cq::{Cq, Poll},
    mapped::{Mapped, Part},
    memory::Memory,
    pd::{Device, Pd},
    qp::{Caps, Origin, Qp, init_attr},
    region::Region,
    request::{Outcome, Request},
    work::{InRange, Op},
};
use crate::bindings;

/// Segments of a request.
pub const SEGMENTS: u32 = 16;
/// The rights of a peer to a region.
const ACCESS: u32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_READ
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
/// Milliseconds between two checks for the end of the connection.
const CHECK_INTERVAL_MS: u32 = 50;
/// The time between two polls of a queue that only this thread polls.
const POLL: Delta = Delta::from_micros(50);

/// An identifier that is bound to a device.
///
/// # Invariants
///
/// `device` is the device that `id` is bound to.
struct Bound {
    id: Id,
    owner: &'static CStr,
    device: NonNull<bindings::ib_device>,
}

// SAFETY: the core allows its devices to be used by any thread.
unsafe impl Send for Bound {}
// SAFETY: the core allows its devices to be used by several threads at a time.
unsafe impl Sync for Bound {}

// SAFETY: the connection manager lets a device go when all identifiers that are bound to it have
// been destroyed.
unsafe impl Device for Bound {
    fn as_raw(&self) -> NonNull<bindings::ib_device> {
        self.device
    }

    fn owner(&self) -> &'static CStr {
        self.owner
    }
}

/// The identifier that a queue pair was made for.
pub struct Made(Arc<Bound>);

// SAFETY: `rdma_destroy_qp` destroys the identifier's queue pair.
unsafe impl Origin for Made {
    unsafe fn destroy(&mut self, _qp: NonNull<bindings::ib_qp>) -> c_int {
        // SAFETY: the caller passes the identifier's queue pair, which it has not destroyed.
        unsafe { bindings::rdma_destroy_qp(self.0.id.as_raw()) };
        0
    }
}

/// A connection, or what becomes one.
pub struct Connection(Qp<Made>);

impl Connection {
    /// Makes the queues of an identifier whose device is known, for `depth` requests outstanding on
    /// either. `owner` is the name of their owner.
    pub fn new(id: Id, poll: Poll, depth: u32, owner: &'static CStr) -> Result<Self> {
        // SAFETY: `id` keeps the identifier alive; its address is resolved, so its device does not
        // change any more.
        let device = NonNull::new(unsafe { (*id.as_raw()).device }).ok_or(ENODEV)?;
        // INVARIANT: the device was read from the identifier, which stays bound to it.
        let bound = Arc::new(Bound { id, owner, device }, GFP_KERNEL)?;
        let pd = Pd::new(bound.clone())?;
        // Draining posts one more to each queue.
        let cq = Cq::new(bound.clone(), 2 * (depth + 1), poll)?;
        let caps = Caps { depth, segments: SEGMENTS, inline: 0, signal_all: true, flags: 0 };
        let mut attr = init_attr(&cq, caps);
        let raw = bound.id.as_raw();
        // SAFETY: identifier and domain are alive, and of one device; the core copies the
        // attributes.
        to_result(unsafe { bindings::rdma_create_qp(raw, pd.as_raw(), &mut attr) })?;
        // SAFETY: the identifier is alive, and its queue pair was made just now.
        let qp = NonNull::new(unsafe { (*raw).qp }).ok_or(EINVAL)?;
        // SAFETY: the queue pair was made just now, for this identifier, with these. The identifier
        // does not touch it but by `destroy`.
        Ok(Self(unsafe { Qp::from_raw(qp, cq, pd, Made(bound)) }))
    }

    /// Returns the identifier of the connection.
    pub fn id(&self) -> &Id {
        &self.0.origin().0.id
    }

    /// Returns the device of the connection.
    pub fn device(&self) -> &Arc<dyn Device> {
        self.0.pd().device()
    }

    /// Returns the core's struct of its queue pair, valid as long as this.
    pub fn as_raw(&self) -> *mut bindings::ib_qp {
        self.0.as_raw()
    }

    /// Maps memory for messages, and for the local side of READs and WRITEs.
    pub fn map(&self, memory: Memory) -> Result<Arc<Mapped>> {
        Mapped::new(self.0.pd().device().clone(), memory)
    }

    /// Makes a region of pages for the peer.
    pub fn region(&self, pages: Memory) -> Result<Arc<Region>> {
        Region::new(self.0.pd().clone(), pages, 0, 0)
    }

    /// Posts a receive of a message of `length` bytes.
    pub fn receive(&self, request: &Arc<Request>, into: &Arc<Mapped>, length: usize) -> Result {
        self.0.receive(request, &Part::new(into, 0..length)?)
    }

    /// Posts a message, which invalidates a key of the peer if one is given.
    pub fn send(
        &self,
        request: &Arc<Request>,
        from: &Arc<Mapped>,
        length: usize,
        invalidate: Option<u32>,
    ) -> Result {
        let op = invalidate.map_or(Op::Send, Op::SendInv);
        self.0.post(request, &op, &Part::new(from, 0..length)?)
    }

    /// Posts a WRITE from, or a READ into, memory of this side.
    pub fn rdma(&self, request: &Arc<Request>, part: &Part, op: &Op) -> Result {
        self.0.post(request, op, part)
    }

    /// Posts a WRITE from, or a READ into, these bytes of address ranges.
    pub fn rdma_in_ranges(&self, request: &Arc<Request>, data: &[InRange], op: &Op) -> Result {
        self.0.post_in_ranges(request, op, data)
    }

    /// Posts a TRANSFER of an address range.
    pub fn transfer(&self, request: &Arc<Request>, range: u32) -> Result {
        self.0.post_inline(request, &Op::Transfer(range), &[])
    }

    /// Posts an AWAIT.
    pub fn await_mark(&self, request: &Arc<Request>, op: &Op) -> Result {
        self.0.post_inline(request, op, &[])
    }

    /// Posts the registration of a region, which has a new key from then on.
    pub fn register(&self, request: &Arc<Request>, region: &Arc<Region>) -> Result {
        self.0.register(request, region, ACCESS, None)
    }

    /// Posts the invalidation of a key of this side.
    pub fn invalidate(&self, request: &Arc<Request>, key: u32) -> Result {
        self.0.post_inline(request, &Op::Invalidate(key), &[])
    }

    /// Waits for the outcome of a request.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` when the connection has ended, `ETIMEDOUT` after `timeout`, `EINTR` when the
    /// caller got a signal.
    pub fn wait(&self, request: &Request, timeout: Delta) -> Result<Outcome> {
        let start = Instant::<Monotonic>::now();
        while start.elapsed() < timeout {
            if let Some(outcome) = self.poll_once(request)? {
                return Ok(outcome);
            }
            if self.id().has_ended() {
                return Err(ECONNRESET);
            }
        }
        Err(ETIMEDOUT)
    }

    /// Waits for the outcome of a request, which must have succeeded.
    pub fn done(&self, request: &Request, timeout: Delta) -> Result<Outcome> {
        self.wait(request, timeout)?.success()
    }

    /// Looks for completions, and waits for some time.
    fn poll_once(&self, request: &Request) -> Result<Option<Outcome>> {
        let cq = self.0.cq();
        if cq.poll() != Poll::Direct {
            return request.wait(msecs_to_jiffies(CHECK_INTERVAL_MS));
        }
        cq.take();
        let outcome = request.outcome();
        if outcome.is_none() {
            fsleep(POLL);
        }
        Ok(outcome)
    }

    /// Ends the connection: on return nothing is outstanding.
    pub fn drain(&self) {
        self.id().disconnect();
        self.0.drain();
    }
}
