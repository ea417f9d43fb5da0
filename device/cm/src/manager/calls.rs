//! What the user of a connection does.

use vrnic_packet::Nanos;

use super::{ConnectionId, Manager};
use crate::connection::{RESPONSE, RETRIES};
use crate::parameters::{Path, Qp, Transport, span};
use crate::state::{Error, Event, State, reason, sidr};

/// A request for a connection.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The service ID at the peer.
    pub service: u64,
    /// The way to the peer.
    pub path: Path,
    /// The type of the queue pairs.
    pub transport: Transport,
    /// The own queue pair.
    pub qp: Qp,
    /// What the user says, at most 92 bytes.
    pub private: &'a [u8],
}

impl Manager {
    /// Requests a connection.
    ///
    /// # Errors
    /// [`Error::NoRoom`] and [`Error::PrivateData`].
    pub fn connect(&mut self, now: Nanos, connect: &Connect<'_>) -> Result<ConnectionId, Error> {
        let guid = self.guid;
        let connection = self.create(connect.service, connect.path, connect.transport)?;
        let id = connection.local;
        connection.own = connect.qp;
        connection.initiator_depth = connect.qp.initiator_depth;
        connection.responder_resources = connect.qp.responder_resources;
        connection.retry_count = connect.qp.retry_count;
        let mad = connection.req(guid, connect.private).inspect_err(|_| self.remove(id))?;
        let timeout = 2 * span(connect.path.lifetime) + span(RESPONSE);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::ReqSent;
            self.outbox.send_until_answered(now, connection, mad, timeout, RETRIES);
        }
        Ok(id)
    }

    /// Accepts a requested connection for a queue pair, with at most 196 bytes of private data.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongState`] and [`Error::PrivateData`].
    pub fn accept(
        &mut self,
        now: Nanos,
        id: ConnectionId,
        qp: &Qp,
        private: &[u8],
    ) -> Result<(), Error> {
        let connection = self.connections.get_mut(&id).ok_or(Error::Unknown)?;
        if !matches!(connection.state, State::ReqRcvd | State::MraReqSent) {
            return Err(Error::WrongState);
        }
        let before = connection.own;
        connection.own = *qp;
        let mad = connection.rep(self.guid, private);
        let mad = mad.inspect_err(|_| connection.own = before)?;
        connection.initiator_depth = qp.initiator_depth;
        connection.responder_resources = qp.responder_resources;
        connection.state = State::RepSent;
        let (timeout, retries) = (connection.answer_timeout, connection.answer_retries);
        self.outbox.send_until_answered(now, connection, mad, timeout, retries);
        Ok(())
    }

    /// Says that the queue pair of an accepted connection is ready.
    ///
    /// # Errors
    /// [`Error::Unknown`] and [`Error::WrongState`].
    pub fn ready(&mut self, id: ConnectionId) -> Result<(), Error> {
        let connection = self.connections.get_mut(&id).ok_or(Error::Unknown)?;
        if !matches!(connection.state, State::RepRcvd | State::MraRepSent) {
            return Err(Error::WrongState);
        }
        connection.state = State::Established;
        self.outbox.send(connection.path, connection.rtu());
        Ok(())
    }

    /// Says that data has arrived on a connection whose peer has not said that it is ready.
    ///
    /// # Errors
    /// [`Error::Unknown`] and [`Error::WrongState`].
    pub fn establish(&mut self, id: ConnectionId) -> Result<(), Error> {
        let connection = self.connections.get_mut(&id).ok_or(Error::Unknown)?;
        if !matches!(connection.state, State::RepSent | State::MraRepRcvd) {
            return Err(Error::WrongState);
        }
        connection.state = State::Established;
        self.outbox.stop(connection);
        self.outbox.report(id, Event::RtuReceived);
        Ok(())
    }

    /// Rejects a connection that is not established, with at most 148 bytes of private data.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongState`] and [`Error::PrivateData`].
    pub fn reject(
        &mut self,
        now: Nanos,
        id: ConnectionId,
        reason: u16,
        private: &[u8],
    ) -> Result<(), Error> {
        let connection = self.connections.get(&id).ok_or(Error::Unknown)?;
        let (state, path) = (connection.state, connection.path);
        let waits = match state {
            State::ReqSent
            | State::MraReqRcvd
            | State::ReqRcvd
            | State::MraReqSent
            | State::RepRcvd
            | State::MraRepSent => false,
            State::RepSent | State::MraRepRcvd => true,
            _ => return Err(Error::WrongState),
        };
        let mad = connection.rej(self.guid, reason, private)?;
        if waits {
            self.wait(now, id)
        } else {
            self.idle(id)
        }
        self.outbox.send(path, mad);
        Ok(())
    }

    /// Ends a connection, or agrees to its end.
    ///
    /// # Errors
    /// [`Error::Unknown`] and [`Error::WrongState`].
    pub fn disconnect(&mut self, now: Nanos, id: ConnectionId) -> Result<(), Error> {
        let connection = self.connections.get_mut(&id).ok_or(Error::Unknown)?;
        match connection.state {
            State::Established => {
                connection.state = State::DreqSent;
                let mad = connection.dreq();
                let timeout = 2 * span(connection.path.lifetime) + span(RESPONSE);
                self.outbox.send_until_answered(now, connection, mad, timeout, RETRIES);
            }
            State::DreqRcvd => {
                self.outbox.send(connection.path, connection.drep());
                self.wait(now, id);
            }
            _ => return Err(Error::WrongState),
        }
        Ok(())
    }

    /// Ends a connection in any state, and forgets it. The peer is told if it may wait.
    pub fn destroy(&mut self, now: Nanos, id: ConnectionId) {
        let Some(connection) = self.connections.get(&id) else { return };
        match connection.state {
            State::ReqSent | State::MraReqRcvd => {
                let _sent = self.reject(now, id, reason::TIMEOUT, &[]);
            }
            State::ReqRcvd
            | State::MraReqSent
            | State::RepRcvd
            | State::MraRepSent
            | State::RepSent
            | State::MraRepRcvd => {
                let _sent = self.reject(now, id, reason::CONSUMER, &[]);
            }
            State::Established => self.outbox.send(connection.path, connection.dreq()),
            State::DreqRcvd => self.outbox.send(connection.path, connection.drep()),
            State::SidrReqRcvd => {
                let _sent = self.resolved(id, sidr::REJECT, 0, 0, &[]);
            }
            State::Idle | State::DreqSent | State::TimeWait | State::SidrReqSent => {}
        }
        self.remove(id);
    }

    /// Forgets a requested connection without a word. The peer asks again.
    pub fn forget(&mut self, id: ConnectionId) {
        self.remove(id);
    }
}
