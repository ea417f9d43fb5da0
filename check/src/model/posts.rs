//! Checks of requests when they are posted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::lock_api::ArcMutexGuard;
use parking_lot::{Mutex, RawMutex};

use crate::bytes::Print;
use crate::ffi::{
    IBV_ACCESS_LOCAL_WRITE, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPT_DRIVER,
};
use crate::model::objects::{CompletionQueue, Device, QueuePair, Queues, SharedQueue};
use crate::model::order;
use crate::model::regions::Region;
use crate::model::requests::{Batch, Posted, Queue, Request, Segment, Segments};
use crate::model::tables::Tables;
use crate::report::{self, Finding};
use crate::rules::Rule;
use crate::stack::Place;

/// The error of a queue that is full (`ENOMEM`).
const FULL: i32 = libc::ENOMEM;

/// Which queue of a queue pair is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Sends,
    Receives,
}

/// A call that posts requests to a queue pair, from before the library is called until after it.
pub(crate) struct Posting {
    pair: Arc<QueuePair>,
    side: Side,
    place: Place,
    /// The numbers of the requests.
    numbers: std::ops::Range<u64>,
    /// Holds back other posts, and the completions, until the library has returned.
    held: Option<ArcMutexGuard<RawMutex, Queues>>,
}

/// Notes requests before the library gets them, because they may complete before it returns.
pub(crate) fn begin(
    tables: &Tables,
    pair: Arc<QueuePair>,
    side: Side,
    posted: Batch,
    place: Place,
) -> Posting {
    let mut queues = Mutex::lock_arc(&pair.queues);
    tables.requests.fetch_add(posted.len() as u64, Ordering::Relaxed);
    check_state(&pair, &queues, side, place);
    let prepare = |posted, number| prepare(tables, &pair, side, posted, place, number);
    let numbers = if pair.is_unseen {
        // Their completions would not be seen.
        posted.into_iter().for_each(|posted| drop(prepare(posted, 0)));
        0..0
    } else {
        match side {
            Side::Sends => {
                let numbers = queues.sends.push(posted, prepare);
                order::check_reads(&pair, &queues.sends, numbers.start);
                order::check_flags(tables, &pair, &queues.sends, numbers.start);
                numbers
            }
            Side::Receives => queues.receives.push(posted, prepare),
        }
    };
    // A lock of the library that is held between calls would wait for this one.
    let held = (!pair.is_unseen && !pair.is_in_sessions()).then_some(queues);
    Posting { pair, side, place, numbers, held }
}

/// Checks a request, and returns it as it is outstanding.
fn prepare(
    tables: &Tables,
    pair: &QueuePair,
    side: Side,
    posted: Posted,
    place: Place,
    number: u64,
) -> Request {
    let most = match side {
        Side::Sends => pair.limits.send_segments,
        Side::Receives => pair.limits.receive_segments,
    };
    let name = || pair.name();
    if posted.count > most {
        too_many(&name(), &posted, most, pair.made, place);
    }
    if posted.is_inline() && posted.bytes() > pair.limits.inline {
        report::report(&Finding {
            rule: Rule::InlineTooLarge,
            is_hint: false,
            text: format!(
                "request {} of {} has {} bytes inline, and the queue pair takes {}",
                posted.id,
                name(),
                posted.bytes(),
                pair.limits.inline
            ),
            began: Some(pair.made),
            shown: place,
        });
    }
    let owner = Owner { name: &name, device: &pair.device, domain: pair.domain, tables };
    let is_inline = posted.is_inline();
    let segments = if is_inline { Segments::new() } else { segments(&owner, &posted, place) };
    let mut request = Request {
        number,
        id: posted.id,
        place,
        is_signaled: side == Side::Receives || pair.all_signaled || posted.is_signaled(),
        is_taken: false,
        is_filled: side == Side::Sends && posted.is_written(),
        is_unfenced: posted.is_read() && !posted.is_fenced(),
        target: posted.target,
        print: None,
        segments,
        guards: Vec::new(),
    };
    if request.is_unfenced && !pair.is_unseen && report::options().guard {
        request.guard();
    }
    if request.is_unfenced
        && !pair.is_unseen
        && let Some(Print::Bytes(print)) = request.look(report::options().strict)
    {
        request.print = Some(print);
    }
    request
}

