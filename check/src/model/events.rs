//! Events and their acknowledgement.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::model::objects::Events;
use crate::model::tables::Tables;
use crate::report::{self, Finding};
use crate::rules::Rule;
use crate::signals;
use crate::stack::Place;

/// How long another thread may take to acknowledge an event of an object that is destroyed.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Notes that an event was received.
pub(crate) fn received(events: &Events, place: Place) {
    *events.last.lock() = place;
    events.received.fetch_add(1, Ordering::AcqRel);
}

/// Notes that events are acknowledged.
pub(crate) fn acknowledged(events: &Events, count: u64, name: &str, place: Place) {
    let all = events.acknowledged.fetch_add(count, Ordering::AcqRel).saturating_add(count);
    let received = events.received.load(Ordering::Acquire);
    if all > received {
        report::report(&Finding {
            rule: Rule::AcknowledgedTwice,
            is_hint: false,
            text: format!("{all} events of {name} are acknowledged, and {received} were received"),
            began: Some(*events.last.lock()).filter(|_| received > 0),
            shown: place,
        });
    }
}

/// Reports if destroying an object will wait for ever: nobody acknowledges its events. This waits
/// for other threads, as destroying would.
pub(crate) fn check_end(events: &Events, name: &str, place: Place) {
    if events.open() == 0 {
        return;
    }
    if signals::uncancelled(|| is_done_soon(|| events.open() == 0)) {
        return;
    }
    report::report(&Finding {
        rule: Rule::EventNotAcknowledged,
        // Another thread may still do so.
        is_hint: has_other_threads(),
        text: format!(
            "{name} is destroyed with {} events that are not acknowledged, and the call waits for \
             that",
            events.open()
        ),
        began: Some(*events.last.lock()),
        shown: place,
    });
}

/// Waits for a while until something is done, as long as there is somebody who could do it.
pub(crate) fn is_done_soon(is_done: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while has_other_threads() && start.elapsed() < PATIENCE {
        std::thread::sleep(LOOK);
        if is_done() {
            return true;
        }
    }
    false
}

/// Returns whether the process has other threads than this one.
pub(crate) fn has_other_threads() -> bool {
    std::fs::read_dir("/proc/self/task").map_or(true, |tasks| tasks.count() > 1)
}

/// Checks that the queues of a channel were polled after they were armed, before the program waits.
pub(crate) fn check_wait(tables: &Tables, channel: usize, place: Place) {
    for queue in tables.completion_queues.all() {
        if queue.channel != channel || queue.polled_since.load(Ordering::Relaxed) {
            continue;
        }
        let Some(armed) = *queue.armed.lock() else { continue };
        report::report(&Finding {
            rule: Rule::NoPollAfterArming,
            is_hint: true,
            text: format!("{} is not polled between arming and waiting", queue.name()),
            began: Some(armed),
            shown: place,
        });
    }
}
