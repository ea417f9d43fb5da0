//! One end of a connection: executes the tasks of both halves of the QP on memory and receives.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::LazyLock;

use vrnic_packet::Nanos;
use vrnic_packet::ip::{self, Addresses};
use vrnic_packet::{Ethernet, MacAddr};
use vrnic_roce::requester::{Completion, Effect, Remote, Requester, Transmit, Work, WorkRequest};
use vrnic_roce::responder::unreliable::UnreliableResponder;
use vrnic_roce::responder::{Responder, Slot, Step};
use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_roce::wire::headers::{Imm, Reth};
use vrnic_roce::wire::{Body, Frame, Head, Layout, Nak, Packet, Path, Qpn, Request, Rkey};
use vrnic_roce::{Discard, Discards};

use crate::rxe_requester::{Event, RxeRequester};
use crate::rxe_responder::Rxe;

/// Bytes of memory. Addresses begin at [`BASE`].
pub(crate) const MEMORY: usize = 1 << 20;
/// The first address.
pub(crate) const BASE: u64 = 0x7f00_0000_0000;
/// The key of all memory.
pub(crate) const KEY: Rkey = Rkey(0x1234);
/// Bytes of each receive.
pub(crate) const RECEIVE: u32 = 16 << 10;
/// The address of the first receive.
pub(crate) const RECEIVES: u64 = BASE + (512 << 10);

/// A message that has used a receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) imm: Option<Imm>,
    pub(crate) invalidated: Option<Rkey>,
    pub(crate) solicited: bool,
    pub(crate) is_write: bool,
}

/// Copies the frame of a packet.
pub(crate) type KeptFrame<'a> = dyn Fn(&Host) -> Vec<u8> + 'a;

/// The receiving half.
#[derive(Debug)]
pub(crate) enum Receiving {
    Reliable(Box<Responder>),
    Unreliable(Box<UnreliableResponder>),
    Rxe(Box<Rxe>),
}

/// One end of a connection.
pub(crate) struct Host {
    pub(crate) qpn: Qpn,
    pub(crate) memory: Vec<u8>,
    pub(crate) requester: Requester,
    /// Used instead of `requester` if there is one.
    pub(crate) rxe: Option<Box<RxeRequester>>,
    pub(crate) receiving: Receiving,
    path: Path,
    held: Vec<Option<Vec<u8>>>,
    /// Posted receives.
    pub(crate) receives: VecDeque<u64>,
    pub(crate) current: Option<u64>,
    /// The time after which the host posts receives when it has none. `None` means never.
    pub(crate) refill_after: Option<u64>,
    pub(crate) refill_at: Option<u64>,
    next_receive: u64,
    pub(crate) received: Vec<Received>,
    pub(crate) completions: Vec<Completion>,
    /// The local address of each work request: source, sink, or place of an old value.
    local: HashMap<u64, u64>,
    pub(crate) old_values: Vec<(u64, u64)>,
    /// Number of ATOMIC WRITEs and FLUSHes that were executed.
    pub(crate) executed_once: u32,
    /// The NAK with which the receiving half has failed.
    pub(crate) failed: Option<Nak>,
    pub(crate) discards: Discards,
    /// Number of requests that were given to the receiving half.
    pub(crate) requests: u64,
    /// True if the memory for answers to READs cannot be read.
    pub(crate) reads_fail: bool,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requester, rxe, receiving, completions, failed, .. } = self;
        let state = (completions, failed, requester, rxe, receiving);
        state.fmt(f)
    }
}

/// The initial contents of memory, and some more bytes.
static PATTERN: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..MEMORY + 8).map(|at| (at * 7 + at / 251) as u8).collect());

fn path(from: u8, to: u8) -> Path {
    let mac = |last| [0x52, 0x54, 0, 0, 0, last];
    Path {
        ethernet: Ethernet {
            destination: MacAddr(mac(to)),
            source: MacAddr(mac(from)),
            vlan: None,
        },
        network: ip::Header {
            addresses: Addresses::V4 {
                source: Ipv4Addr::new(10, 9, 0, from),
                destination: Ipv4Addr::new(10, 9, 0, to),
            },
            traffic_class: 2,
            hop_limit: 64,
            flow_label: 0,
        },
        source_port: 0xc000,
    }
}

impl Host {
    /// Returns the end with this number, 1 or 2.
    pub(crate) fn new(number: u8, requester: Requester, receiving: Receiving) -> Self {
        Self {
            qpn: Qpn::new(0x10 + u32::from(number)),
            memory: PATTERN[usize::from(number)..][..MEMORY].to_vec(),
            requester,
            rxe: None,
            receiving,
            path: path(number, 3 - number),
            held: vec![None; 256],
            receives: VecDeque::new(),
            current: None,
            refill_after: Some(20_000),
            refill_at: None,
            next_receive: 0,
            received: Vec::new(),
            completions: Vec::new(),
            local: HashMap::new(),
            old_values: Vec::new(),
            executed_once: 0,
            failed: None,
            discards: Discards::default(),
            requests: 0,
            reads_fail: false,
        }
    }

