//! What leaves a manager: messages and events. Also the times at which it has something to do.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use vrnic_packet::Nanos;

use super::{ConnectionId, Counters, Outgoing};
use crate::connection::{Connection, Outstanding};
use crate::mad::Mad;
use crate::parameters::Path;
use crate::state::Event;

/// Maximum number of messages that wait until they can be sent.
const MAX_MESSAGES: usize = 4096;

/// A connection that has something to do at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at: Nanos,
    pub(super) id: ConnectionId,
}

/// Messages, events and times.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) messages: VecDeque<Outgoing>,
    pub(super) events: VecDeque<(ConnectionId, Event)>,
    pub(super) deadlines: BTreeSet<Due>,
    pub(super) counters: Counters,
}

impl Outbox {
    /// Sends a message once.
    pub(super) fn send(&mut self, path: Path, mad: Mad) {
        self.counters.sent += 1;
        self.queue(Outgoing { path, mad });
    }

    /// Queues a message, unless too many wait. What is not queued is lost, as on a network.
    fn queue(&mut self, message: Outgoing) {
        if self.messages.len() < MAX_MESSAGES {
            self.messages.push_back(message);
        }
    }

    /// Sends a message until there is an answer.
    pub(super) fn send_until_answered(
        &mut self,
        now: Nanos,
        connection: &mut Connection,
        mad: Mad,
        timeout: Duration,
        retries: u8,
    ) {
        self.stop(connection);
        self.send(connection.path, mad);
        connection.outstanding = Some(Outstanding { mad, timeout, retries });
        self.set_deadline(connection, now.plus(timeout));
    }

    /// Sends the outstanding message of a connection again. Returns false if it was sent often
    /// enough.
    pub(super) fn send_again(&mut self, now: Nanos, connection: &mut Connection) -> bool {
        let Some(outstanding) = &mut connection.outstanding else { return false };
        let Some(retries) = outstanding.retries.checked_sub(1) else { return false };
        outstanding.retries = retries;
        self.counters.repeated += 1;
        let message = Outgoing { path: connection.path, mad: outstanding.mad };
        self.queue(message);
        let at = now.plus(outstanding.timeout);
        self.set_deadline(connection, at);
        true
    }

    /// Ends the wait for an answer or for a time.
    pub(super) fn stop(&mut self, connection: &mut Connection) {
        connection.outstanding = None;
        if let Some(at) = connection.deadline.take() {
            self.deadlines.remove(&Due { at, id: connection.local });
        }
    }

    /// Sets the time at which a connection has something to do.
    pub(super) fn set_deadline(&mut self, connection: &mut Connection, at: Nanos) {
        let id = connection.local;
        if let Some(old) = connection.deadline.replace(at) {
            self.deadlines.remove(&Due { at: old, id });
        }
        self.deadlines.insert(Due { at, id });
    }

    /// Reports an event.
    pub(super) fn report(&mut self, id: ConnectionId, event: Event) {
        self.events.push_back((id, event));
    }
}
