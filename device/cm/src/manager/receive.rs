//! What messages of peers do.

use vrnic_packet::Nanos;

use super::{ConnectionId, Manager};
use crate::connection::RETRIES;
use crate::mad::{BODY_LEN, Body, Header, body, decode, encode};
use crate::messages::{
    Answered, Drep, Dreq, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq, byte, number,
};
use crate::parameters::{Ece, Gid, Path, Qp, Transport, ack_timeout, span};
use crate::state::{Error, Event, Requested, State, reason};

/// Where a message comes from, and where it has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The GID of the sender.
    pub source: Gid,
    /// The GID of the receiver.
    pub dest: Gid,
}

impl Arrival {
    /// Returns the way back.
    pub(super) fn back(&self) -> Path {
        Path { source: self.dest, dest: self.source, hop_limit: 64, ..Path::default() }
    }
}

impl Manager {
    /// Handles a message.
    pub fn receive(&mut self, now: Nanos, from: Arrival, bytes: &[u8]) {
        let Some((header, bytes)) = decode(bytes) else {
            self.outbox.counters.malformed += 1;
            return;
        };
        self.outbox.counters.received += 1;
        let done = match header.attribute.get() {
            Req::ATTRIBUTE => self.req(now, &from, &header, bytes),
            Rep::ATTRIBUTE => self.rep(now, &from, &header, bytes),
            Rtu::ATTRIBUTE => self.rtu(&from, bytes),
            Rej::ATTRIBUTE => self.rej(now, &from, bytes),
            Mra::ATTRIBUTE => self.mra(now, &from, bytes),
            Dreq::ATTRIBUTE => self.dreq(&from, &header, bytes),
            Drep::ATTRIBUTE => self.drep(now, &from, bytes),
            SidrReq::ATTRIBUTE => self.sidr_req(&from, &header, bytes),
            SidrRep::ATTRIBUTE => self.sidr_rep(&from, bytes),
            _ => None,
        };
        if done.is_none() {
            self.outbox.counters.unexpected += 1;
        }
    }

    /// Returns the connection with these numbers here and at the sender of a message.
    fn both(&self, from: &Arrival, local: u32, remote: u32) -> Option<ConnectionId> {
        let connection = self.connections.get(&local)?;
        let same = connection.remote == remote && connection.path.dest == from.source;
        same.then_some(local)
    }

