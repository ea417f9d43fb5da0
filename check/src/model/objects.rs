//! The objects of a program. Each is known by its address.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use foldhash::fast::FixedState;
use parking_lot::{Mutex, RwLock};

use crate::ffi::{IBV_QPS_ERR, IBV_QPS_RESET};
use crate::model::regions::Region;
use crate::model::requests::{Batch, Queue};
use crate::stack::Place;

/// Most regions that a device remembers after they were deregistered.
const ENDED: usize = 256;

/// A device that was opened.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) made: Place,
    /// True for iWARP, whose queue pairs change their states in the kernel.
    pub(crate) is_iwarp: bool,
    /// Regions by local key.
    pub(crate) regions: RwLock<HashMap<u32, Arc<Region>, FixedState>>,
    /// Regions that were deregistered, the last one last.
    pub(crate) ended: Mutex<VecDeque<Arc<Region>>>,
    /// Queue pairs by number.
    pub(crate) pairs: RwLock<HashMap<u32, Arc<QueuePair>, FixedState>>,
}

impl Device {
    pub(crate) fn new(name: String, is_iwarp: bool, made: Place) -> Self {
        Self {
            name,
            made,
            is_iwarp,
            regions: RwLock::default(),
            ended: Mutex::default(),
            pairs: RwLock::default(),
        }
    }

    /// Notes that a region has ended.
    pub(crate) fn end(&self, region: &Arc<Region>, place: Place) {
        let mut regions = self.regions.write();
        if regions.get(&region.key).is_some_and(|found| Arc::ptr_eq(found, region)) {
            regions.remove(&region.key);
        }
        drop(regions);
        *region.ended.lock() = Some(place);
        let mut ended = self.ended.lock();
        if ended.len() >= ENDED {
            ended.pop_front();
        }
        ended.push_back(Arc::clone(region));
    }
}

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) device: usize,
    pub(crate) made: Place,
    /// The domain itself, or the one that a parent domain stands for.
    pub(crate) base: usize,
}

/// Counts of events of an object.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) received: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
    /// The call that has received the last one.
    pub(crate) last: Mutex<Place>,
}

impl Events {
    /// Returns the number of events that are not acknowledged.
    pub(crate) fn open(&self) -> u64 {
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        self.received.load(Ordering::Acquire).saturating_sub(acknowledged)
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    /// The number of this queue in reports, by order of creation.
    pub(crate) number: u64,
    pub(crate) device: usize,
    pub(crate) channel: usize,
    pub(crate) made: Place,
    /// Completions that it holds.
    pub(crate) size: AtomicI64,
    /// Requests of send queues that will complete into it.
    pub(crate) sends: AtomicI64,
    /// Requests of receive queues that may complete into it.
    pub(crate) receives: AtomicI64,
    pub(crate) events: Events,
    pub(crate) async_events: Events,
    /// True if it has the extended interface, which polls in several calls.
    pub(crate) is_extended: bool,
    /// True if the program has said that an overrun does not matter.
    pub(crate) may_overrun: bool,
    /// True if the program has polled it since it was armed.
    pub(crate) polled_since: AtomicBool,
    /// True if the program has ever polled it.
    pub(crate) ever_polled: AtomicBool,
    /// The call that has armed it, if no event has arrived since.
    pub(crate) armed: Mutex<Option<Place>>,
    /// Held while it is polled, so that completions are looked at in their order.
    pub(crate) polling: Arc<Mutex<()>>,
}

impl CompletionQueue {
    /// Returns the queue's name in reports.
    pub(crate) fn name(&self) -> String {
        format!("completion queue {}", self.number)
    }
}

/// What a queue pair was created with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) sends: usize,
    pub(crate) receives: usize,
    pub(crate) send_segments: usize,
    pub(crate) receive_segments: usize,
    pub(crate) inline: u64,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) device: Arc<Device>,
    pub(crate) device_address: usize,
    /// The base of its domain.
    pub(crate) domain: usize,
    pub(crate) number: u32,
    /// `IBV_QPT_RC` and so on.
    pub(crate) kind: u32,
    pub(crate) limits: Limits,
    pub(crate) all_signaled: bool,
    pub(crate) send_queue: Option<Arc<CompletionQueue>>,
    pub(crate) receive_queue: Option<Arc<CompletionQueue>>,
    pub(crate) shared: Option<Arc<SharedQueue>>,
    pub(crate) made: Place,
    /// True if it has the extended interface, which posts in several calls.
    pub(crate) is_extended: bool,
    /// True if a completion queue of it is not known, so that its completions are not seen.
    pub(crate) is_unseen: bool,
    pub(crate) events: Events,
    pub(crate) queues: Arc<Mutex<Queues>>,
}

