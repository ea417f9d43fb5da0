//! All connections of an adapter. A connection has a number, which is also its local communication
//! ID in messages.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`calls`] | what the user of a connection does |
//! | [`outbox`] | messages, events and times |
//! | [`receive`] | what messages of peers do |
//! | [`datagrams`] | resolution of service IDs |
//! | [`timers`] | what happens when a time has come |

pub mod calls;
pub mod datagrams;
pub mod outbox;
pub mod receive;
pub mod timers;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use vrnic_packet::Nanos;

use outbox::Outbox;

use super::connection::Connection;
use super::mad::Mad;
use super::parameters::{Gid, Path, Transport, span};
use super::state::{Error, Event, State};

/// The number of a connection.
pub type ConnectionId = u32;

/// A message that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The way that the message takes.
    pub path: Path,
    /// The message.
    pub mad: Mad,
}

/// Numbers of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were sent, without those that were sent again.
    pub sent: u64,
    /// Messages that were sent again.
    pub repeated: u64,
    /// Messages that were received.
    pub received: u64,
    /// Messages that had been received before.
    pub duplicates: u64,
    /// Bytes that are no message of this class.
    pub malformed: u64,
    /// Messages that fit to no connection, to another state, or come from another peer.
    pub unexpected: u64,
}

/// The connections.
#[derive(Debug)]
pub struct Manager {
    guid: u64,
    most: usize,
    next: u32,
    connections: BTreeMap<ConnectionId, Connection>,
    /// The connections of peers: by the GUID of the adapter and the communication ID there.
    by_remote: HashMap<(u64, u32), ConnectionId>,
    /// The connections of the queue pairs of peers: by the GUID of the adapter and the number.
    by_qpn: HashMap<(u64, u32), ConnectionId>,
    /// Requests for services: by the GID of the peer and the number of the request.
    by_request: HashMap<(Gid, u32), ConnectionId>,
    /// The services that somebody offers, and how many do.
    services: HashMap<u64, u32>,
    outbox: Outbox,
}

impl Manager {
    /// Returns the manager of the adapter with this GUID. There are at most `most` connections at a
    /// time, and the numbers of connections begin after `first`.
    #[must_use]
    pub fn new(guid: u64, most: usize, first: u32) -> Self {
        Self {
            guid,
            most,
            next: first,
            connections: BTreeMap::new(),
            by_remote: HashMap::new(),
            by_qpn: HashMap::new(),
            by_request: HashMap::new(),
            services: HashMap::new(),
            outbox: Outbox::default(),
        }
    }

    /// Accepts requests for a service. Each call needs one of [`Self::unlisten`].
    pub fn listen(&mut self, service: u64) {
        let count = self.services.entry(service).or_default();
        *count = count.saturating_add(1);
    }

    /// Ends one call of [`Self::listen`].
    pub fn unlisten(&mut self, service: u64) {
        if let Entry::Occupied(mut count) = self.services.entry(service) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Returns a connection.
    #[must_use]
    pub fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(&id)
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn count(&self) -> usize {
        self.connections.len()
    }

    /// Returns the numbers of messages.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.outbox.counters
    }

    /// Returns whether a message is to be sent.
    #[must_use]
    pub fn has_message(&self) -> bool {
        !self.outbox.messages.is_empty()
    }

    /// Takes the next message that is to be sent.
    pub fn message(&mut self) -> Option<Outgoing> {
        self.outbox.messages.pop_front()
    }

    /// Takes the next event, and the connection that it is of.
    pub fn event(&mut self) -> Option<(ConnectionId, Event)> {
        self.outbox.events.pop_front()
    }

    /// Returns the time at which [`Self::expire`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.outbox.deadlines.first().map(|first| first.at)
    }

    /// Adds a connection that is idle.
    fn create(
        &mut self,
        service: u64,
        path: Path,
        transport: Transport,
    ) -> Result<&mut Connection, Error> {
        if self.connections.len() >= self.most {
            return Err(Error::NoRoom);
        }
        // Zero stands for no connection in messages.
        let id = loop {
            self.next = self.next.wrapping_add(1);
            if self.next != 0 && !self.connections.contains_key(&self.next) {
                break self.next;
            }
        };
        let connection = Connection::new(id, service, path, transport);
        Ok(self.connections.entry(id).or_insert(connection))
    }

    /// Removes a connection, without a message.
    fn remove(&mut self, id: ConnectionId) {
        self.unlink(id);
        if let Some(mut connection) = self.connections.remove(&id) {
            self.outbox.stop(&mut connection);
        }
    }

    /// Forgets who the peer of a connection is.
    fn unlink(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(&id) else { return };
        let (guid, remote, qpn) = (connection.peer_guid, connection.remote, connection.peer.qpn);
        let request = (connection.path.dest, remote);
        remove_if(&mut self.by_remote, (guid, remote), id);
        remove_if(&mut self.by_qpn, (guid, qpn), id);
        remove_if(&mut self.by_request, request, id);
    }

    /// Ends a connection whose packets may still arrive.
    fn wait(&mut self, now: Nanos, id: ConnectionId) {
        self.unlink(id);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::TimeWait;
            self.outbox.stop(connection);
            let end = now.plus(span(connection.ack_timeout));
            self.outbox.set_deadline(connection, end);
        }
    }

    /// Ends a connection of which no packets can arrive.
    fn idle(&mut self, id: ConnectionId) {
        self.unlink(id);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Idle;
            self.outbox.stop(connection);
        }
    }
}

/// Removes an entry if it is of a connection.
fn remove_if<K: Eq + std::hash::Hash>(
    map: &mut HashMap<K, ConnectionId>,
    key: K,
    id: ConnectionId,
) {
    if map.get(&key) == Some(&id) {
        map.remove(&key);
    }
}