fn too_many(name: &str, posted: &Posted, most: usize, made: Place, place: Place) {
    report::report(&Finding {
        rule: Rule::TooManySegments,
        is_hint: false,
        text: format!(
            "request {} of {name} has {} segments, and the queue takes {most}",
            posted.id, posted.count
        ),
        began: Some(made),
        shown: place,
    });
}

/// Whose requests are checked.
struct Owner<'a> {
    name: &'a dyn Fn() -> String,
    device: &'a Arc<Device>,
    domain: usize,
    tables: &'a Tables,
}

/// Returns the segments of a request with their regions, after checks.
fn segments(owner: &Owner<'_>, posted: &Posted, place: Place) -> Segments {
    let regions = owner.device.regions.read();
    let mut found = Segments::with_capacity(posted.segments.len());
    for sge in posted.segments.iter().filter(|sge| sge.length > 0) {
        let region = regions.get(&sge.key).cloned();
        found.push(Segment { sge: *sge, region });
    }
    drop(regions);
    for segment in &found {
        let wrong = match &segment.region {
            Some(region) => check_region(owner, posted, segment, region),
            None => unknown(owner, segment),
        };
        if let Some(Wrong { rule, text, began }) = wrong {
            let text = format!("request {} of {}: {text}", posted.id, (owner.name)());
            report::report(&Finding { rule, is_hint: false, text, began, shown: place });
        }
    }
    found
}

/// What is wrong with a segment.
struct Wrong {
    rule: Rule,
    text: String,
    began: Option<Place>,
}

fn check_region(
    owner: &Owner<'_>,
    posted: &Posted,
    segment: &Segment,
    region: &Region,
) -> Option<Wrong> {
    let sge = &segment.sge;
    let began = Some(region.made);
    if owner.domain != 0 && region.domain != owner.domain {
        let text = format!("{} belongs to another protection domain", region.name());
        return Some(Wrong { rule: Rule::ForeignKey, text, began });
    }
    if !region.contains(sge) {
        let text =
            format!("{} bytes at {:#x} are not within {}", sge.length, sge.address, region.name());
        return Some(Wrong { rule: Rule::OutsideRegion, text, began });
    }
    if posted.is_written() && region.access & IBV_ACCESS_LOCAL_WRITE == 0 {
        let text = format!("{} may only be read", region.name());
        return Some(Wrong { rule: Rule::NotWritable, text, began });
    }
    None
}

/// Looks for the region of a key that the device does not have. There are keys that the checker
/// does not see, so only what proves a mistake is one.
fn unknown(owner: &Owner<'_>, segment: &Segment) -> Option<Wrong> {
    let sge = &segment.sge;
    let ended = owner.device.ended.lock();
    let same = |region: &&Arc<Region>| region.key == sge.key && region.contains(sge);
    if let Some(region) = ended.iter().rev().find(same) {
        let text = format!("{} was deregistered before", region.name());
        let began = *region.ended.lock();
        return Some(Wrong { rule: Rule::DeregisteredKey, text, began });
    }
    drop(ended);
    for device in owner.tables.devices.all() {
        let found = device.regions.read().get(&sge.key).cloned();
        if let Some(region) = found.filter(|region| region.contains(sge)) {
            let text = format!("{} is one of {}", region.name(), device.name);
            return Some(Wrong { rule: Rule::ForeignKey, text, began: Some(region.made) });
        }
    }
    None
}

