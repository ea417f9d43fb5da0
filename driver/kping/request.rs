// SPDX-License-Identifier: GPL-2.0
//! A posted request and what becomes of it.

use kernel::{
    new_condvar, new_spinlock_irq,
    prelude::*,
    sync::{CondVar, CondVarTimeoutResult, SpinLockIrq},
    time::Jiffies,
    types::Opaque,
};

use crate::bindings;

/// What a completion says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// `enum ib_wc_status`.
    pub(crate) status: u32,
    /// Bytes received.
    pub(crate) length: u32,
    /// The key that the message has invalidated; zero if none.
    pub(crate) invalidated: u32,
}

impl Outcome {
    /// Whether it succeeded.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` for a request that was flushed, `EIO` for one that failed.
    pub(crate) fn success(self) -> Result<Self> {
        match self.status {
            bindings::ib_wc_status_IB_WC_SUCCESS => Ok(self),
            bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR => Err(ECONNRESET),
            status => {
                pr_err!("a request completed with status {status}\n");
                Err(EIO)
            }
        }
    }
}

/// A place for a posted request, whose address the device gives back. It outlives the queue that it is posted to.
#[pin_data]
#[repr(C)]
pub(crate) struct Request {
    // First, so that its address is that of the request.
    cqe: Opaque<bindings::ib_cqe>,
    #[pin]
    outcome: SpinLockIrq<Option<Outcome>>,
    #[pin]
    changed: CondVar,
}

impl Request {
    /// A place for one.
    pub(crate) fn new() -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                cqe: Opaque::new(bindings::ib_cqe { done: Some(Self::done) }),
                outcome <- new_spinlock_irq!(None, "kping::Request"),
                changed <- new_condvar!("kping::Request"),
            }),
            GFP_KERNEL,
        )
    }

    /// What is posted.
    pub(crate) fn cqe(&self) -> *mut bindings::ib_cqe {
        self.cqe.get()
    }

    /// What became of it, if that is known; told once.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome.lock().take()
    }

    /// The same; waits for at most `patience`.
    ///
    /// # Errors
    ///
    /// `EINTR` when the caller got a signal.
    pub(crate) fn wait(&self, patience: Jiffies) -> Result<Option<Outcome>> {
        let mut left = patience;
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = outcome.take() {
                return Ok(Some(outcome));
            }
            match self.changed.wait_interruptible_timeout(&mut outcome, left) {
                CondVarTimeoutResult::Woken { jiffies } => left = jiffies,
                CondVarTimeoutResult::Timeout => return Ok(outcome.take()),
                CondVarTimeoutResult::Signal { .. } => return Err(EINTR),
            }
        }
    }

    /// Called by the core, in the context that the queue was made with.
    unsafe extern "C" fn done(_cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
        // SAFETY: the core's completion, of a request that was posted with `cqe`, and the request is there as long as
        // the queue.
        let (this, outcome) = unsafe {
            let this = &*bindings::kping_wc_cqe(wc).cast::<Self>();
            let invalidated = bindings::kping_wc_invalidated(wc);
            (this, Outcome { status: (*wc).status, length: (*wc).byte_len, invalidated })
        };
        *this.outcome.lock() = Some(outcome);
        this.changed.notify_all();
    }
}
