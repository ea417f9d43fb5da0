//! A responder with the peculiarities of Linux' software RoCE, written from a description of its
//! behaviour (rxe_resp.c, Linux 7.3). It shares no code with the responder of this crate.
//!
//! - Each request for an acknowledgement is answered separately.
//! - A duplicate SEND or WRITE is always acknowledged, with a number that advances with SENDs,
//!   WRITEs and atomics but not with READs, and that is not set before the first of them.
//! - Packets after a packet that found no receive are answered with a sequence NAK, too.
//! - A READ that is requested again from its middle is answered with MIDDLE and LAST. It is never
//!   answered again from before that place.

use std::collections::VecDeque;

use vrnic_roce::responder::{Arrival, Arriving, ReadSegment, Reply, Verdict};
use vrnic_roce::wire::headers::Reth;
use vrnic_roce::wire::numbers::Srqn;
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{
    Aeth, Body, Head, Mtu, Nak, Packet, Qpn, ReadPart, Request, Response, Syndrome,
};
use vrnic_roce::{Msn, Psn};

/// Number of READs and atomics that are remembered.
const RESOURCES: usize = 4;

/// A responder that works as rxe's does.
#[derive(Debug)]
pub(crate) struct Rxe {
    destination: Qpn,
    mtu: Mtu,
    expected: Psn,
    ack_psn: Psn,
    msn: Msn,
    nak_sent: bool,
    /// The position in the message in progress, and its destination.
    at: u32,
    reth: Reth,
    resources: VecDeque<(Psn, u32, Resource)>,
    pub(crate) replies: VecDeque<Reply>,
}

#[derive(Clone, Copy, Debug)]
enum Resource {
    /// The memory, and the first packet that may be requested again.
    Read(Reth, Psn),
    Atomic(u64),
    /// An ATOMIC WRITE or FLUSH.
    Empty,
}

impl Rxe {
    pub(crate) fn new(destination: Qpn, mtu: Mtu, first_psn: Psn) -> Self {
        Self {
            destination,
            mtu,
            expected: first_psn,
            ack_psn: Psn::new(0),
            msn: Msn::new(0),
            nak_sent: false,
            at: 0,
            reth: Reth::default(),
            resources: VecDeque::new(),
            replies: VecDeque::new(),
        }
    }

    /// Returns the request to execute, if the packet is the expected one.
    pub(crate) fn receive(&mut self, packet: &Packet<'_>) -> Option<Arrival> {
        let (request, psn) = (packet.request()?, packet.head.psn);
        if psn != self.expected {
            if psn.is_before(self.expected) {
                self.duplicate(psn, request);
            } else if !self.nak_sent {
                self.nak_sent = true;
                self.acknowledge(self.expected, Syndrome::Nak(Nak::Sequence));
            }
            return None;
        }
        self.nak_sent = false;
        let work = match request {
            Request::Send(part) => {
                if part.start().is_some() {
                    self.at = 0;
                }
                Arriving::Send(part.end())
            }
            Request::Write(part) => {
                if let Some(reth) = part.start() {
                    (self.at, self.reth) = (0, reth);
                }
                Arriving::Write(self.reth, part.end())
            }
            Request::Read(reth) => Arriving::Read(reth),
            Request::CompareSwap(atomic) => Arriving::CompareSwap(atomic),
            Request::FetchAdd(atomic) => Arriving::FetchAdd(atomic),
            Request::Flush(feth, reth) => Arriving::Flush(feth, reth),
            Request::AtomicWrite(reth) => Arriving::AtomicWrite(reth),
        };
        let bytes = packet.payload.len() as u32;
        let (at, srqn, solicited) = (self.at, Srqn::default(), packet.head.solicited);
        Some(Arrival { work, at, bytes, solicited, number: 0, srqn })
    }

