//! Requests of the peer. Each is executed once, in the order of the sequence numbers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use vrnic_abi::qp::Type;
use vrnic_faults::Site;
use vrnic_packet::ethernet::vlan_of;
use vrnic_packet::ip::Ecn;
use vrnic_roce::Discard;
use vrnic_roce::responder::{Arrival, Step};
use vrnic_roce::wire::{Body, Frame as RoceFrame, Head, Nak, Packet, Qpn};

use super::frames;
use super::message::{Message, verdict};
use crate::datapath::inbound::{Inbound, Operation};
use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder::{self, flush, outcome};
use crate::datapath::sgl::SgList;
use crate::datapath::transport::peers::Network;
use crate::ethernet::Parsed;
use crate::host::{Awaited, Host};
use crate::objects::core::Core;
use crate::objects::qp::remote::{Engine, Receiver, Way};
use crate::objects::qp::takeover::Takeover;
use crate::objects::qp::waiting_frame::WaitingFrame;
use crate::objects::qp::window::Placing;
use crate::objects::qp::{Ended, Qp, Responder};
use crate::slice::{Slice, cost};
use crate::stats::Counter;

/// The DSCP of notifications of congestion, if an operator has asked for DCQCN. It has class 6 in
/// the usual configuration of data centres.
const DSCP_NOTIFICATION: u8 = 48;

/// A received request.
#[derive(Debug)]
pub(super) struct Received<'f> {
    /// The frame that contains it.
    pub(super) arrived: Parsed<'f>,
    /// The headers below the transport's.
    pub(super) parsed: RoceFrame<'f>,
    pub(super) packet: Packet<'f>,
}

impl<'f> Received<'f> {
    /// Returns the packet of a frame that was held. The frame was checked when it arrived.
    pub(super) fn of(held: &'f WaitingFrame) -> Option<Self> {
        let arrived = held.parsed();
        let parsed = RoceFrame::of(arrived.frame.bytes(), &arrived.headers).ok()??;
        let packet = parsed.checked_packet().ok()?;
        Some(Self { arrived, parsed, packet })
    }
}

/// Checks that a packet for a connected QP comes from its peer, as far as the packet shows that.
/// The VLAN and the destination are those of the connection. Behind a gateway or a bond, a peer may
/// send with another MAC than the one to which its packets are sent, but not with a MAC that
/// belongs to another adapter of this daemon.
///
/// # Errors
/// Returns the reason for which the packet is dropped.
pub(super) fn admit<H: Host>(
    network: Network<'_, H>,
    way: &Way,
    Received { parsed, packet, .. }: &Received<'_>,
) -> Result<(), Discard> {
    let (own, from) = (&way.path.ethernet, &parsed.ethernet);
    let id = |tag: Option<u16>| tag.and_then(vlan_of);
    let is_function = || network.fabric.station(from.sender()).is_some();
    let is_for_qp = id(own.vlan) == id(from.vlan) && from.destination == own.source;
    if !is_for_qp || from.source != own.destination && is_function() {
        return Err(Discard::Address);
    }
    way.admission.check(&parsed.network, &packet.head)
}

/// Processes a request for a QP. Answers are sent in the QP's turn.
///
/// # Errors
/// Returns the reason for which it is dropped.
pub(super) fn receive<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    received: &Received<'_>,
    slice: &Slice<'_, H>,
) -> Result<(), Discard> {
    let mut responder = qp.responder.lock();
    let mut receiver = responder.packets.take().ok_or(Discard::State)?;
    if let Err(discard) = admit(network, &receiver.way, received) {
        responder.packets = Some(receiver);
        return Err(discard);
    }
    let core = network.core();
    let mut half = Half { core, qp, responder: &mut responder, slice };
    let result = half.receive(&mut receiver, received);
    responder.packets = Some(receiver);
    if std::mem::take(&mut responder.event_due) {
        slice.charge(cost::EVENT);
        qp.recv_cq.fire(&core.caller(slice.lane()));
    }
    result
}

/// The receiving half of a QP in progress.
pub(super) struct Half<'a, H: Host> {
    pub(super) core: &'a Arc<Core<H>>,
    pub(super) qp: &'a Arc<Qp<H>>,
    pub(super) responder: &'a mut Responder,
    pub(super) slice: &'a Slice<'a, H>,
}

