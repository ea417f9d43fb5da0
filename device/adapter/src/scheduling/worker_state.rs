//! A worker's part of an adapter: the QPs that are its own.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::datapath::wqe_fetch::Batch;
use crate::ethernet::Frame;
use crate::host::Host;
use crate::objects::doorbell;
use crate::objects::uar::UarList;
use crate::scheduling::recent_doorbells::RecentDoorbells;
use crate::scheduling::schedule::Schedule;

/// A worker's part.
#[derive(Debug)]
pub(crate) struct WorkerState<H: Host> {
    /// The groups of doorbells that it looks at.
    pub(crate) groups: u64,
    /// State that the worker locks while it works.
    pub(crate) scratch: Mutex<Scratch<H>>,
}

/// A worker's buffers.
#[derive(Debug)]
pub(crate) struct Scratch<H: Host> {
    pub(crate) schedule: Schedule<H>,
    pub(crate) batch: Batch,
    pub(crate) recent: RecentDoorbells<H>,
    /// A copy of the list of UARs in use.
    pub(crate) uars: UarList<H>,
    /// The position at which the next poll continues.
    pub(crate) resume: Resume,
    /// Frames that were taken out of the inbox and wait still.
    pub(crate) frames: VecDeque<Frame>,
}

/// The position at which a poll continues after one whose slice was over.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    /// Which doorbells it looks at first.
    pub(crate) doorbell: DoorbellPlace,
    /// Which event queue it moves held events to first.
    pub(crate) eq: usize,
}

/// A place in the doorbells of an adapter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DoorbellPlace {
    /// Which UAR of the list.
    pub(crate) uar: usize,
    /// Which group there.
    pub(crate) group: u32,
}

impl<H: Host> WorkerState<H> {
    /// The part of `worker` of `workers`.
    pub(crate) fn new(worker: usize, workers: usize) -> Self {
        let scratch = Scratch {
            schedule: Schedule::default(),
            batch: Batch::default(),
            recent: RecentDoorbells::default(),
            uars: UarList::default(),
            resume: Resume::default(),
            frames: VecDeque::new(),
        };
        Self { groups: doorbell::groups_of(worker, workers), scratch: Mutex::new(scratch) }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        let mut scratch = self.scratch.lock();
        scratch.schedule.clear();
        scratch.recent.clear();
        scratch.frames.clear();
    }
}
