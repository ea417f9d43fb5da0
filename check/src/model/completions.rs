//! What completions show.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::bytes::Print;
use crate::ffi::{
    IBV_QPS_ERR, IBV_QPT_RC, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, IBV_WC_RECV, IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR,
};
use crate::guard::Guard;
use crate::model::objects::{CompletionQueue, Device, Failure, QueuePair, Queues};
use crate::model::requests::Request;
use crate::model::tables::Tables;
use crate::report::{self, Finding};
use crate::rules::Rule;
use crate::stack::Place;

/// What has shown that a guarded buffer was changed.
const STORE: &str = "the store that changed it";

/// A completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) id: u64,
    pub(crate) status: u32,
    /// Only if the status is success.
    pub(crate) opcode: u32,
    pub(crate) pair: u32,
}

impl Completion {
    fn is_success(&self) -> bool {
        self.status == IBV_WC_SUCCESS
    }
}

/// Notes that the program has polled a queue.
pub(crate) fn polled(queue: &CompletionQueue) {
    // The cache line stays shared as long as nothing changes.
    if !queue.polled_since.load(Ordering::Relaxed) {
        queue.polled_since.store(true, Ordering::Relaxed);
        queue.ever_polled.store(true, Ordering::Relaxed);
    }
}

/// Takes the request of a completion from its queue, and checks what it shows.
pub(crate) fn completed(
    tables: &Tables,
    device: &Device,
    queue: &Arc<CompletionQueue>,
    completion: &Completion,
    place: Place,
) {
    let pair = device.pairs.read().get(&completion.pair).cloned();
    let Some(pair) = pair.filter(|pair| pair.kind != IBV_QPT_XRC_RECV) else {
        // A receive of XRC has the number of a queue pair that does not know the shared queue.
        complete_unknown(tables, queue, completion);
        return;
    };
    let mut queues = pair.queues.lock();
    let is_receive = if completion.is_success() {
        completion.opcode & IBV_WC_RECV != 0
    } else {
        fail(&pair, &mut queues, completion, place);
        is_receive(&pair, &queues, queue, completion)
    };
    if !is_receive {
        complete_send(&pair, &mut queues, completion, place);
    } else if let Some(shared) = &pair.shared {
        let mut queue = shared.requests.lock();
        if let Some(found) = queue.find(completion.id) {
            queue.take(found, None);
        }
    } else if let Some(found) = queues.receives.find(completion.id) {
        queues.receives.take(found, pair.expected_receives());
    }
}

fn complete_unknown(tables: &Tables, queue: &Arc<CompletionQueue>, completion: &Completion) {
    let address = |queue: &CompletionQueue| std::ptr::from_ref(queue) as usize;
    for shared in tables.shared.all() {
        let completes = tables.completion_queues.get(shared.completes);
        if completes.is_some_and(|completes| address(&completes) == address(queue)) {
            let mut requests = shared.requests.lock();
            if let Some(found) = requests.find(completion.id) {
                requests.take(found, None);
                return;
            }
        }
    }
}

/// Notes that a queue pair has failed.
fn fail(pair: &QueuePair, queues: &mut Queues, completion: &Completion, place: Place) {
    if matches!(pair.kind, IBV_QPT_RC | IBV_QPT_XRC_SEND) {
        queues.state = IBV_QPS_ERR;
    }
    if completion.status != IBV_WC_WR_FLUSH_ERR && queues.failed.is_none() {
        queues.failed = Some(Failure { status: completion.status, place });
    }
}

/// Returns whether a completion with an error, which does not tell its kind, is that of a receive.
fn is_receive(
    pair: &QueuePair,
    queues: &Queues,
    queue: &Arc<CompletionQueue>,
    completion: &Completion,
) -> bool {
    let is = |other: &Option<Arc<CompletionQueue>>| {
        other.as_ref().is_some_and(|other| Arc::ptr_eq(other, queue))
    };
    if !is(&pair.receive_queue) {
        return false;
    }
    if !is(&pair.send_queue) {
        return true;
    }
    queues.sends.find(completion.id).is_none()
}

/// Takes a send and all before it from their queue.
fn complete_send(pair: &QueuePair, queues: &mut Queues, completion: &Completion, place: Place) {
    let found = if completion.is_success() {
        // Programs give several requests the same identifier, but completions have an order.
        queues.sends.find_signaled(completion.id)
    } else {
        queues.sends.find(completion.id)
    };
    let Some(found) = found else {
        // A request that was posted in another way.
        queues.is_doubtful = true;
        return;
    };
    for number in 0..=found {
        let Some(request) = queues.sends.take(0, pair.expected_sends()) else { return };
        let is_last = number == found;
        if !is_last && request.is_signaled {
            // Completions were taken in another way.
            queues.is_doubtful = true;
        }
        if completion.is_success() {
            check_buffers(pair, &request, place);
        }
    }
}

/// Checks whether the buffers of a send are as they were when it was posted.
fn check_buffers(pair: &QueuePair, request: &Request, place: Place) {
    let Some(before) = request.print else { return };
    let store = request.guards.iter().find_map(Guard::store);
    let store = store.map(|stack| Place { call: STORE, stack });
    let (rule, what) = match request.look(report::options().strict) {
        _ if store.is_some() => (Rule::SendBufferChanged, "was changed"),
        Some(Print::Bytes(now)) if now != before => (Rule::SendBufferChanged, "was changed"),
        Some(Print::Unmapped) => (Rule::BufferUnmapped, "was unmapped"),
        _ => return,
    };
    let bytes = request.bytes();
    let start = request.segments.first().map_or(0, |segment| segment.sge.address);
    report::report(&Finding {
        rule,
        is_hint: false,
        text: format!(
            "the buffer of request {} of {}, {bytes} bytes at {start:#x}, {what} between {} and \
             the completion",
            request.id,
            pair.name(),
            request.place.call
        ),
        began: Some(request.place),
        shown: store.unwrap_or(place),
    });
}
