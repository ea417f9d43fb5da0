//! The state of a worker for an adapter.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::datapath::space::Space;
use crate::ethernet::Classified;
use crate::host::Host;
use crate::objects::doorbell;
use crate::objects::uar::UarList;
use crate::scheduling::recent_doorbells::RecentDoorbells;
use crate::scheduling::schedule::Schedule;
use crate::slice::ClockInterval;

/// The state of a worker.
#[derive(Debug)]
pub(crate) struct WorkerState<H: Host> {
    /// The groups of doorbells that it polls.
    pub(crate) groups: u64,
    /// The state that the worker locks during a poll.
    pub(crate) scratch: Mutex<Scratch<H>>,
}

/// The buffers of a worker.
#[derive(Debug)]
pub(crate) struct Scratch<H: Host> {
    pub(crate) schedule: Schedule<H>,
    pub(crate) space: Space,
    pub(crate) recent: RecentDoorbells<H>,
    /// A copy of the list of UARs in use.
    pub(crate) uars: UarList<H>,
    /// The position at which the next poll continues.
    pub(crate) resume: Resume,
    /// That of the last slice.
    pub(crate) interval: ClockInterval,
    /// Frames that were taken out of the inbox and have not been handled.
    pub(crate) frames: VecDeque<Classified>,
}

/// The position at which a poll continues if the slice of the previous one was over.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    /// The doorbells that are checked first.
    pub(crate) doorbell: DoorbellPlace,
    /// The event queue whose held events are moved first.
    pub(crate) eq: usize,
}

/// A position in the doorbells of an adapter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DoorbellPlace {
    /// Index of the UAR in the list.
    pub(crate) uar: usize,
    /// Group in the UAR.
    pub(crate) group: u32,
}

impl<H: Host> WorkerState<H> {
    /// Creates the state of `worker`, one of `workers`.
    pub(crate) fn new(worker: usize, workers: usize) -> Self {
        let scratch = Scratch {
            schedule: Schedule::default(),
            space: Space::default(),
            recent: RecentDoorbells::default(),
            uars: UarList::default(),
            resume: Resume::default(),
            interval: ClockInterval::default(),
            frames: VecDeque::new(),
        };
        Self { groups: doorbell::groups_of(worker, workers), scratch: Mutex::new(scratch) }
    }

    /// Discards all work.
    pub(crate) fn clear(&self) {
        let mut scratch = self.scratch.lock();
        scratch.schedule.clear();
        scratch.recent.clear();
        scratch.frames.clear();
    }
}
