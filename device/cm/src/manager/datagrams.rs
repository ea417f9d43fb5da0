//! Resolution of service IDs (12.11): peers ask for the queue pair of a service, to which they then
//! send datagrams.

use vrnic_packet::Nanos;

use super::receive::Arrival;
use super::{ConnectionId, Manager};
use crate::connection::{RESPONSE, RETRIES};
use crate::mad::{BODY_LEN, Header, body};
use crate::messages::{SidrRep, SidrReq, number};
use crate::parameters::{Path, Transport, span};
use crate::state::{Error, Event, State, sidr};

impl Manager {
    /// Asks for the queue pair of a service, with at most 216 bytes of private data.
    ///
    /// # Errors
    /// [`Error::NoRoom`] and [`Error::PrivateData`].
    pub fn resolve(
        &mut self,
        now: Nanos,
        service: u64,
        path: Path,
        private: &[u8],
    ) -> Result<ConnectionId, Error> {
        let connection = self.create(service, path, Transport::Uc)?;
        let id = connection.local;
        let mad = connection.sidr_req(private).inspect_err(|_| self.remove(id))?;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::SidrReqSent;
            self.outbox.send_until_answered(now, connection, mad, span(RESPONSE), RETRIES);
        }
        Ok(id)
    }

    /// Answers a request for a service with a status of [`sidr`] and, if that is a success, a queue
    /// pair and its key. The private data has at most 136 bytes.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongState`] and [`Error::PrivateData`].
    pub fn resolved(
        &mut self,
        id: ConnectionId,
        status: u8,
        qpn: u32,
        qkey: u32,
        private: &[u8],
    ) -> Result<(), Error> {
        let connection = self.connections.get_mut(&id).ok_or(Error::Unknown)?;
        if connection.state != State::SidrReqRcvd {
            return Err(Error::WrongState);
        }
        connection.own.qpn = qpn;
        let mad = connection.sidr_rep(status, qkey, private)?;
        let path = connection.path;
        self.idle(id);
        self.outbox.send(path, mad);
        Ok(())
    }

    pub(super) fn sidr_req(
        &mut self,
        from: &Arrival,
        header: &Header,
        bytes: &[u8; BODY_LEN],
    ) -> Option<()> {
        let req: SidrReq = body(bytes)?;
        let (path, remote, service) = (from.back(), req.request.get(), req.service.get());
        if self.by_request.contains_key(&(from.source, remote)) {
            self.outbox.counters.duplicates += 1;
            return Some(());
        }
        let offered = self.services.contains_key(&service);
        // Without room, the peer asks again.
        let connection = self.create(service, path, Transport::Uc).ok()?;
        let id = connection.local;
        connection.remote = remote;
        connection.transaction = header.transaction.get();
        connection.state = State::SidrReqRcvd;
        if !offered {
            let _sent = self.resolved(id, sidr::UNSUPPORTED, 0, 0, &[]);
            self.remove(id);
            return Some(());
        }
        self.by_request.insert((from.source, remote), id);
        self.outbox.report(id, Event::SidrReqReceived { service, path, private: req.private });
        Some(())
    }

    pub(super) fn sidr_rep(&mut self, from: &Arrival, bytes: &[u8; BODY_LEN]) -> Option<()> {
        let rep: SidrRep = body(bytes)?;
        let id = rep.request.get();
        let connection = self.connections.get(&id)?;
        if connection.path.dest != from.source || connection.state != State::SidrReqSent {
            return None;
        }
        self.idle(id);
        let (status, qpn, qkey) = (rep.status, number(rep.qpn_vendor), rep.qkey.get());
        let private = rep.private;
        self.outbox.report(id, Event::SidrRepReceived { status, qpn, qkey, private });
        Some(())
    }
}
