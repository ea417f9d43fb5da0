//! A worker's part of a function: the QPs that are its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::doorbell::{self, Uar};
use crate::objects::qp::Qp;
use crate::scheduling::recent_doorbells::Hot;
use crate::scheduling::schedule::Schedule;

/// A worker's part.
#[derive(Debug)]
pub(crate) struct Shard<H: Host> {
    /// The groups of doorbells that it looks at.
    pub(crate) groups: u64,
    /// State that the worker locks while it works.
    pub(crate) bench: Mutex<Bench<H>>,
    /// Work that other threads have for it.
    inbox: Mutex<Vec<Arc<Qp<H>>>>,
    has_mail: AtomicBool,
}

/// A worker's buffers.
#[derive(Debug)]
pub(crate) struct Bench<H: Host> {
    pub(crate) schedule: Schedule<H>,
    pub(crate) batch: Batch,
    pub(crate) hot: Hot<H>,
    /// A copy of the UARs in use, and the version of the list that it is a copy of.
    pub(crate) uars: (u64, Vec<Arc<Uar<H>>>),
    /// The position at which the next poll continues.
    pub(crate) resume: Resume,
}

/// The position at which a poll continues after one whose slice was over.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    /// Which UAR of the list it looks at first, and which group there.
    pub(crate) doorbell: (usize, u32),
    /// Which event queue it moves held events to first.
    pub(crate) eq: usize,
}

impl<H: Host> Shard<H> {
    /// The part of `worker` of `workers`.
    pub(crate) fn new(worker: usize, workers: usize) -> Self {
        let bench = Bench {
            schedule: Schedule::default(),
            batch: Batch::default(),
            hot: Hot::default(),
            uars: (0, Vec::new()),
            resume: Resume::default(),
        };
        Self {
            groups: doorbell::groups_of(worker, workers),
            bench: Mutex::new(bench),
            inbox: Mutex::default(),
            has_mail: AtomicBool::new(false),
        }
    }

    /// Leaves a QP for the worker.
    pub(crate) fn post(&self, qp: &Arc<Qp<H>>) {
        self.inbox.lock().push(Arc::clone(qp));
        self.has_mail.store(true, Ordering::Release);
    }

    /// Returns whether something was left.
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// Moves what was left to the schedule. Returns whether there was anything.
    #[inline]
    pub(crate) fn fetch_mail(&self, schedule: &mut Schedule<H>) -> bool {
        if !self.has_mail.load(Ordering::Relaxed) || !self.has_mail.swap(false, Ordering::AcqRel) {
            return false;
        }
        schedule.extend(self.inbox.lock().drain(..));
        true
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        let mut bench = self.bench.lock();
        bench.schedule.clear();
        bench.hot.clear();
        drop(bench);
        self.inbox.lock().clear();
    }
}
