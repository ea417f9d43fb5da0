// SPDX-License-Identifier: GPL-2.0
//! References that may outlive their object: what an interrupt handler keeps.

use core::ptr::NonNull;

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{Arc, SpinLockIrq},
};

/// A pointer to a core object, valid until revoked.
struct Target<C>(Option<NonNull<C>>);

// SAFETY: the pointer is only followed under the link's lock, to call functions of the core
// that are allowed on any CPU.
unsafe impl<C> Send for Target<C> {}

/// A counted reference to the core object `C`, revoked when the object goes.
///
/// Interrupt handlers and tables keep clones of it. A call through a revoked link does nothing,
/// and revoking waits for calls under way; so when the destroying operation has returned, no
/// handler uses the object any more.
pub(crate) struct Link<C>(Arc<Inner<C>>);

#[pin_data]
struct Inner<C> {
    #[pin]
    target: SpinLockIrq<Target<C>>,
}

impl<C> Clone for Link<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C> Link<C> {
    /// A link to `object`.
    ///
    /// # Safety
    ///
    /// [`Link::revoke`] must be called before `object` goes.
    pub(super) unsafe fn new(object: NonNull<C>) -> Result<Self> {
        let inner = Arc::pin_init(
            pin_init!(Inner { target <- new_spinlock_irq!(Target(Some(object)), "rdma::Link") }),
            GFP_KERNEL,
        )?;
        Ok(Self(inner))
    }

    /// Ends the link; waits for calls of [`Link::with`] under way.
    pub(super) fn revoke(&self) {
        self.0.target.lock().0 = None;
    }

    /// Calls `f` with the object, unless it has gone. Interrupts are off while `f` runs.
    pub(super) fn with<R>(&self, f: impl FnOnce(NonNull<C>) -> R) -> Option<R> {
        let target = self.0.target.lock();
        target.0.map(f)
    }
}
