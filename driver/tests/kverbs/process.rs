// SPDX-License-Identifier: GPL-2.0
//! Test: memory of a process cannot be registered by a kernel thread, which has no such memory.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
    workqueue::{Work, WorkItem, impl_has_work, new_work},
};

use crate::{
    check::expect,
    kclient::{background::Background, memory::user_memory::UserMemory, pd::Pd},
};

/// An address that a process may have memory at.
const ADDRESS: u64 = 0x40_0000;
/// Number of bytes there.
const LENGTH: u64 = 4096;

/// A registration by a kernel thread.
#[pin_data]
struct Registration {
    pd: Arc<Pd>,
    /// Zero until it has ended, and if it has succeeded; else its error as a negative number.
    errno: Atomic<i32>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Registration { self.work }
}

impl WorkItem for Registration {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let result = UserMemory::new(&this.pd, ADDRESS, LENGTH).map(drop);
        this.errno.store(result.err().map_or(0, Error::to_errno), Relaxed);
    }
}

/// Runs the test.
pub(crate) fn run(pd: &Arc<Pd>) -> Result {
    let registration = Arc::pin_init(
        pin_init!(Registration {
            pd: pd.clone(),
            errno: Atomic::new(0),
            work <- new_work!("kverbs::Registration"),
        }),
        GFP_KERNEL,
    )?;
    let queue = Background::new(c"vrnic_kverbs_process")?;
    let _ = queue.enqueue(registration.clone());
    // When the queue has gone, its items have run.
    drop(queue);
    let errno = registration.errno.load(Relaxed);
    expect(errno == EINVAL.to_errno(), "a registration by a kernel thread")
}