fn check_state(pair: &QueuePair, queues: &Queues, side: Side, place: Place) {
    if pair.device.is_iwarp || pair.kind == IBV_QPT_DRIVER {
        return;
    }
    let state = queues.state;
    let is_early = match side {
        Side::Receives => state == IBV_QPS_RESET,
        Side::Sends => matches!(state, IBV_QPS_RESET | IBV_QPS_INIT | IBV_QPS_RTR),
    };
    if is_early {
        let what = if side == Side::Sends { "send" } else { "receive" };
        let name = match state {
            IBV_QPS_RESET => "RESET",
            IBV_QPS_INIT => "INIT",
            _ => "RTR",
        };
        report::report(&Finding {
            rule: Rule::WrongState,
            is_hint: false,
            text: format!("a {what} is posted to {}, which is in the state {name}", pair.name()),
            began: Some(pair.made),
            shown: place,
        });
    }
    if let Some(failure) = queues.failed.filter(|_| state == IBV_QPS_ERR) {
        report::report(&Finding {
            rule: Rule::PostAfterFailure,
            is_hint: true,
            text: format!(
                "a request is posted to {}, which is in error since a completion with status {}",
                pair.name(),
                failure.status
            ),
            began: Some(failure.place),
            shown: place,
        });
    }
}

impl Posting {
    /// Notes what the library has returned: an error, and how many requests it has taken before.
    pub(crate) fn finish(self, error: i32, taken: usize) {
        let Self { pair, side, place, numbers, held } = self;
        if pair.is_unseen {
            return;
        }
        let mut queues = held.unwrap_or_else(|| Mutex::lock_arc(&pair.queues));
        let taken = if error == 0 { u64::MAX } else { taken as u64 };
        match side {
            Side::Sends => queues.sends.settle(numbers, taken, pair.expected_sends()),
            Side::Receives => queues.receives.settle(numbers, taken, pair.expected_receives()),
        }
        if !queues.is_doubtful {
            check_room(&pair, &queues, side, place, error);
        }
    }
}

/// Checks whether the queues have room for what is outstanding.
fn check_room(pair: &QueuePair, queues: &Queues, side: Side, place: Place, error: i32) {
    let (queue, most, completes) = match side {
        Side::Sends => (&queues.sends, pair.limits.sends, pair.send_queue.as_deref()),
        Side::Receives => (&queues.receives, pair.limits.receives, pair.receive_queue.as_deref()),
    };
    let what = if side == Side::Sends { "send" } else { "receive" };
    let full = Full { name: &|| pair.name(), what, most, made: pair.made };
    check_full(&full, queue, place, error);
    let is_full = || !queue.requests.is_empty() && queue.taken() >= most;
    let has_none = || queue.requests.iter().all(|request| !request.is_signaled);
    if error == FULL && side == Side::Sends && is_full() && has_none() {
        let first = queue.requests.front().map(|request| request.place);
        report::report(&Finding {
            rule: Rule::NothingSignaled,
            is_hint: false,
            text: format!(
                "the send queue of {} is full of {} requests of which none is signaled, so nothing \
                 can free it",
                pair.name(),
                queue.requests.len()
            ),
            began: first,
            shown: place,
        });
    }
    if let Some(queue) = completes.filter(|_| error == 0) {
        check_completions(queue, place);
    }
}

/// A queue that may be full.
struct Full<'a> {
    name: &'a dyn Fn() -> String,
    what: &'static str,
    most: usize,
    made: Place,
}

fn check_full(full: &Full<'_>, queue: &Queue, place: Place, error: i32) {
    let count = queue.taken();
    let is_over = error == 0 && count > full.most;
    // The library has refused the request. A program may count on that.
    let is_refused = error == FULL && count >= full.most;
    if !is_over && !is_refused {
        return;
    }
    let end = if is_over { "" } else { ", and one more is refused" };
    report::report(&Finding {
        rule: Rule::QueueFull,
        is_hint: is_refused,
        text: format!(
            "{count} {}s are outstanding in {}, which was created for {}{end}",
            full.what,
            (full.name)(),
            full.most
        ),
        began: Some(full.made),
        shown: place,
    });
}

fn check_completions(queue: &CompletionQueue, place: Place) {
    if queue.may_overrun {
        return;
    }
    let size = queue.size.load(Ordering::Relaxed);
    let sends = queue.sends.load(Ordering::Relaxed);
    let all = sends + queue.receives.load(Ordering::Relaxed);
    if all <= size {
        return;
    }
    report::report(&Finding {
        rule: Rule::CqTooSmall,
        // The peer may never send what the receives wait for.
        is_hint: sends <= size,
        text: format!(
            "{all} requests will complete into {}, which holds {size} completions",
            queue.name()
        ),
        began: Some(queue.made),
        shown: place,
    });
}

