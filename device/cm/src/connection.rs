//! A connection, or a resolution of a service ID, and the messages that it sends.

use std::time::Duration;

use vrnic_packet::Nanos;

use super::mad::{Mad, encode};
use super::messages::{Answered, Drep, Dreq, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};
use super::messages::{private, word};
use super::parameters::{Path, Qp, Transport, ack_timeout};
use super::state::{Error, State};

/// The exponent of the time in which a peer's communication manager answers: 4.3 s.
pub(crate) const RESPONSE: u8 = 20;
/// How often a message is sent again.
pub(crate) const RETRIES: u8 = 15;
/// The exponent of the time that a peer gets by an MRA. The peer may limit it.
const SERVICE: u8 = 24;
/// The partition key of all packets.
const PKEY: u16 = 0xffff;

/// A message that is sent again until there is an answer.
#[derive(Clone, Debug)]
pub(crate) struct Outstanding {
    pub(crate) mad: Mad,
    /// The time from one sending to the next.
    pub(crate) timeout: Duration,
    /// How often the message is still sent.
    pub(crate) retries: u8,
}

/// A connection.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) local: u32,
    pub(crate) remote: u32,
    pub(crate) state: State,
    /// The number of the exchange of messages.
    pub(crate) transaction: u64,
    pub(crate) service: u64,
    pub(crate) path: Path,
    pub(crate) transport: Transport,
    /// The GUID of the peer's adapter, if it is known.
    pub(crate) peer_guid: u64,
    pub(crate) own: Qp,
    pub(crate) peer: Qp,
    pub(crate) initiator_depth: u8,
    pub(crate) responder_resources: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) ack_timeout: u8,
    /// For messages of the passive side: the time and the number of their sendings.
    pub(crate) answer_timeout: Duration,
    pub(crate) answer_retries: u8,
    pub(crate) outstanding: Option<Outstanding>,
    /// The time of the next sending, or of the end of the last state.
    pub(crate) deadline: Option<Nanos>,
}

impl Connection {
    /// Returns a connection that is idle.
    pub(crate) fn new(local: u32, service: u64, path: Path, transport: Transport) -> Self {
        Self {
            local,
            remote: 0,
            state: State::Idle,
            transaction: u64::from(local),
            service,
            path,
            transport,
            peer_guid: 0,
            own: Qp::default(),
            peer: Qp::default(),
            initiator_depth: 0,
            responder_resources: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            ack_timeout: ack_timeout(0, path.lifetime),
            answer_timeout: Duration::ZERO,
            answer_retries: 0,
            outstanding: None,
            deadline: None,
        }
    }

    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the way to the peer.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the queue pair of this side.
    #[must_use]
    pub fn own(&self) -> &Qp {
        &self.own
    }

    /// Returns the queue pair of the peer, as far as it is known.
    #[must_use]
    pub fn peer(&self) -> &Qp {
        &self.peer
    }

    /// Returns the type of the queue pairs.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns how many READs and atomic operations this side may have outstanding.
    #[must_use]
    pub fn initiator_depth(&self) -> u8 {
        self.initiator_depth
    }

    /// Returns how many READs and atomic operations of the peer this side serves at a time.
    #[must_use]
    pub fn responder_resources(&self) -> u8 {
        self.responder_resources
    }

    /// Returns how often this side sends packets again.
    #[must_use]
    pub fn retry_count(&self) -> u8 {
        self.retry_count
    }

    /// Returns how often this side sends again what finds no receive.
    #[must_use]
    pub fn rnr_retry_count(&self) -> u8 {
        self.rnr_retry_count
    }

    /// Returns the exponent of the ACK timeout of this side.
    #[must_use]
    pub fn ack_timeout(&self) -> u8 {
        self.ack_timeout
    }

    /// Returns the request for the connection.
    pub(crate) fn req(&self, guid: u64, data: &[u8]) -> Result<Mad, Error> {
        let mut req = Req::new();
        req.local = self.local.into();
        req.service = self.service.into();
        req.guid = guid.into();
        req.pkey = PKEY.into();
        req.mtu_rnr = self.path.mtu << 4;
        req.retries_srq = RETRIES << 4;
        req.primary = self.path.fields();
        self.own.put(&mut req, RESPONSE, self.transport);
        req.private = private(data).ok_or(Error::PrivateData)?;
        Ok(encode(self.transaction, self.own.ece.options, &req))
    }

