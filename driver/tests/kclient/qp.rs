// SPDX-License-Identifier: GPL-2.0
//! Queue pairs: posting to them.

use core::ptr::NonNull;

use kernel::{error::to_result, ffi::c_int, prelude::*, sync::Arc};

use super::{
    cq::Cq,
    mapped::Part,
    pd::Pd,
    region::Region,
    request::{Kept, QpId, Request},
    work::{self, INLINE, InRange, Op, SIGNALED, Wr},
};
use crate::bindings;

/// The maker of a queue pair.
///
/// # Safety
///
/// [`Self::destroy`] must destroy the queue pair that it was made with, unless it says that it
/// could not.
pub unsafe trait Origin {
    /// Destroys the queue pair; what it returns is zero, or a negative errno if it is there still.
    ///
    /// # Safety
    ///
    /// To be called once, with the queue pair of this.
    unsafe fn destroy(&mut self, qp: NonNull<bindings::ib_qp>) -> c_int;
}

/// The sizes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Requests outstanding on either queue.
    pub depth: u32,
    /// Segments of a request of the send queue; one of the receive queue has one.
    pub segments: u32,
    /// Bytes of inline data.
    pub inline: u32,
    /// True if requests complete without asking for it.
    pub signal_all: bool,
    /// Creation flags (`enum ib_qp_create_flags` and the flags in `direct.h`).
    pub flags: u32,
}

/// Returns the attributes of a reliable connection's queue pair; both queues complete to `cq`.
pub fn init_attr(cq: &Cq, caps: Caps) -> bindings::ib_qp_init_attr {
    // SAFETY: a plain C struct of numbers, pointers and optional functions, for which zero is
    // valid.
    let mut attr: bindings::ib_qp_init_attr = unsafe { core::mem::zeroed() };
    attr.qp_type = bindings::ib_qp_type_IB_QPT_RC;
    attr.create_flags = caps.flags;
    attr.send_cq = cq.as_raw();
    attr.recv_cq = cq.as_raw();
    attr.sq_sig_type = match caps.signal_all {
        true => bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
        false => bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
    };
    // Draining posts one more to each queue.
    attr.cap.max_send_wr = caps.depth + 1;
    attr.cap.max_recv_wr = caps.depth + 1;
    attr.cap.max_send_sge = caps.segments;
    attr.cap.max_recv_sge = 1;
    attr.cap.max_inline_data = caps.inline;
    attr
}

/// A queue pair, destroyed on drop.
///
/// # Invariants
///
/// `raw` is a queue pair that `origin` has made, with `cq`, in `pd`, and that this type owns.
pub struct Qp<O: Origin> {
    raw: NonNull<bindings::ib_qp>,
    // The fields are dropped in this order.
    cq: Arc<Cq>,
    pd: Arc<Pd>,
    origin: O,
}

// SAFETY: the core allows a queue pair to be used and destroyed by any thread; `origin` is `Send`.
unsafe impl<O: Origin + Send> Send for Qp<O> {}
// SAFETY: posting to a queue pair and draining it are allowed on several threads at a time;
// `origin` is `Sync`.
unsafe impl<O: Origin + Sync> Sync for Qp<O> {}

impl<O: Origin> Qp<O> {
    /// Takes a queue pair over.
    ///
    /// # Safety
    ///
    /// The queue pair must be live, made by `origin` with [`init_attr`] of this `cq` in this `pd`,
    /// and belong to no other code.
    pub unsafe fn from_raw(
        raw: NonNull<bindings::ib_qp>,
        cq: Arc<Cq>,
        pd: Arc<Pd>,
        origin: O,
    ) -> Self {
        // INVARIANT: the caller promises so.
        Self { raw, cq, pd, origin }
    }

    /// Returns the core's struct, valid as long as this.
    pub fn as_raw(&self) -> *mut bindings::ib_qp {
        self.raw.as_ptr()
    }

    /// Returns the name of the queue pair in completions.
    pub fn id(&self) -> QpId {
        QpId::new(self.as_raw())
    }

    /// Returns the completion queue of the queue pair.
    pub fn cq(&self) -> &Cq {
        &self.cq
    }

    /// Returns the protection domain of the queue pair.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns the maker of the queue pair.
    pub fn origin(&self) -> &O {
        &self.origin
    }

    /// Posts a receive of a message.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the request is in use, `ENOMEM` if the queue is full.
    pub fn receive(&self, request: &Arc<Request>, into: &Part) -> Result {
        let mut list = into.segments(&self.pd)?;
        let wr = work::receive(request.cqe(), &mut list)?;
        self.begin(request, Kept { local: Some(into.memory().clone()), ..Kept::default() })?;
        // SAFETY: by the type's invariants the queue pair is alive. The list is copied; its memory
        // and the request are kept until the completion.
        to_result(unsafe { bindings::kclient_post_recv(self.as_raw(), &wr) })
            .inspect_err(|_| request.free())
    }