    /// Returns the reliable receiving half.
    pub(crate) fn responder(&mut self) -> &mut Responder {
        match &mut self.receiving {
            Receiving::Reliable(responder) => responder,
            _ => panic!("not the responder of this crate"),
        }
    }

    /// Posts a work request whose local bytes are at `addr`.
    pub(crate) fn post(&mut self, request: WorkRequest, addr: u64) {
        self.local.insert(request.id, addr);
        match &mut self.rxe {
            Some(rxe) => rxe.post(request),
            None => self.requester.push(request).expect("room"),
        }
    }

    pub(crate) fn post_receive(&mut self) {
        self.receives.push_back(RECEIVES + self.next_receive % 16 * u64::from(RECEIVE));
        self.next_receive += 1;
    }

    /// Returns the bytes of a range of memory.
    pub(crate) fn bytes(&mut self, addr: u64, length: u32) -> Option<&mut [u8]> {
        let at = usize::try_from(addr.checked_sub(BASE)?).ok()?;
        self.memory.get_mut(at..at.checked_add(length as usize)?)
    }

    /// Receives a frame from the link.
    pub(crate) fn frame(&mut self, now: Nanos, bytes: &[u8]) {
        let packet = match Frame::parse(bytes) {
            Ok(None) => return,
            Ok(Some(frame)) => frame.packet(),
            Err(discard) => Err(discard),
        };
        match packet {
            Err(discard) => self.discards.count(discard),
            Ok(packet) if packet.head.destination != self.qpn => {}
            Ok(packet) => self.packet(now, &packet, &|_| bytes.to_vec()),
        }
    }

    /// Receives a packet that has been checked, with its frame.
    pub(crate) fn packet(&mut self, now: Nanos, packet: &Packet<'_>, frame: &KeptFrame<'_>) {
        match packet.body {
            Body::Request(_) => {
                self.request(packet, frame);
                while let Some(slot) = self.next_held() {
                    let frame = self.held[slot.index()].take().expect("a held frame");
                    let parsed = Frame::parse(&frame).expect("headers").expect("RoCE");
                    self.request(&parsed.packet().expect("a packet"), &|_| frame.clone());
                }
            }
            _ => self.response(now, packet),
        }
    }

    fn next_held(&mut self) -> Option<Slot> {
        match &mut self.receiving {
            Receiving::Reliable(responder) => responder.next_held(),
            _ => None,
        }
    }

    fn request(&mut self, packet: &Packet<'_>, frame: &KeptFrame<'_>) {
        self.requests += 1;
        match &mut self.receiving {
            Receiving::Rxe(rxe) => {
                if let Some(arrival) = rxe.receive(packet) {
                    let verdict = self.execute(&arrival, packet.payload);
                    let Receiving::Rxe(rxe) = &mut self.receiving else { return };
                    rxe.end(packet, &arrival, verdict);
                }
            }
            Receiving::Unreliable(responder) => {
                if let Ok(arrival) = responder.receive(packet) {
                    let verdict = self.execute(&arrival, packet.payload);
                    let Receiving::Unreliable(responder) = &mut self.receiving else { return };
                    responder.end(verdict);
                }
            }
            Receiving::Reliable(responder) => match responder.receive(packet) {
                Ok(Step::Execute(arrival)) => {
                    let verdict = self.execute(&arrival, packet.payload);
                    if let Some(nak) = self.responder().end(verdict) {
                        self.failed = Some(nak);
                    }
                }
                Ok(Step::Keep(slot)) => self.held[slot.index()] = Some(frame(self)),
                Ok(Step::Refused(nak)) => self.failed = Some(nak),
                Ok(Step::Duplicate) | Err(_) => {}
            },
        }
    }

    fn response(&mut self, now: Nanos, packet: &Packet<'_>) {
        if let Some(rxe) = &mut self.rxe {
            rxe.receive(packet);
            return;
        }
        match self.requester.receive(now, packet) {
            Ok(Effect::Place { id, offset, bytes }) => self.place(id, offset, bytes),
            Ok(Effect::Old { id, value }) => self.old_values.push((id, value)),
            Ok(Effect::Nothing) | Err(_) => {}
        }
        self.complete();
    }

    /// Places bytes of a READ.
    fn place(&mut self, id: u64, offset: u32, bytes: &[u8]) {
        let addr = self.local[&id] + u64::from(offset);
        let to = self.bytes(addr, bytes.len() as u32).expect("a sink");
        to.copy_from_slice(bytes);
    }

