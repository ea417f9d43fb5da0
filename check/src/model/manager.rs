//! Identifiers of the connection manager and their events.

use std::sync::Arc;

use crate::model::events::{has_other_threads, is_done_soon};
use crate::model::objects::{Identifier, Received};
use crate::model::tables::Tables;
use crate::report::{self, Finding};
use crate::rules::Rule;
use crate::signals;
use crate::stack::Place;

/// The names of events, by number.
const EVENTS: [&str; 16] = [
    "ADDR_RESOLVED",
    "ADDR_ERROR",
    "ROUTE_RESOLVED",
    "ROUTE_ERROR",
    "CONNECT_REQUEST",
    "CONNECT_RESPONSE",
    "CONNECT_ERROR",
    "UNREACHABLE",
    "REJECTED",
    "ESTABLISHED",
    "DISCONNECTED",
    "DEVICE_REMOVAL",
    "MULTICAST_JOIN",
    "MULTICAST_ERROR",
    "ADDR_CHANGE",
    "TIMEWAIT_EXIT",
];

/// A message of the connection manager with private data of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Request,
    Reply,
    Reject,
}

impl Message {
    /// Returns the bytes of private data in messages about connections. The request has a header of
    /// 36 bytes in front of them.
    pub(crate) const fn connected(self) -> u8 {
        match self {
            Self::Request => 56,
            Self::Reply => 196,
            Self::Reject => 148,
        }
    }

    /// Returns the same for those that look for a queue pair of datagrams.
    pub(crate) const fn datagram(self) -> u8 {
        match self {
            Self::Request => 180,
            Self::Reply | Self::Reject => 136,
        }
    }
}

/// Returns the name of an event.
pub(crate) fn event_name(kind: u32) -> &'static str {
    let kind = usize::try_from(kind).ok().and_then(|kind| EVENTS.get(kind));
    kind.copied().unwrap_or("unknown")
}

/// Returns an event of an identifier that is not acknowledged.
fn open(tables: &Tables, owner: &Arc<Identifier>) -> Option<Arc<Received>> {
    let events = tables.manager_events.all();
    events.into_iter().find(|event| Arc::ptr_eq(&event.owner, owner))
}

/// Reports if destroying an identifier will wait for ever: nobody acknowledges an event of it.
/// `thread` is the number of the one that does this.
pub(crate) fn check_end(
    tables: &Tables,
    identifier: &Arc<Identifier>,
    thread: usize,
    place: Place,
) {
    let Some(event) = open(tables, identifier) else { return };
    if signals::uncancelled(|| is_done_soon(|| open(tables, identifier).is_none())) {
        return;
    }
    let is_own = event.thread == thread;
    report::report(&Finding {
        rule: if is_own { Rule::DestroyedInsideEvent } else { Rule::ManagerEventKept },
        // Another thread may still acknowledge it.
        is_hint: has_other_threads(),
        text: format!(
            "{} is destroyed before its event {} is acknowledged, and the call waits for that",
            identifier.name(),
            event.kind
        ),
        began: Some(event.taken),
        shown: place,
    });
}

/// Reports private data that are longer than this.
pub(crate) fn check_length(identifier: &Identifier, length: u8, limit: u8, place: Place) {
    if length <= limit {
        return;
    }
    report::report(&Finding {
        rule: Rule::PrivateDataTooLong,
        is_hint: false,
        text: format!(
            "{} of {} passes {length} bytes of private data, and the message has room for {limit}",
            place.call,
            identifier.name()
        ),
        began: Some(identifier.made),
        shown: place,
    });
}

/// Notes that an identifier is connected, or that this was refused.
pub(crate) fn connected(identifier: &Identifier, is_done: bool, place: Place) {
    if is_done {
        identifier.steps.lock().connected.get_or_insert(place);
    } else {
        check_again(identifier, place);
    }
}

/// Reports if a call was refused because the identifier has had its connection.
pub(crate) fn check_again(identifier: &Identifier, place: Place) {
    let Some(connected) = identifier.steps.lock().connected else { return };
    report::report(&Finding {
        rule: Rule::IdentifierUsedAgain,
        is_hint: false,
        text: format!(
            "{} has been used by {}, and is used for another connection",
            identifier.name(),
            connected.call
        ),
        began: Some(connected),
        shown: place,
    });
}

/// Notes that the program ends a connection.
pub(crate) fn disconnected(identifier: &Identifier, place: Place) {
    let before = identifier.steps.lock().disconnected.replace(place);
    let Some(before) = before else { return };
    report::report(&Finding {
        rule: Rule::DisconnectedTwice,
        // The second call has no effect.
        is_hint: true,
        text: format!("{} is disconnected twice", identifier.name()),
        began: Some(before),
        shown: place,
    });
}

/// Reports events that are not acknowledged when the process ends.
pub(crate) fn exit(tables: &Tables, place: Place) {
    for event in tables.manager_events.all() {
        report::report(&Finding {
            rule: Rule::ManagerEventKept,
            is_hint: true,
            text: format!(
                "the event {} of {} is not acknowledged when the process ends",
                event.kind,
                event.owner.name()
            ),
            began: Some(event.taken),
            shown: place,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_open_until_it_is_acknowledged() {
        let tables = Tables::default();
        let made = || Identifier::new(1, false, Place::default());
        let (first, second) = (tables.identifiers.insert(1, made()), Arc::new(made()));
        let (owner, kind, taken) = (Arc::clone(&first), event_name(9), Place::default());
        tables.manager_events.insert(100, Received { owner, kind, taken, thread: 0 });
        assert_eq!(open(&tables, &first).map(|event| event.kind), Some("ESTABLISHED"));
        assert!(open(&tables, &second).is_none());
        tables.manager_events.remove(100);
        assert!(open(&tables, &first).is_none());
    }

    #[test]
    fn messages_have_the_room_of_the_kernel() {
        // `IB_CM_REQ_PRIVATE_DATA_SIZE` and `IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE`, less the header of
        // requests (`struct cma_hdr`).
        assert_eq!(Message::Request.connected(), 92 - 36);
        assert_eq!(Message::Request.datagram(), 216 - 36);
    }
}
