// SPDX-License-Identifier: GPL-2.0
//! A posted request and its outcome.

use core::mem;

use kernel::{
    new_condvar, new_spinlock_irq,
    prelude::*,
    sync::{
        Arc, CondVar, CondVarTimeoutResult, SpinLockIrq,
        atomic::{Atomic, Relaxed},
    },
    time::Jiffies,
    types::Opaque,
};

use super::mapped::Mapped;
use crate::bindings;

/// The status of a completion (`enum ib_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// The request succeeded.
    pub const SUCCESS: Self = Self(bindings::ib_wc_status_IB_WC_SUCCESS);
    /// The queue pair was in error before it was its turn.
    pub const FLUSHED: Self = Self(bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR);
    /// A registration or an invalidation was refused.
    pub const BIND: Self = Self(bindings::ib_wc_status_IB_WC_MW_BIND_ERR);
    /// The peer refused access.
    pub const REMOTE_ACCESS: Self = Self(bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR);
}

/// A queue pair, only for comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpId(usize);

impl QpId {
    /// Returns the identifier of the queue pair with this struct of the core.
    pub(super) fn new(qp: *mut bindings::ib_qp) -> Self {
        Self(qp.addr())
    }
}

/// The content of a completion.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The status of the completion.
    pub status: Status,
    /// The vendor error of the device.
    pub vendor: u32,
    /// Bytes received.
    pub length: u32,
    /// Immediate data of the message.
    pub immediate: Option<u32>,
    /// The key that the message has invalidated.
    pub invalidated: Option<u32>,
    /// The queue pair that it was posted to.
    pub qp: QpId,
    /// Grows from completion to completion.
    pub turn: u64,
}

impl Outcome {
    /// Returns whether it succeeded.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` for a request that was flushed, `EIO` for one that failed.
    pub fn success(self) -> Result<Self> {
        match self.status {
            Status::SUCCESS => Ok(self),
            Status::FLUSHED => Err(ECONNRESET),
            status => {
                pr_err!("a request completed with {status:?}\n");
                Err(EIO)
            }
        }
    }

    /// Converts the core's struct.
    fn from_raw(wc: &bindings::ib_wc) -> Self {
        static TURN: Atomic<u64> = Atomic::new(0);
        // CAST: a bit mask.
        let has = |flag| wc.wc_flags as u32 & flag != 0;
        // SAFETY: the closure is called if the flag says that this view of the union is valid.
        let immediate = || u32::from_be(unsafe { *wc.ex.imm_data });
        // SAFETY: the closure is called if the flag says that this view of the union is valid.
        let key = || unsafe { *wc.ex.invalidate_rkey };
        Self {
            status: Status(wc.status),
            vendor: wc.vendor_err,
            length: wc.byte_len,
            immediate: has(bindings::ib_wc_flags_IB_WC_WITH_IMM).then(immediate),
            invalidated: has(bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE).then(key),
            qp: QpId::new(wc.qp),
            turn: TURN.fetch_add(1, Relaxed),
        }
    }
}

/// An object that the device may use for a request, and that the request keeps until it has ended.
pub trait InUse: Send + Sync {}

/// The objects that the device may use for a request until that has ended.
#[derive(Default)]
pub struct Kept {
    /// The memory of its segments.
    pub local: Option<Arc<Mapped>>,
    /// The memory that it names at the peer, if that is of this machine.
    pub remote: Option<Arc<Mapped>>,
    /// The region that it registers.
    pub region: Option<Arc<dyn InUse>>,
}

enum State {
    /// The request is not posted.
    Idle,
    /// The request is posted and has not ended.
    Outstanding(Kept),
    /// The request has ended, and its outcome has not been taken.
    Ended(Kept, Outcome),
}

/// A place for a posted request, whose address the device gives back.
///
/// # Invariants
///
/// `cqe` is the first field, and does not change: its `done` is [`Request::done`].
#[pin_data]
#[repr(C)]
pub struct Request {
    // This is the first field, so that its address is also the request's address.
    cqe: Opaque<bindings::ib_cqe>,
    #[pin]
    state: SpinLockIrq<State>,
    #[pin]
    changed: CondVar,
}

