//! Answers, in the order of the requests.
//!
//! The responder first sends the answers to READs and atomics. Each of them also acknowledges all
//! requests before it. A NAK or an acknowledgement is sent when no answer to a READ or atomic is
//! pending. One acknowledgement answers all requests of a batch.

use super::resources::{Answer, Resource};
use super::{Responder, Waiting};
use crate::psn::Psn;
use crate::wire::headers::Reth;
use crate::wire::numbers::Rkey;
use crate::wire::syndrome::RnrTimer;
use crate::wire::{Aeth, Body, Head, Nak, ReadPart, Response, Syndrome};

/// An answer to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The base transport header.
    pub head: Head,
    /// The answer.
    pub body: Body,
    /// The memory from which the caller copies the payload. If the caller cannot copy it, it calls
    /// [`Responder::fail_reply`].
    pub read: Option<ReadSegment>,
}

/// The memory for a packet of the answer to a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// The first address.
    pub addr: u64,
    /// The key, which must be checked again, because it may have been invalidated since the request
    /// arrived.
    pub key: Rkey,
    /// Number of bytes, at most the path MTU.
    pub length: u32,
    /// Number of bytes of the READ from the first address on.
    pub left: u32,
    /// The number of the message ([`super::Arrival::number`]).
    pub number: u64,
}

impl Responder {
    /// Returns the next answer to send. The caller takes answers after it has received a batch of
    /// requests, and may leave some for later. A READ has as many answers as its bytes need.
    pub fn next_reply(&mut self) -> Option<Reply> {
        if let Some((resource, progress)) = self.resources.due() {
            let reply = self.answer(&resource, progress.from, progress.next);
            self.resources.made(progress.next);
            // The answer acknowledges all requests before it. If an acknowledgement arrived in the
            // middle of the answer, rxe would end the connection (rxe_comp.c, `check_ack`).
            if self.ack.is_some_and(|due| due.is_before(resource.span.first)) {
                self.ack = None;
            }
            return Some(reply);
        }
        if self.waiting == Waiting::Missing && !self.failed {
            self.waiting = Waiting::Told;
            self.counters.sequence_naks += 1;
            self.ack = None;
            return Some(self.acknowledgement(self.expected, Syndrome::Nak(Nak::Sequence)));
        }
        if let Some((psn, syndrome)) = self.refusal.take() {
            // A NAK acknowledges all requests before it.
            self.ack = None;
            return Some(self.acknowledgement(psn, syndrome));
        }
        let psn = self.ack.take()?;
        self.counters.acks += 1;
        Some(self.acknowledgement(psn, Aeth::ack(self.msn).syndrome))
    }

    /// Returns whether [`Self::next_reply`] has an answer.
    #[must_use]
    pub fn has_reply(&self) -> bool {
        let missing = self.waiting == Waiting::Missing && !self.failed;
        !self.resources.is_idle() || missing || self.refusal.is_some() || self.ack.is_some()
    }

    /// Returns whether answers with the data of READs are pending.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        !self.resources.is_idle()
    }

    /// Discards the pending answers of READs and atomics. An acknowledgement that is due is also
    /// discarded if there are such answers, because it would acknowledge their requests.
    pub fn stop_answers(&mut self) {
        if self.is_reading() {
            self.resources.stop();
            self.ack = None;
        }
    }

    /// Replaces an answer whose memory could not be read: the READ is refused, and the connection
    /// has ended.
    pub fn fail_reply(&mut self, reply: &Reply, nak: Nak) {
        self.resources.stop();
        self.fail(reply.head.psn, nak);
    }

    /// Replaces an answer whose memory has absent pages: the peer asks again for it, and for all
    /// that it has asked for after it, when the time of `timer` is over.
    pub fn postpone(&mut self, reply: &Reply, timer: RnrTimer) {
        self.stop_answers();
        self.ack = None;
        self.counters.not_ready += 1;
        self.refusal = Some((reply.head.psn, Syndrome::NotReady(timer)));
    }

    fn head(&self, psn: Psn) -> Head {
        Head::new(self.config.transport, self.config.destination, psn)
    }

    fn acknowledgement(&self, psn: Psn, syndrome: Syndrome) -> Reply {
        let body = Response::Acknowledge(Aeth { syndrome, msn: self.msn });
        Reply { head: self.head(psn), body: Body::Response(body), read: None }
    }

    /// Returns one packet of the answer to a READ, or the answer to another request. A FLUSH and an
    /// ATOMIC WRITE are answered like a READ of no bytes (rxe_resp.c, `send_read_response_ack`).
    fn answer(&self, resource: &Resource, from: Psn, psn: Psn) -> Reply {
        let aeth = Aeth::ack(self.msn);
        let head = self.head(psn);
        match resource.answer {
            Answer::Value(_, old) => {
                let body = Body::Response(Response::Atomic(aeth, old));
                Reply { head, body, read: None }
            }
            Answer::Empty(_) => {
                let body = Body::Response(Response::Read(ReadPart::Only(aeth)));
                Reply { head, body, read: None }
            }
            Answer::Memory(reth) => {
                let part = match (psn == from, psn == resource.span.last()) {
                    (true, true) => ReadPart::Only(aeth),
                    (true, false) => ReadPart::First(aeth),
                    (false, false) => ReadPart::Middle,
                    (false, true) => ReadPart::Last(aeth),
                };
                let read = self.segment(resource, &reth, psn);
                Reply { head, body: Body::Response(Response::Read(part)), read: Some(read) }
            }
        }
    }

    /// Returns the memory for packet `psn` of an answer.
    fn segment(&self, resource: &Resource, reth: &Reth, psn: Psn) -> ReadSegment {
        let mtu = self.config.mtu.bytes();
        let offset = psn.since(resource.span.first).wrapping_mul(mtu);
        let left = reth.length.saturating_sub(offset);
        ReadSegment {
            addr: reth.addr.wrapping_add(u64::from(offset)),
            key: reth.key,
            length: left.min(mtu),
            left,
            number: resource.number,
        }
    }
}