    /// Rejects a message that is of no connection.
    fn refuse(
        &mut self,
        from: &Arrival,
        header: &Header,
        to: [u32; 2],
        answered: Answered,
    ) -> Refusal<'_> {
        let [local, remote] = to;
        let mut rej = Rej::new();
        rej.local = local.into();
        rej.remote = remote.into();
        rej.answered = answered.byte();
        Refusal { manager: self, path: from.back(), transaction: header.transaction.get(), rej }
    }

    fn req(
        &mut self,
        now: Nanos,
        from: &Arrival,
        header: &Header,
        bytes: &[u8; BODY_LEN],
    ) -> Option<()> {
        let req: Req = body(bytes)?;
        let (guid, remote) = (req.guid.get(), req.local.get());
        if let Some(id) = self.by_remote.get(&(guid, remote)).copied() {
            return self.duplicate_req(from, id);
        }
        let (qpn, path) = (number(req.qpn_resources), Path::back(&req));
        let refused = if path.dest != from.source || path.source != from.dest {
            Some(reason::INVALID_GID)
        } else if Transport::of(&req).is_none() {
            Some(reason::INVALID_TRANSPORT_TYPE)
        } else if !path.has_mtu() {
            Some(reason::INVALID_MTU)
        } else if let Some(stale) = self.by_qpn.get(&(guid, qpn)).copied().filter(|stale| {
            let connection = self.connections.get(stale);
            connection.is_some_and(|connection| connection.path.dest == from.source)
        }) {
            // The peer has begun again.
            let _ended = self.disconnect(now, stale);
            Some(reason::STALE_CONNECTION)
        } else if !self.services.contains_key(&req.service.get()) {
            Some(reason::INVALID_SERVICE_ID)
        } else {
            None
        };
        let refused = refused.or_else(|| {
            let created = self.requested(header, &req, path);
            created.is_err().then_some(reason::NO_RESOURCES)
        });
        if let Some(reason) = refused {
            self.refuse(from, header, [0, remote], Answered::Req).send(reason);
        }
        Some(())
    }

    /// Adds the connection that a peer requests.
    fn requested(&mut self, header: &Header, req: &Req, path: Path) -> Result<(), Error> {
        let transport = Transport::of(req).ok_or(Error::WrongState)?;
        let qp = Qp::of_req(req, header.modifier.get());
        let (service, guid, remote) = (req.service.get(), req.guid.get(), req.local.get());
        let connection = self.create(service, path, transport)?;
        let id = connection.local;
        connection.state = State::ReqRcvd;
        connection.remote = remote;
        connection.transaction = header.transaction.get();
        connection.peer_guid = guid;
        connection.peer = qp;
        // What the peer has outstanding is what this side serves.
        connection.initiator_depth = qp.responder_resources;
        connection.responder_resources = qp.initiator_depth;
        connection.retry_count = qp.retry_count;
        connection.rnr_retry_count = qp.rnr_retry_count;
        connection.answer_timeout = span(byte(req.psn_timeout) >> 3) + 2 * span(path.lifetime);
        connection.answer_retries = (req.retries_srq >> 4).min(RETRIES);
        self.by_remote.insert((guid, remote), id);
        self.by_qpn.insert((guid, qp.qpn), id);
        let private = req.private;
        let event = Requested { service, transport, qp, path, private };
        self.outbox.report(id, Event::ReqReceived(Box::new(event)));
        Ok(())
    }

    fn duplicate_req(&mut self, from: &Arrival, id: ConnectionId) -> Option<()> {
        let connection = self.connections.get_mut(&id)?;
        if connection.path.dest != from.source {
            return None;
        }
        self.outbox.counters.duplicates += 1;
        if matches!(connection.state, State::ReqRcvd | State::MraReqSent) {
            // The user needs longer than the peer waits.
            connection.state = State::MraReqSent;
            self.outbox.send(connection.path, connection.mra(Answered::Req));
        }
        Some(())
    }

    fn rep(
        &mut self,
        now: Nanos,
        from: &Arrival,
        header: &Header,
        bytes: &[u8; BODY_LEN],
    ) -> Option<()> {
        let rep: Rep = body(bytes)?;
        let (id, remote, guid) = (rep.remote.get(), rep.local.get(), rep.guid.get());
        let connection = self.connections.get_mut(&id)?;
        if connection.path.dest != from.source {
            return None;
        }
        if !matches!(connection.state, State::ReqSent | State::MraReqRcvd) {
            return self.duplicate_rep(id, remote);
        }
        let qp = Self::replied(connection.transport, header, &rep);
        if let Some(stale) = self.by_qpn.get(&(guid, qp.qpn)).copied() {
            let _ended = self.disconnect(now, stale);
            let refusal = self.refuse(from, header, [id, remote], Answered::Rep);
            refusal.send(reason::STALE_CONNECTION);
            return Some(());
        }
        connection.state = State::RepRcvd;
        connection.remote = remote;
        connection.peer_guid = guid;
        connection.peer = qp;
        connection.initiator_depth = rep.resources;
        connection.responder_resources = rep.depth;
        connection.rnr_retry_count = qp.rnr_retry_count;
        let lifetime = connection.ack_timeout.saturating_sub(1);
        connection.ack_timeout = ack_timeout(rep.delay_flow >> 3, lifetime);
        self.outbox.stop(connection);
        self.by_remote.insert((guid, remote), id);
        self.by_qpn.insert((guid, qp.qpn), id);
        self.outbox.report(id, Event::RepReceived { qp, private: rep.private });
        Some(())
    }

    /// Returns the queue pair in a reply.
    fn replied(transport: Transport, header: &Header, rep: &Rep) -> Qp {
        let [high, middle, low] = [rep.qpn_vendor, rep.eecn_vendor, rep.psn_vendor].map(byte);
        let vendor = u32::from_be_bytes([0, high, middle, low]);
        let of_target = transport == Transport::Xrc;
        Qp {
            qpn: number(if of_target { rep.eecn_vendor } else { rep.qpn_vendor }),
            psn: number(rep.psn_vendor),
            responder_resources: rep.resources,
            initiator_depth: rep.depth,
            flow_control: rep.delay_flow & 1 != 0,
            retry_count: 0,
            rnr_retry_count: rep.rnr_srq >> 5,
            srq: rep.rnr_srq >> 4 & 1 != 0,
            ece: Ece { vendor, options: header.modifier.get() },
        }
    }

    fn duplicate_rep(&mut self, id: ConnectionId, remote: u32) -> Option<()> {
        let connection = self.connections.get_mut(&id)?;
        if connection.remote != remote {
            return None;
        }
        self.outbox.counters.duplicates += 1;
        match connection.state {
            State::Established => self.outbox.send(connection.path, connection.rtu()),
            State::RepRcvd | State::MraRepSent => {
                connection.state = State::MraRepSent;
                self.outbox.send(connection.path, connection.mra(Answered::Rep));
            }
            _ => {}
        }
        Some(())
    }

    fn rtu(&mut self, from: &Arrival, bytes: &[u8; BODY_LEN]) -> Option<()> {
        let rtu: Rtu = body(bytes)?;
        let id = self.both(from, rtu.remote.get(), rtu.local.get())?;
        if self.establish(id).is_err() {
            self.outbox.counters.duplicates += 1;
        }
        Some(())
    }

    fn rej(&mut self, now: Nanos, from: &Arrival, bytes: &[u8; BODY_LEN]) -> Option<()> {
        let rej: Rej = body(bytes)?;
        let (local, remote) = (rej.remote.get(), rej.local.get());
        let why = rej.reason.get();
        let id = if why == reason::TIMEOUT {
            let guid = u64::from_be_bytes(*rej.info.first_chunk()?);
            *self.by_remote.get(&(guid, remote))?
        } else {
            local
        };
        let connection = self.connections.get(&id)?;
        // A peer that rejects a request may have no number for the connection.
        let of_request = why == reason::TIMEOUT || rej.answered == Answered::Req.byte();
        let same = connection.remote == remote || of_request;
        if connection.path.dest != from.source || !same {
            return None;
        }
        let waits = match connection.state {
            State::ReqSent
            | State::MraReqRcvd
            | State::RepSent
            | State::MraRepRcvd
            | State::ReqRcvd
            | State::MraReqSent => why == reason::STALE_CONNECTION,
            State::DreqSent | State::RepRcvd | State::MraRepSent | State::Established => true,
            _ => return None,
        };
        if waits {
            self.wait(now, id)
        } else {
            self.idle(id)
        }
        self.outbox.report(id, Event::RejReceived { reason: why, private: rej.private });
        Some(())
    }

    fn mra(&mut self, now: Nanos, from: &Arrival, bytes: &[u8; BODY_LEN]) -> Option<()> {
        let mra: Mra = body(bytes)?;
        let id = mra.remote.get();
        let connection = self.connections.get_mut(&id)?;
        if connection.path.dest != from.source {
            return None;
        }
        connection.state = match (connection.state, mra.answered) {
            (State::ReqSent, 0) => State::MraReqRcvd,
            (State::RepSent, answered) if answered == Answered::Rep.byte() => State::MraRepRcvd,
            (State::MraReqRcvd | State::MraRepRcvd, _) => {
                self.outbox.counters.duplicates += 1;
                return Some(());
            }
            _ => return None,
        };
        let timeout = span(mra.service_timeout >> 3) + 2 * span(connection.path.lifetime);
        if let Some(outstanding) = &mut connection.outstanding {
            outstanding.timeout = timeout;
        }
        self.outbox.set_deadline(connection, now.plus(timeout));
        Some(())
    }

    fn dreq(&mut self, from: &Arrival, header: &Header, bytes: &[u8; BODY_LEN]) -> Option<()> {
        let dreq: Dreq = body(bytes)?;
        let Some(id) = self.both(from, dreq.remote.get(), dreq.local.get()) else {
            // The connection has ended here already.
            let mut drep = Drep::new();
            drep.local = dreq.remote;
            drep.remote = dreq.local;
            self.outbox.counters.duplicates += 1;
            self.outbox.send(from.back(), encode(header.transaction.get(), 0, &drep));
            return Some(());
        };
        let connection = self.connections.get_mut(&id)?;
        if connection.own.qpn != number(dreq.remote_qpn) {
            return None;
        }
        connection.transaction = header.transaction.get();
        match connection.state {
            State::RepSent | State::MraRepRcvd | State::DreqSent | State::Established => {
                connection.state = State::DreqRcvd;
                self.outbox.stop(connection);
                self.outbox.report(id, Event::DreqReceived);
            }
            State::TimeWait => {
                self.outbox.counters.duplicates += 1;
                self.outbox.send(connection.path, connection.drep());
            }
            State::DreqRcvd => self.outbox.counters.duplicates += 1,
            _ => return None,
        }
        Some(())
    }

    fn drep(&mut self, now: Nanos, from: &Arrival, bytes: &[u8; BODY_LEN]) -> Option<()> {
        let drep: Drep = body(bytes)?;
        let id = self.both(from, drep.remote.get(), drep.local.get())?;
        let connection = self.connections.get(&id)?;
        if !matches!(connection.state, State::DreqSent | State::DreqRcvd) {
            self.outbox.counters.duplicates += 1;
            return Some(());
        }
        self.wait(now, id);
        self.outbox.report(id, Event::DrepReceived);
        Some(())
    }
}

/// A reject that needs a reason.
struct Refusal<'a> {
    manager: &'a mut Manager,
    path: Path,
    transaction: u64,
    rej: Rej,
}

impl Refusal<'_> {
    fn send(mut self, reason: u16) {
        self.rej.reason = reason.into();
        self.manager.outbox.send(self.path, encode(self.transaction, 0, &self.rej));
    }
}
