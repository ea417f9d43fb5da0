// SPDX-License-Identifier: GPL-2.0
//! The work item in the background that handles completions.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{Arc, ArcBorrow, SpinLockIrq},
    workqueue::{Work, WorkItem, impl_has_work, new_work},
};

use crate::kclient::background::Background;

/// An object that handles completions.
pub(crate) trait Polled: Send + Sync {
    /// Handles those that there are; may sleep.
    fn poll(&self, waker: &Waker);
}

/// The work item, which runs once at a time.
#[pin_data]
pub(crate) struct Waker {
    queue: Arc<Background>,
    #[pin]
    target: SpinLockIrq<Option<Arc<dyn Polled>>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Waker { self.work }
}

impl WorkItem for Waker {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let target = this.target.lock().clone();
        if let Some(target) = target {
            target.poll(&this);
        }
    }
}

impl Waker {
    /// Returns one without an object.
    pub(crate) fn new(queue: &Arc<Background>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                queue: queue.clone(),
                target <- new_spinlock_irq!(None, "kiscsi::Waker"),
                work <- new_work!("kiscsi::Waker"),
            }),
            GFP_KERNEL,
        )
    }

    /// Names the object.
    pub(crate) fn set(&self, target: Arc<dyn Polled>) {
        *self.target.lock() = Some(target);
    }

    /// Takes the object, which is not called any more for completions that come later.
    pub(crate) fn take(&self) -> Option<Arc<dyn Polled>> {
        self.target.lock().take()
    }

    /// Lets the object handle completions. Can be called in any context.
    pub(crate) fn wake(this: ArcBorrow<'_, Self>) {
        // The call fails if the work item is in the queue already.
        let _ = this.queue.enqueue(Arc::from(this));
    }
}