impl<H: Host> Half<'_, H> {
    fn receive(&mut self, receiver: &mut Receiver, received: &Received<'_>) -> Result<(), Discard> {
        if !self.qp.receives() {
            return match &mut receiver.engine {
                Engine::Reliable(engine) if self.qp.has_given_up() => {
                    engine.give_up();
                    Ok(())
                }
                _ => Err(Discard::State),
            };
        }
        self.notify(receiver, received);
        if let Some(window) = receiver.window.as_deref_mut().filter(|it| it.closing.is_some()) {
            let waits = window.wait(Box::new(WaitingFrame::of(received.arrived)));
            return if waits { Ok(()) } else { Err(Discard::Early) };
        }
        let result = self.packet(receiver, received).and_then(|()| self.held(receiver));
        if receiver.stores() {
            receiver.discard();
        }
        result
    }

    /// Executes the held packets that follow.
    pub(super) fn held(&mut self, receiver: &mut Receiver) -> Result<(), Discard> {
        while !receiver.is_closing()
            && let Engine::Reliable(engine) = &mut receiver.engine
            && let Some(slot) = engine.next_held()
        {
            let Some(held) = receiver.take(slot) else { break };
            if let Some(received) = Received::of(&held) {
                self.packet(receiver, &received)?;
            }
        }
        Ok(())
    }

    /// Notifies the peer of congestion if a packet has a congestion mark and the peer was not
    /// notified recently.
    fn notify(&self, receiver: &mut Receiver, received: &Received<'_>) {
        let mark = received.parsed.network.ecn();
        if mark != Ecn::Marked {
            return;
        }
        let stats = self.core.stats();
        stats.step(Counter::NpEcnMarkedRocePackets);
        if receiver.notifier.arrived(self.core.host().now(), mark) {
            stats.step(Counter::NpCnpSent);
            let head = Head::congestion(Qpn::new(self.responder.source_qpn.get()));
            let mut path = receiver.way.path;
            if self.core.dcqcn.read().is_some() {
                path.network.traffic_class = DSCP_NOTIFICATION << 2;
            }
            let (path, body) = (&path, &Body::Congestion);
            let parts = frames::Parts { path, head: &head, body, length: 0 };
            let Ok(()) = frames::add(&mut receiver.outbox, &parts, |_| Ok::<_, Infallible>(()));
        }
    }

    pub(super) fn packet(
        &mut self,
        receiver: &mut Receiver,
        received: &Received<'_>,
    ) -> Result<(), Discard> {
        let Received { arrived, packet, .. } = received;
        match &mut receiver.engine {
            Engine::Reliable(engine) => match engine.receive(packet)? {
                Step::Execute(arrival) => return self.request(receiver, received, &arrival),
                Step::Keep(slot) => {
                    let kept = receiver.keep(slot, *arrived);
                    return if kept { Ok(()) } else { Err(Discard::Early) };
                }
                Step::Duplicate => {}
                Step::Refused(_) => self.fail(Refusal::Invalid),
            },
            Engine::Unreliable(engine) => {
                let arrival = engine.receive(packet)?;
                return self.request(receiver, received, &arrival);
            }
        }
        Ok(())
    }

    /// Executes a request, or the part of it in a packet.
    fn request(
        &mut self,
        receiver: &mut Receiver,
        received: &Received<'_>,
        arrival: &Arrival,
    ) -> Result<(), Discard> {
        let payload = received.packet.payload;
        let mut placing = Placing::Usual;
        if self.core.injection.looks_at(Site::Copy) || receiver.window.is_some() {
            placing = self.placing(receiver, arrival, received);
        }
        if placing == Placing::Later {
            return Ok(());
        }
        let kept = placing == Placing::Kept;
        let result = self.execute(arrival, payload, kept, &mut receiver.takeover);
        if placing == Placing::Kept
            && result.is_ok()
            && let Some(window) = &mut receiver.window
        {
            window.bytes.extend_from_slice(payload);
        }
        self.end(&mut receiver.engine, result)
    }

    /// Passes the result of a request to the engine.
    ///
    /// # Errors
    /// The packet of an unreliable connection is dropped.
    pub(super) fn end(
        &mut self,
        engine: &mut Engine,
        result: Result<Option<u64>, Refusal>,
    ) -> Result<(), Discard> {
        match engine {
            Engine::Reliable(engine) => {
                if engine.end(verdict(result, || self.core.host().moves_for())).is_some()
                    && let Err(refusal) = result
                {
                    self.fail(refusal);
                }
                Ok(())
            }
            Engine::Unreliable(engine) => {
                engine.end(verdict(result, Duration::default));
                let Err(refusal) = result else { return Ok(()) };
                // An error of the receiver itself is reported to the receiver. In other cases no
                // QP answers.
                match refusal {
                    Refusal::Operational | Refusal::Malformed => self.fail(refusal),
                    Refusal::NotReady => self.core.stats().step(Counter::OutOfBuffer),
                    _ => {}
                }
                Err(Discard::Refused)
            }
        }
    }

    /// Moves the QP to the error state.
    #[cold]
    pub(super) fn fail(&mut self, refusal: Refusal) {
        let there = PeerContext::new(self.core, self.qp, self.slice);
        outcome::fail(&there, self.responder, refusal);
    }

    /// Executes a request, or the part of it in a packet. With `kept`, only checks the memory of
    /// a SEND or WRITE. Returns the old value of the word of an atomic.
    pub(super) fn execute(
        &mut self,
        arrival: &Arrival,
        payload: &[u8],
        kept: bool,
        takeover: &mut Option<Box<Takeover>>,
    ) -> Result<Option<u64>, Refusal> {
        let message = Message::new(arrival, self.responder);
        let ended = {
            // A lost message of an unreliable connection does not come again.
            let there = match self.qp.kind {
                Type::Uc => PeerContext::new(self.core, self.qp, self.slice),
                _ => PeerContext::patient(self.core, self.qp, self.responder.asker(), self.slice),
            };
            there.turn.step(Counter::RxPkts);
            there.turn.add(Counter::RxBytes, payload.len() as u64);
            let operation = &message.inbound.operation;
            let ended = match operation {
                Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => {
                    let old = responder::atomic(&there, self.responder, &message.inbound)?;
                    there.turn.step(operation.executed());
                    return Ok(Some(old));
                }
                Operation::AtomicWrite(_) => {
                    let bytes = payload.try_into().map_err(|_| Refusal::Invalid)?;
                    flush::atomic_write(&there, self.responder, &message.inbound, bytes)?;
                    there.turn.moved(8);
                    None
                }
                Operation::Flush { .. } => {
                    flush::flush(&there, self.responder, &message.inbound)?;
                    None
                }
                _ => place(&there, self.responder, &message, Bytes { payload, kept }, takeover)?,
            };
            if message.ends {
                there.turn.step(operation.executed());
            }
            ended
        };
        if let Some(ended) = ended {
            let Self { core, qp, responder, slice } = self;
            let inbound = &message.inbound;
            outcome::received_after_readers(core, qp, responder, slice, inbound, ended)?;
        }
        Ok(None)
    }
}