/// The changing part of a queue pair.
#[derive(Debug)]
pub(crate) struct Queues {
    /// `IBV_QPS_RESET` and so on.
    pub(crate) state: u32,
    pub(crate) sends: Queue,
    pub(crate) receives: Queue,
    /// True if completions have not been as expected, so that nothing can be said any more.
    pub(crate) is_doubtful: bool,
    /// The first completion with an error, as a text, and the poll that has taken it.
    pub(crate) failed: Option<Failure>,
    /// Requests of the extended interface that are being made.
    pub(crate) session: Batch,
}

/// A completion with an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) status: u32,
    pub(crate) place: Place,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            state: IBV_QPS_RESET,
            sends: Queue::default(),
            receives: Queue::default(),
            is_doubtful: false,
            failed: None,
            session: Batch::new(),
        }
    }
}

impl QueuePair {
    /// Returns the queue pair's name in reports.
    pub(crate) fn name(&self) -> String {
        format!("queue pair {} of {}", self.number, self.device.name)
    }

    /// Returns what counts the completions of sends.
    pub(crate) fn expected_sends(&self) -> Option<&AtomicI64> {
        self.send_queue.as_ref().map(|queue| &queue.sends)
    }

    /// Returns what counts the completions of receives.
    pub(crate) fn expected_receives(&self) -> Option<&AtomicI64> {
        self.receive_queue.as_ref().map(|queue| &queue.receives)
    }

    /// Returns whether the library holds a lock between calls of the program that post requests, or
    /// that poll completions. The library may need this lock to post.
    pub(crate) fn is_in_sessions(&self) -> bool {
        let is = |queue: &Option<Arc<CompletionQueue>>| {
            queue.as_ref().is_some_and(|queue| queue.is_extended)
        };
        self.is_extended || is(&self.send_queue) || is(&self.receive_queue)
    }

    /// Forgets all requests.
    pub(crate) fn clear(&self, queues: &mut Queues) {
        queues.sends.clear(self.expected_sends());
        queues.receives.clear(self.expected_receives());
    }
}

impl Queues {
    /// Returns whether the device may still execute requests.
    pub(crate) fn is_live(&self) -> bool {
        self.state != IBV_QPS_RESET && self.state != IBV_QPS_ERR
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    /// The number of this queue in reports, by order of creation.
    pub(crate) number: u64,
    pub(crate) device: Arc<Device>,
    pub(crate) device_address: usize,
    pub(crate) domain: usize,
    /// The completion queue of an XRC queue, by address.
    pub(crate) completes: usize,
    pub(crate) size: AtomicUsize,
    pub(crate) segments: usize,
    pub(crate) made: Place,
    pub(crate) events: Events,
    /// True if it may hold less than is known: a queue pair that ended may have taken requests.
    pub(crate) is_doubtful: AtomicBool,
    pub(crate) requests: Arc<Mutex<Queue>>,
}

impl SharedQueue {
    /// Returns the queue's name in reports.
    pub(crate) fn name(&self) -> String {
        format!("shared receive queue {} of {}", self.number, self.device.name)
    }
}

/// A channel of completion events.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) device: usize,
    pub(crate) made: Place,
}

/// An identifier of the connection manager.
#[derive(Debug)]
pub(crate) struct Identifier {
    /// The number of this identifier in reports, by order of creation.
    pub(crate) number: u64,
    pub(crate) made: Place,
    /// True if it is one for datagrams.
    pub(crate) is_datagram: bool,
    pub(crate) steps: Mutex<Steps>,
}

/// What the program has done with an identifier, and the calls that have done it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steps {
    pub(crate) connected: Option<Place>,
    pub(crate) disconnected: Option<Place>,
}

/// An event of the connection manager that is not acknowledged.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) owner: Arc<Identifier>,
    /// The event's name.
    pub(crate) kind: &'static str,
    /// The call that has taken it.
    pub(crate) taken: Place,
    /// The number of the thread that has taken it.
    pub(crate) thread: usize,
}

impl Identifier {
    pub(crate) fn new(number: u64, is_datagram: bool, made: Place) -> Self {
        Self { number, made, is_datagram, steps: Mutex::default() }
    }

    /// Returns the identifier's name in reports.
    pub(crate) fn name(&self) -> String {
        let kind = if self.is_datagram { "datagrams" } else { "a connection" };
        format!("identifier {} of {kind}", self.number)
    }
}