    /// Takes completions.
    pub(crate) fn complete(&mut self) {
        while let Some(completion) = self.requester.next_completion() {
            self.completions.push(completion);
        }
        if let Some(rxe) = &mut self.rxe {
            self.completions.extend(std::iter::from_fn(|| rxe.next_completion()));
        }
    }

    /// Ends a batch of received frames: posts receives if it is time, and sends packets that are
    /// due.
    pub(crate) fn poll(&mut self, now: Nanos, mut send: impl FnMut(&[u8])) {
        self.refill(now.0);
        if self.requester.deadline().is_some_and(|deadline| deadline <= now) {
            self.requester.expire(now);
        }
        while let Some(frame) = self.reply() {
            send(&frame);
        }
        while let Some(transmit) = self.requester.next(now) {
            send(&self.transmit(&transmit));
        }
        if let Some(rxe) = &mut self.rxe {
            for event in rxe.poll(now.0) {
                match event {
                    Event::Send(transmit) => send(&self.transmit(&transmit)),
                    Event::Place { id, offset, bytes } => self.place(id, offset, &bytes),
                    Event::Old { id, value } => self.old_values.push((id, value)),
                }
            }
        }
        self.complete();
    }

    /// Returns the frame of a packet of a work request.
    fn transmit(&mut self, transmit: &Transmit) -> Vec<u8> {
        let addr = self.local[&transmit.id] + u64::from(transmit.range.start);
        let length = transmit.range.len() as u32;
        let payload = if length == 0 {
            Vec::new()
        } else {
            self.bytes(addr, length).expect("a source").to_vec()
        };
        self.build(&transmit.head, &transmit.body, &payload)
    }

    fn refill(&mut self, now: u64) {
        if self.refill_at.is_some_and(|at| at <= now) {
            self.refill_at = None;
            for _ in 0..4 {
                self.post_receive();
            }
        }
        if self.receives.is_empty() && self.refill_at.is_none() {
            self.refill_at = self.refill_after.map(|after| now + after);
        }
    }

    fn reply(&mut self) -> Option<Vec<u8>> {
        let reply = match &mut self.receiving {
            Receiving::Reliable(responder) => responder.next_reply()?,
            Receiving::Rxe(rxe) => rxe.replies.pop_front()?,
            Receiving::Unreliable(_) => return None,
        };
        let Some(segment) = reply.read else {
            return Some(self.build(&reply.head, &reply.body, &[]));
        };
        if self.reads_fail {
            self.responder().fail_reply(&reply, Nak::RemoteOperational);
            self.failed = Some(Nak::RemoteOperational);
            return self.reply();
        }
        let reth = Reth { addr: segment.addr, key: segment.key, length: segment.length };
        let payload = self.remote(reth).expect("checked when it was asked for").to_vec();
        Some(self.build(&reply.head, &reply.body, &payload))
    }

    /// Returns a frame to the peer.
    pub(crate) fn build(&self, head: &Head, body: &Body, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; FRAME_MAX];
        let layout = Layout::write(&mut frame, &self.path, head, body, payload.len());
        let layout = layout.expect("room");
        frame[layout.payload()].copy_from_slice(payload);
        let end = layout.seal(&mut frame).expect("room");
        frame.truncate(end);
        frame
    }

    /// Returns the time at which the host has to be polled at the latest.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let timer = self.requester.deadline().map(|at| at.0);
        let rxe = self.rxe.as_ref().and_then(|rxe| rxe.deadline());
        [timer, self.refill_at, rxe].into_iter().flatten().min()
    }
}

/// Returns the packet of a frame.
pub(crate) fn parsed(frame: &[u8]) -> Packet<'_> {
    Frame::parse(frame).expect("headers").expect("RoCE").packet().expect("a packet")
}

/// Returns the request of a frame, if it contains one.
pub(crate) fn request(frame: &[u8]) -> Option<Request> {
    parsed(frame).request()
}

/// Returns the memory of a peer at an offset.
pub(crate) fn remote(offset: u64) -> Remote {
    Remote { addr: BASE + offset, key: KEY }
}

/// Returns a work request with common attributes.
pub(crate) fn work(id: u64, work: Work, length: u32) -> WorkRequest {
    let srqn = vrnic_roce::wire::numbers::Srqn::new(0);
    WorkRequest { id, work, length, solicited: false, signaled: true, fence: false, srqn }
}

/// Checks that no packet was dropped as malformed, except for packets that a faulty link has
/// corrupted.
pub(crate) fn no_bad_frames(host: &Host) {
    assert_eq!(host.discards.total(), host.discards.of(Discard::Icrc), "{:?}", host.discards);
}