    /// Returns the reply to a request for the connection.
    pub(crate) fn rep(&self, guid: u64, data: &[u8]) -> Result<Mad, Error> {
        let mut rep = Rep::new();
        let Qp { qpn, psn, ece, .. } = self.own;
        let [_, high, middle, low] = ece.vendor.to_be_bytes();
        rep.local = self.local.into();
        rep.remote = self.remote.into();
        // The target of an extended connection has another field.
        let [of_qp, of_target] = if self.transport == Transport::Xrc { [0, qpn] } else { [qpn, 0] };
        rep.qpn_vendor = word(of_qp, high);
        rep.eecn_vendor = word(of_target, middle);
        rep.psn_vendor = word(psn, low);
        rep.resources = self.own.responder_resources;
        rep.depth = self.own.initiator_depth;
        rep.delay_flow = u8::from(self.own.flow_control);
        rep.rnr_srq = (self.own.rnr_retry_count & 7) << 5 | u8::from(self.own.srq) << 4;
        rep.guid = guid.into();
        rep.private = private(data).ok_or(Error::PrivateData)?;
        Ok(encode(self.transaction, ece.options, &rep))
    }

    pub(crate) fn rtu(&self) -> Mad {
        let mut rtu = Rtu::new();
        rtu.local = self.local.into();
        rtu.remote = self.remote.into();
        encode(self.transaction, 0, &rtu)
    }

    pub(crate) fn mra(&self, answered: Answered) -> Mad {
        let mut mra = Mra::new();
        mra.local = self.local.into();
        mra.remote = self.remote.into();
        mra.answered = answered.byte();
        mra.service_timeout = SERVICE << 3;
        encode(self.transaction, 0, &mra)
    }

    pub(crate) fn dreq(&self) -> Mad {
        let mut dreq = Dreq::new();
        dreq.local = self.local.into();
        dreq.remote = self.remote.into();
        dreq.remote_qpn = word(self.peer.qpn, 0);
        encode(self.transaction, 0, &dreq)
    }

    pub(crate) fn drep(&self) -> Mad {
        let mut drep = Drep::new();
        drep.local = self.local.into();
        drep.remote = self.remote.into();
        encode(self.transaction, 0, &drep)
    }

    /// Returns a reject of what was received last. A timeout names the adapter of this side, as the
    /// peer may not know the number of the connection here.
    pub(crate) fn rej(&self, guid: u64, reason: u16, data: &[u8]) -> Result<Mad, Error> {
        let mut rej = Rej::new();
        rej.remote = self.remote.into();
        rej.local = if self.state == State::ReqRcvd { 0 } else { self.local }.into();
        let answered = match self.state {
            State::ReqRcvd | State::MraReqSent => Answered::Req,
            State::RepRcvd | State::MraRepSent => Answered::Rep,
            _ => Answered::Other,
        };
        rej.answered = answered.byte();
        rej.reason = reason.into();
        if reason == super::state::reason::TIMEOUT {
            rej.info_len = 8 << 1;
            rej.info.iter_mut().zip(guid.to_be_bytes()).for_each(|(to, from)| *to = from);
        }
        rej.private = private(data).ok_or(Error::PrivateData)?;
        Ok(encode(self.transaction, 0, &rej))
    }

    pub(crate) fn sidr_req(&self, data: &[u8]) -> Result<Mad, Error> {
        let mut req = SidrReq::new();
        req.request = self.local.into();
        req.pkey = PKEY.into();
        req.service = self.service.into();
        req.private = private(data).ok_or(Error::PrivateData)?;
        Ok(encode(self.transaction, 0, &req))
    }

    pub(crate) fn sidr_rep(&self, status: u8, qkey: u32, data: &[u8]) -> Result<Mad, Error> {
        let mut rep = SidrRep::new();
        rep.request = self.remote.into();
        rep.status = status;
        rep.qpn_vendor = word(self.own.qpn, 0);
        rep.service = self.service.into();
        rep.qkey = qkey.into();
        rep.private = private(data).ok_or(Error::PrivateData)?;
        Ok(encode(self.transaction, 0, &rep))
    }
}