/// The bytes of a packet.
struct Bytes<'a> {
    payload: &'a [u8],
    /// True if they are placed later, if they have memory.
    kept: bool,
}

/// Places the bytes of a SEND or WRITE, unless they are kept and have memory. Only checks the
/// memory of a READ, whose bytes are sent with the answers. Returns the key that the message has
/// invalidated.
fn place<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    message: &Message,
    bytes: Bytes<'_>,
    takeover: &mut Option<Box<Takeover>>,
) -> Result<Option<Ended>, Refusal> {
    let Message { inbound, ends } = message;
    let mut side = SgList::default();
    responder::find(there, responder, inbound, &mut side)?;
    // Only the last part of a WRITE has immediate data, so the message has no receive yet.
    responder::accept(there, responder, &Inbound { from: 0, ..*inbound })?;
    let Bytes { payload, kept } = bytes;
    let range = inbound.from..inbound.from.saturating_add(payload.len() as u64);
    let is_handed = takeover.as_ref().is_some_and(|it| it.is_of(inbound.number));
    if kept && side.has(range.start, range.end) {
        // The bytes are placed later.
    } else if is_handed || !side.is_immediate::<H>(&there.turn.memory, range.clone()) {
        hand_over(there, takeover.get_or_insert_default(), message, &side, payload)?;
    } else {
        side.write::<H>(&there.turn.memory, inbound.from, payload)
            .map_err(|_| side.refusal(&there.turn, range))?;
    }
    there.turn.moved(payload.len() as u64);
    if matches!(inbound.operation, Operation::Read(_)) {
        side.check_first(&there.turn, inbound.length).map_err(Refusal::of_memory)?;
        return Ok(None);
    }
    if !ends {
        return Ok(None);
    }
    responder::end(there, responder, inbound, &side)
}

/// Passes the bytes of a packet to memory that the host writes. The last packet of a message is
/// executed when all bytes of the message have arrived there.
#[cold]
fn hand_over<H: Host>(
    there: &PeerContext<'_, H>,
    takeover: &mut Takeover,
    message: &Message,
    side: &SgList<'_>,
    payload: &[u8],
) -> Result<(), Refusal> {
    // A lost message of an unreliable connection does not come again.
    if there.qp.kind == Type::Uc {
        return Err(Refusal::Operational);
    }
    let Message { inbound, ends } = message;
    let end = inbound.from.saturating_add(payload.len() as u64);
    takeover.turn_to(inbound.number);
    if !takeover.has(end) {
        side.hand_over::<H>(&there.turn.memory, inbound.from, payload, takeover.progress())
            .map_err(|_| side.refusal(&there.turn, inbound.from..end))?;
        takeover.reach(end);
    }
    match takeover.awaited() {
        Awaited::Failed => Err(Refusal::Operational),
        Awaited::Soon if *ends => Err(Refusal::Absent),
        _ => Ok(()),
    }
}

/// Returns the NAK for a refusal to read the bytes of a READ.
pub(super) const fn read_nak(refusal: Refusal) -> Nak {
    match refusal {
        Refusal::Access(_) => Nak::RemoteAccess,
        Refusal::Operational | Refusal::Malformed => Nak::RemoteOperational,
        _ => Nak::InvalidRequest,
    }
}