    /// Posts to the send queue, with data from or for `part`.
    ///
    /// # Errors
    ///
    /// As for [`Self::receive`]; `EINVAL` if there is less memory at the peer.
    pub fn post(&self, request: &Arc<Request>, op: &Op, part: &Part) -> Result {
        let mut list = part.segments(&self.pd)?;
        let remote = op.memory(part.len())?;
        let kept = Kept { local: Some(part.memory().clone()), remote, region: None };
        let wr = op.to_wr(request.cqe(), &mut list, SIGNALED)?;
        self.submit(request, kept, &wr)
    }

    /// Posts to the send queue, with data from or for these bytes of address ranges, in order.
    ///
    /// # Errors
    ///
    /// As for [`Self::post`].
    pub fn post_in_ranges(&self, request: &Arc<Request>, op: &Op, data: &[InRange]) -> Result {
        // CAST: to the wider type.
        let remote = op.memory(data.iter().map(|part| part.length as usize).sum())?;
        let mut list = KVec::with_capacity(data.len(), GFP_KERNEL)?;
        for part in data {
            list.push(part.segment(), GFP_KERNEL)?;
        }
        let wr = op.to_wr(request.cqe(), &mut list, SIGNALED)?;
        self.submit(request, Kept { remote, ..Kept::default() }, &wr)
    }

    /// Posts to the send queue, with data that is copied into it, or without any.
    ///
    /// # Errors
    ///
    /// As for [`Self::post`]; `EINVAL` if it does not fit, or if the operation brings data.
    pub fn post_inline(&self, request: &Arc<Request>, op: &Op, data: &[u8]) -> Result {
        if matches!(op, Op::Read(_) | Op::CompareSwap { .. } | Op::FetchAdd { .. }) {
            return Err(EINVAL);
        }
        let remote = op.memory(data.len())?;
        // The address of inline data is the processor's, and there is no key.
        let (addr, length) = (data.as_ptr().addr() as u64, u32::try_from(data.len())?);
        let mut list = [bindings::ib_sge { addr, length, lkey: 0 }];
        let (list, flags) = match length {
            0 => (&mut list[..0], SIGNALED),
            _ => (&mut list[..], SIGNALED | INLINE),
        };
        let wr = op.to_wr(request.cqe(), list, flags)?;
        self.submit(request, Kept { remote, ..Kept::default() }, &wr)
    }

    /// Posts the registration of a region, which has a new key from then on, with `access` (`enum
    /// ib_access_flags`). With `message`, also posts a SEND of this message after the
    /// registration, and `request` becomes the request of the SEND. The registration itself then
    /// completes only if it fails, and in that case the SEND is flushed.
    ///
    /// # Errors
    ///
    /// As for [`Self::post`]; `EBUSY` also if a registration is outstanding.
    pub fn register(
        &self,
        request: &Arc<Request>,
        region: &Arc<Region>,
        access: u32,
        message: Option<&Part>,
    ) -> Result {
        let mut list = message.map_or(Ok(KVec::new()), |part| part.segments(&self.pd))?;
        let send = |_| Op::Send.to_wr(request.cqe(), &mut list, SIGNALED);
        let next = message.map(send).transpose()?;
        let first = if next.is_some() { self.cq.silent() } else { request };
        let local = message.map(|part| part.memory().clone());
        let kept = Kept { local, remote: None, region: Some(region.clone()) };
        region.register(&self.pd, request, |mr, key| {
            let wr = Wr::reg(first.cqe(), mr.as_ptr(), key, access, next.as_ref())?;
            match next {
                None => self.submit(request, kept, &wr),
                Some(_) => {
                    self.begin(request, kept)?;
                    // If it fails, the first may have been posted: the request is in use until the
                    // queue is freed.
                    self.hand_over(&wr)
                }
            }
        })
    }

    /// Ends it: the queue pair goes to the error state, and on return nothing is outstanding.
    pub fn drain(&self) {
        // SAFETY: by the type's invariants the queue pair is alive; `init_attr` left room for one
        // more request on either queue.
        unsafe { bindings::ib_drain_qp(self.as_raw()) };
    }

    fn begin(&self, request: &Arc<Request>, kept: Kept) -> Result {
        self.cq.keep(request)?;
        request.begin(kept)
    }

    fn submit(&self, request: &Arc<Request>, kept: Kept, wr: &Wr) -> Result {
        self.begin(request, kept)?;
        self.hand_over(wr).inspect_err(|_| request.free())
    }

    /// Posts to the send queue what [`Self::begin`] was called for.
    fn hand_over(&self, wr: &Wr) -> Result {
        // SAFETY: by the type's invariants the queue pair is alive. The list is valid during the
        // call and is copied; what the device uses is kept until the completion.
        to_result(unsafe { bindings::kclient_post_send(self.as_raw(), wr.as_raw()) })
    }
}

impl<O: Origin> Drop for Qp<O> {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants `origin` has made the queue pair, which this type owns
        // and does not use afterwards.
        let status = unsafe { self.origin.destroy(self.raw) };
        if status != 0 {
            pr_err!("a queue pair could not be destroyed: {status}\n");
            // The queue pair may still complete requests.
            core::mem::forget((self.cq.clone(), self.pd.clone()));
        }
    }
}