    pub(crate) fn end(&mut self, packet: &Packet<'_>, arrival: &Arrival, verdict: Verdict) {
        let psn = self.expected;
        match (verdict, arrival.work) {
            (Verdict::Executed, Arriving::Read(reth)) => {
                let count = self.mtu.packets(reth.length);
                self.executed(count, true);
                self.remember(psn, count, Resource::Read(reth, psn));
                self.answer_read(psn, count, reth, psn);
            }
            (Verdict::Executed, Arriving::Send(end)) => {
                self.part(packet, end.is_some());
            }
            (Verdict::Executed, Arriving::Write(_, end)) => {
                self.part(packet, end.is_some());
            }
            (Verdict::Executed, Arriving::AtomicWrite(_) | Arriving::Flush(..)) => {
                self.executed(1, true);
                self.ack_psn = self.expected;
                self.remember(psn, 1, Resource::Empty);
                self.answer_empty(psn);
            }
            (Verdict::Old(old), _) => {
                self.executed(1, true);
                self.ack_psn = self.expected;
                self.remember(psn, 1, Resource::Atomic(old));
                self.answer_atomic(psn, old);
            }
            (Verdict::NotReady, _) => {
                self.acknowledge(psn, Syndrome::NotReady(RnrTimer::new(2)));
            }
            _ => panic!("the model's work is legal: {arrival:?}"),
        }
    }

    fn part(&mut self, packet: &Packet<'_>, ends: bool) {
        self.at += packet.payload.len() as u32;
        let psn = self.expected;
        self.executed(1, ends);
        self.ack_psn = self.expected;
        if packet.head.ack_request {
            self.acknowledge(psn, Aeth::ack(self.msn).syndrome);
        }
    }

    fn executed(&mut self, count: u32, ends: bool) {
        self.expected = self.expected.plus(count);
        if ends {
            self.msn = self.msn.next();
        }
    }

    fn remember(&mut self, psn: Psn, count: u32, resource: Resource) {
        if self.resources.len() == RESOURCES {
            self.resources.pop_front();
        }
        self.resources.push_back((psn, count, resource));
    }

    fn duplicate(&mut self, psn: Psn, request: Request) {
        let found = self.resources.iter_mut().find(|(first, count, _)| psn.since(*first) < *count);
        match (request, found) {
            (Request::Send(_) | Request::Write(_), _) => {
                self.acknowledge(self.ack_psn.previous(), Aeth::ack(self.msn).syndrome);
            }
            (Request::Read(_), Some((first, count, Resource::Read(reth, lowest))))
                if !psn.is_before(*lowest) =>
            {
                *lowest = psn;
                let (first, count, reth) = (*first, *count, *reth);
                self.answer_read(first, count, reth, psn);
            }
            (
                Request::CompareSwap(_) | Request::FetchAdd(_),
                Some((_, _, Resource::Atomic(old))),
            ) => {
                let old = *old;
                self.answer_atomic(psn, old);
            }
            (Request::Flush(..) | Request::AtomicWrite(_), Some((_, _, Resource::Empty))) => {
                self.answer_empty(psn);
            }
            _ => {}
        }
    }

    fn reply(&mut self, psn: Psn, body: Response, read: Option<ReadSegment>) {
        let head = Head::new(Transport::Rc, self.destination, psn);
        self.replies.push_back(Reply { head, body: Body::Response(body), read });
    }

    fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome) {
        self.reply(psn, Response::Acknowledge(Aeth { syndrome, msn: self.msn }), None);
    }

    fn answer_atomic(&mut self, psn: Psn, old: u64) {
        self.reply(psn, Response::Atomic(Aeth::ack(self.msn), old), None);
    }

    fn answer_empty(&mut self, psn: Psn) {
        self.reply(psn, Response::Read(ReadPart::Only(Aeth::ack(self.msn))), None);
    }

    fn answer_read(&mut self, first: Psn, count: u32, reth: Reth, from: Psn) {
        let aeth = Aeth::ack(self.msn);
        for place in from.since(first)..count {
            let part = match (place == 0, place + 1 == count) {
                (true, true) => ReadPart::Only(aeth),
                (true, false) => ReadPart::First(aeth),
                (false, false) => ReadPart::Middle,
                (false, true) => ReadPart::Last(aeth),
            };
            let offset = place * self.mtu.bytes();
            let length = (reth.length - offset).min(self.mtu.bytes());
            let addr = reth.addr + u64::from(offset);
            let segment = ReadSegment { addr, key: reth.key, length, left: length, number: 0 };
            self.reply(first.plus(place), Response::Read(part), Some(segment));
        }
    }
}