const _: () = assert!(mem::offset_of!(Request, cqe) == 0);

// SAFETY: `cqe`, the only part that is not `Send`, has one pointer, to a function.
unsafe impl Send for Request {}
// SAFETY: `cqe`, the only part that is not `Sync`, does not change.
unsafe impl Sync for Request {}

impl Request {
    /// Creates a place for one.
    pub fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                cqe: Opaque::new(bindings::ib_cqe { done: Some(Self::done) }),
                state <- new_spinlock_irq!(State::Idle, "kclient::Request"),
                changed <- new_condvar!("kclient::Request"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the core's struct, to be posted.
    pub(super) fn cqe(&self) -> *mut bindings::ib_cqe {
        self.cqe.get()
    }

    /// Takes the place.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a request is outstanding, or has ended and its outcome has not been taken.
    pub(super) fn begin(&self, kept: Kept) -> Result {
        let mut state = self.state.lock();
        if !matches!(*state, State::Idle) {
            return Err(EBUSY);
        }
        *state = State::Outstanding(kept);
        Ok(())
    }

    /// Frees the place, because nothing was posted, or because no completion can come any more.
    pub(super) fn free(&self) {
        let before = mem::replace(&mut *self.state.lock(), State::Idle);
        // Without the lock, as the last of what was kept may go.
        drop(before);
    }

    /// Returns whether the device may still use it.
    pub(super) fn is_outstanding(&self) -> bool {
        matches!(*self.state.lock(), State::Outstanding(_))
    }

    /// Returns its outcome once, if that is known.
    pub fn outcome(&self) -> Option<Outcome> {
        let before = take(&mut self.state.lock());
        before.map(|(_kept, outcome)| outcome)
    }

    /// Waits for its outcome, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// `EINTR` when the caller got a signal.
    pub fn wait(&self, timeout: Jiffies) -> Result<Option<Outcome>> {
        let mut left = timeout;
        let mut state = self.state.lock();
        loop {
            if let Some((kept, outcome)) = take(&mut state) {
                drop(state);
                drop(kept);
                return Ok(Some(outcome));
            }
            match self.changed.wait_interruptible_timeout(&mut state, left) {
                CondVarTimeoutResult::Woken { jiffies } => left = jiffies,
                CondVarTimeoutResult::Timeout => {
                    drop(state);
                    return Ok(self.outcome());
                }
                CondVarTimeoutResult::Signal { .. } => return Err(EINTR),
            }
        }
    }

    /// Called by the core, in the context that the completion queue was made with.
    ///
    /// # Safety
    ///
    /// `wc` must be the completion of a request that was posted with [`Request::cqe`] of a request
    /// that is alive.
    pub(super) unsafe extern "C" fn done(_cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
        // SAFETY: the caller passes a valid completion.
        let wc = unsafe { &*wc };
        // SAFETY: completions of requests with a `cqe` have this view of the union.
        let cqe = unsafe { *wc.__bindgen_anon_1.wr_cqe };
        // SAFETY: the caller passes the completion of a request that is alive, whose first field
        // `cqe` is.
        let this = unsafe { &*cqe.cast::<Self>() };
        let outcome = Outcome::from_raw(wc);
        let mut state = this.state.lock();
        match mem::replace(&mut *state, State::Idle) {
            State::Outstanding(kept) => *state = State::Ended(kept, outcome),
            other => {
                *state = other;
                pr_err!("a request for which no task waits completed with {:?}\n", outcome.status);
            }
        }
        drop(state);
        this.changed.notify_all();
    }
}

/// Returns the end of a request, and what it kept until then.
fn take(state: &mut State) -> Option<(Kept, Outcome)> {
    match mem::replace(state, State::Idle) {
        State::Ended(kept, outcome) => Some((kept, outcome)),
        other => {
            *state = other;
            None
        }
    }
}
