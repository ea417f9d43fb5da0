//! Requests whose bytes become visible in another order, if a rule for faults demands it. The
//! engine considers the packet that closes a window as being executed until all blocks are placed,
//! so neither an acknowledgement nor a completion can come before them.

use std::collections::VecDeque;

use vrnic_abi::sq::Opcode;
use vrnic_packet::Nanos;
use vrnic_roce::responder::{Arrival, Arriving};
use vrnic_roce::wire::SendEnd;

use super::message::Message;
use super::reordering::Reordering;
use super::requests::{Half, Received};
use crate::datapath::constants::BLOCKS_PAUSE;
use crate::datapath::inbound::Inbound;
use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder;
use crate::datapath::sgl::SgList;
use crate::host::Host;
use crate::objects::qp::remote::Receiver;
use crate::objects::qp::waiting_frame::WaitingFrame;
use crate::objects::qp::window::{Closing, Placing, Window};
use crate::stats::Counter;

impl<H: Host> Half<'_, H> {
    /// Decides when the bytes of a packet that the engine has accepted are placed.
    #[cold]
    pub(super) fn placing(
        &mut self,
        receiver: &mut Receiver,
        arrival: &Arrival,
        received: &Received<'_>,
    ) -> Placing {
        let known = receiver.window.as_ref().is_some_and(|it| it.number == arrival.number);
        if arrival.at == 0 && !known {
            receiver.window = self.decide(arrival);
        }
        let payload = received.packet.payload;
        let Some(window) = receiver.window.as_deref_mut() else { return Placing::Usual };
        if window.seed.is_none() || payload.is_empty() && window.bytes.is_empty() {
            return Placing::Usual;
        }
        if !ends(arrival) && window.fits(payload.len()) {
            return Placing::Kept;
        }
        window.bytes.extend_from_slice(payload);
        let (frame, due) = (Box::new(WaitingFrame::of(received.arrived)), self.core.host().now());
        let behind = VecDeque::new();
        window.closing = Some(Closing { arrival: *arrival, frame, place: 0, due, behind });
        Placing::Later
    }

    /// Decides on the message that a packet begins.
    fn decide(&mut self, arrival: &Arrival) -> Option<Box<Window>> {
        let opcode = match arrival.work {
            Arriving::Send(Some(SendEnd::Imm(_))) => Opcode::SendImm,
            Arriving::Send(_) => Opcode::Send,
            Arriving::Write(_, Some(Some(_))) => Opcode::WriteImm,
            Arriving::Write(..) => Opcode::Write,
            _ => return None,
        };
        let (core, qpn) = (self.core, self.qp.qpn);
        let relaxed = || self.is_relaxed(arrival);
        let hit = core.injection.order_of_packets(core.here(), qpn, opcode, relaxed)?;
        let (seed, _ticket) = hit.unzip();
        let number = arrival.number;
        Some(Box::new(Window { number, seed, start: 0, bytes: Vec::new(), closing: None, _ticket }))
    }

    /// Returns whether all regions to which a packet goes allow any order of writes, or `None` if
    /// the packet is refused.
    fn is_relaxed(&mut self, arrival: &Arrival) -> Option<bool> {
        let Message { inbound, .. } = Message::new(arrival, self.responder);
        let there = PeerContext::patient(self.core, self.qp, self.responder.asker(), self.slice);
        let mut side = SgList::default();
        responder::find(&there, self.responder, &inbound, &mut side).ok()?;
        Some(side.is_relaxed())
    }

    /// Places blocks of the window that are due, and executes the packets after them. Returns the
    /// time of the next blocks.
    #[cold]
    pub(super) fn go_on(&mut self, receiver: &mut Receiver) -> Option<Nanos> {
        let now = self.core.host().now();
        if !self.qp.receives() {
            receiver.window = None;
        }
        while let Some(window) = receiver.window.as_deref_mut()
            && let Some(closing) = &mut window.closing
        {
            if now < closing.due {
                return Some(closing.due);
            }
            match self.blocks(window) {
                Ok(false) => return self.pause(window, now),
                Ok(true) => self.finish(receiver, None),
                Err(refusal) => self.finish(receiver, Some(refusal)),
            }
        }
        None
    }

    /// Sets the time of the next blocks.
    fn pause(&self, window: &mut Window, now: Nanos) -> Option<Nanos> {
        let due = now.plus(BLOCKS_PAUSE);
        window.closing.as_mut()?.due = due;
        Some(due)
    }

    /// Places the next blocks. Returns whether all have been placed.
    fn blocks(&mut self, window: &mut Window) -> Result<bool, Refusal> {
        let (Some(closing), Some(seed)) = (&mut window.closing, window.seed) else {
            return Ok(true);
        };
        let Message { inbound, .. } = Message::new(&closing.arrival, self.responder);
        let there = PeerContext::patient(self.core, self.qp, self.responder.asker(), self.slice);
        let mut side = SgList::default();
        responder::find(&there, self.responder, &inbound, &mut side)?;
        responder::accept(&there, self.responder, &Inbound { from: 0, ..inbound })?;
        Reordering { start: window.start, bytes: &window.bytes, seed }
            .place::<H>(&side, &there.turn.memory, &mut closing.place)
            .map_err(|at| side.refusal(&there.turn, at))
    }

    /// Executes the packet that has closed the window, unless it is refused, and those after it.
    fn finish(&mut self, receiver: &mut Receiver, refused: Option<Refusal>) {
        let Some(mut window) = receiver.window.take() else { return };
        let Some(Closing { arrival, frame, behind, .. }) = window.closing.take() else { return };
        let result = match (Received::of(&frame), refused) {
            (_, Some(refusal)) => Err(refusal),
            (Some(Received { packet, .. }), None) => {
                self.execute(&arrival, packet.payload, false, &mut receiver.takeover)
            }
            (None, None) => Err(Refusal::Operational),
        };
        let own = arrival.bytes as usize;
        if matches!(result, Err(Refusal::NotReady | Refusal::Absent)) {
            // The packet comes again.
            window.bytes.truncate(window.bytes.len().saturating_sub(own));
            receiver.window = Some(window);
        } else if !ends(&arrival) {
            window.start = window.start.saturating_add(window.bytes.len() as u64);
            window.bytes.clear();
            receiver.window = Some(window);
        }
        let ended = self.end(&mut receiver.engine, result);
        self.deliver(receiver, behind, ended.is_err());
    }

    /// Delivers packets that have waited. Those behind a new window wait again.
    fn deliver(
        &mut self,
        receiver: &mut Receiver,
        packets: VecDeque<Box<WaitingFrame>>,
        lost: bool,
    ) {
        let mut lost = lost | self.held(receiver).is_err();
        for held in packets {
            if let Some(window) = receiver.window.as_deref_mut().filter(|it| it.closing.is_some()) {
                lost |= !window.wait(held);
                continue;
            }
            if let Some(received) = Received::of(&held) {
                let delivered = self.packet(receiver, &received);
                lost |= delivered.and_then(|()| self.held(receiver)).is_err();
            }
        }
        if lost {
            self.core.stats().step(Counter::RxRoceDiscards);
        }
        if receiver.stores() {
            receiver.discard();
        }
    }
}

/// Returns whether a packet is the last one of its message.
const fn ends(arrival: &Arrival) -> bool {
    matches!(arrival.work, Arriving::Send(Some(_)) | Arriving::Write(_, Some(_)))
}