/// Notes receives of a shared queue before the library gets them. Returns their numbers.
pub(crate) fn begin_shared(
    tables: &Tables,
    shared: &SharedQueue,
    posted: Batch,
    place: Place,
) -> std::ops::Range<u64> {
    tables.requests.fetch_add(posted.len() as u64, Ordering::Relaxed);
    let name = || shared.name();
    let owner = Owner { name: &name, device: &shared.device, domain: shared.domain, tables };
    let request = |posted: Posted, number| {
        if posted.count > shared.segments {
            too_many(&name(), &posted, shared.segments, shared.made, place);
        }
        Request {
            number,
            id: posted.id,
            place,
            is_signaled: true,
            is_taken: false,
            is_filled: false,
            is_unfenced: false,
            target: None,
            print: None,
            segments: segments(&owner, &posted, place),
            guards: Vec::new(),
        }
    };
    shared.requests.lock().push(posted, request)
}

/// Notes what the library has returned for receives of a shared queue.
pub(crate) fn finish_shared(
    shared: &SharedQueue,
    numbers: std::ops::Range<u64>,
    place: Place,
    error: i32,
    taken: usize,
) {
    let mut queue = shared.requests.lock();
    queue.settle(numbers, if error == 0 { u64::MAX } else { taken as u64 }, None);
    if shared.is_doubtful.load(Ordering::Relaxed) {
        return;
    }
    let most = shared.size.load(Ordering::Relaxed);
    let full = Full { name: &|| shared.name(), what: "receive", most, made: shared.made };
    check_full(&full, &queue, place, error);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicI64};

    use super::*;
    use crate::ffi::{IBV_QPS_RTS, IBV_QPT_RC};
    use crate::model::objects::{Events, Limits};

    fn completion_queue(is_extended: bool) -> Arc<CompletionQueue> {
        Arc::new(CompletionQueue {
            number: 1,
            device: 0,
            channel: 0,
            made: Place::default(),
            size: AtomicI64::new(16),
            sends: AtomicI64::new(0),
            receives: AtomicI64::new(0),
            events: Events::default(),
            async_events: Events::default(),
            is_extended,
            may_overrun: false,
            polled_since: AtomicBool::new(false),
            ever_polled: AtomicBool::new(false),
            armed: Mutex::default(),
            polling: Arc::default(),
        })
    }

    fn pair(send_queue: Option<Arc<CompletionQueue>>) -> Arc<QueuePair> {
        let queues = Queues { state: IBV_QPS_RTS, ..Queues::default() };
        Arc::new(QueuePair {
            device: Arc::new(Device::new("device".to_owned(), false, Place::default())),
            device_address: 0,
            domain: 0,
            number: 1,
            kind: IBV_QPT_RC,
            limits: Limits { sends: 16, receives: 16, ..Limits::default() },
            all_signaled: true,
            is_unseen: send_queue.is_none(),
            receive_queue: send_queue.clone(),
            send_queue,
            shared: None,
            made: Place::default(),
            is_extended: false,
            events: Events::default(),
            queues: Arc::new(Mutex::new(queues)),
        })
    }

    fn post(pair: &Arc<QueuePair>) -> Posting {
        let posted = Batch::from_iter([Posted { opcode: Some(0), ..Posted::default() }]);
        let (tables, place) = (Tables::default(), Place::default());
        begin(&tables, Arc::clone(pair), Side::Sends, posted, place)
    }

    #[test]
    fn polls_of_an_extended_queue_do_not_wait_for_posts() {
        for is_extended in [true, false] {
            let pair = pair(Some(completion_queue(is_extended)));
            let posting = post(&pair);
            assert_eq!(pair.queues.try_lock().is_some(), is_extended);
            posting.finish(0, 0);
            assert_eq!(pair.queues.lock().sends.taken(), 1);
        }
    }

    #[test]
    fn requests_whose_completions_are_not_seen_are_not_followed() {
        let pair = pair(None);
        post(&pair).finish(0, 0);
        assert!(pair.queues.lock().sends.requests.is_empty());
    }
}
