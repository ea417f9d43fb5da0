//! A worker's part of an adapter: the QPs that are its own.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::datapath::wqe_fetch::Batch;
use crate::ethernet::Frame;
use crate::host::Host;
use crate::objects::doorbell;
use crate::objects::uar::Uar;
use crate::scheduling::recent_doorbells::Hot;
use crate::scheduling::schedule::Schedule;

/// A worker's part.
#[derive(Debug)]
pub(crate) struct Shard<H: Host> {
    /// The groups of doorbells that it looks at.
    pub(crate) groups: u64,
    /// State that the worker locks while it works.
    pub(crate) bench: Mutex<Bench<H>>,
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
    /// Frames that were taken out of the inbox and wait still.
    pub(crate) frames: VecDeque<Frame>,
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
            frames: VecDeque::new(),
        };
        Self { groups: doorbell::groups_of(worker, workers), bench: Mutex::new(bench) }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        let mut bench = self.bench.lock();
        bench.schedule.clear();
        bench.hot.clear();
        bench.frames.clear();
    }
}
