// SPDX-License-Identifier: GPL-2.0
//! Test of when the handler of a completion queue is called: once at a time, and not from within a
//! method of the device. Several tasks post to queue pairs that all complete to that queue, while
//! the adapter lives and when it has died.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
    workqueue::{Work, WorkItem, impl_has_work, new_work},
};

use crate::{
    check::{ends, expect},
    kclient::{
        attached::Attached,
        background::Background,
        cq::{Cq, Poll},
        pd::{Device, Pd},
        request::Status,
        work::Op,
    },
    sides::{DEPTH, Test},
    watch::{self, Watch},
};

/// Tasks that post at the same time.
const POSTERS: u32 = 4;
/// Messages that each of them sends.
const ROUNDS: u32 = 100;
/// Bytes of a message.
const MESSAGE: usize = 64;

/// A task that posts to two connected queue pairs.
#[pin_data]
struct Poster {
    pair: Test,
    /// The status with which requests have to end.
    wanted: Atomic<u32>,
    /// Zero, or the error of the last time as a negative number.
    errno: Atomic<i32>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Poster { self.work }
}

impl WorkItem for Poster {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let result = this.post();
        this.errno.store(result.err().map_or(0, Error::to_errno), Relaxed);
    }
}

impl Poster {
    fn new(pd: &Arc<Pd>, cq: &Arc<Cq>) -> Result<Arc<Self>> {
        let pair = Test::on(pd, cq, cq)?;
        pair.connect()?;
        Arc::pin_init(
            pin_init!(Self {
                pair,
                wanted: Atomic::new(0),
                errno: Atomic::new(0),
                work <- new_work!("kverbs::Poster"),
            }),
            GFP_KERNEL,
        )
    }

    /// Sends messages. At the end the queue pairs go to the error state, in which nothing is
    /// outstanding.
    fn post(&self) -> Result {
        let Test { a, b, .. } = &self.pair;
        let status = Status(self.wanted.load(Relaxed));
        for _ in 0..ROUNDS {
            watch::within(|| b.receive())?;
            watch::within(|| a.post(&Op::Send, MESSAGE))?;
            ends(&a.sent, status, "a SEND of several tasks")?;
            ends(&b.received, status, "a receive of several tasks")?;
        }
        for side in [a, b] {
            watch::within(|| {
                side.qp.drain();
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Several tasks that post, and the queue that their requests complete to.
pub(crate) struct Handlers {
    // The fields are dropped in this order: the completion queue goes with its queue pairs, before
    // the watch that its handler uses.
    posters: KVec<Arc<Poster>>,
    queue: Background,
    cq: Arc<Cq>,
    watch: KBox<Watch>,
}

impl Handlers {
    /// Makes the queues.
    pub(crate) fn new(device: &Arc<Attached>) -> Result<Self> {
        let device: Arc<dyn Device> = device.clone();
        let pd = Pd::new(device.clone())?;
        // Two queue pairs for each, two queues for each of them.
        let cq = Cq::new(device, 4 * POSTERS * (DEPTH + 1), Poll::Workqueue)?;
        let queue = Background::new(c"vrnic_kverbs")?;
        // SAFETY: no queue pair completes there yet. The queue goes with the queue pairs, which
        // `Handlers` drops before the watch.
        let watch = unsafe { Watch::new(&cq) }?;
        let mut this = Self { posters: KVec::new(), queue, cq, watch };
        for _ in 0..POSTERS {
            this.posters.push(Poster::new(&pd, &this.cq)?, GFP_KERNEL)?;
        }
        Ok(this)
    }

    /// Checks the calls while the adapter lives. Then makes the queue pairs ready for
    /// [`Self::check_dead`].
    pub(crate) fn check_alive(&self) -> Result {
        self.check(Status::SUCCESS)?;
        self.posters.iter().try_for_each(|poster| poster.pair.reconnect())
    }

    /// Checks the calls when the adapter has died: all requests are flushed.
    pub(crate) fn check_dead(&self) -> Result {
        self.check(Status::FLUSHED)
    }

    /// Has all tasks post at the same time.
    fn check(&self, wanted: Status) -> Result {
        for poster in &self.posters {
            poster.wanted.store(wanted.0, Relaxed);
            let queued = self.queue.enqueue(poster.clone());
            expect(queued.is_ok(), "queueing of a task that posts")?;
        }
        self.queue.finish();
        self.watch.check()?;
        let failed = self.posters.iter().find(|poster| poster.errno.load(Relaxed) != 0);
        failed.map_or(Ok(()), |poster| Err(Error::from_errno(poster.errno.load(Relaxed))))
    }
}
