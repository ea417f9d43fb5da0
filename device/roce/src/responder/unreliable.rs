//! The receiving half of an unreliable connection (UC).
//!
//! There are no answers. The responder drops a message if a packet is missing, and continues at the
//! next FIRST or ONLY (IBTA volume 1, 9.8.2.2). The next message uses the receive of the dropped
//! message.

use super::arrival::{Arrival, Verdict};
use super::message::{Accepted, Message, Numbers};
use crate::discard::{Discard, Discards};
use crate::psn::Psn;
use crate::wire::opcode::Transport;
use crate::wire::{Mtu, Packet, Request};

/// The receiving half of an unreliable connection.
#[derive(Debug)]
pub struct UnreliableResponder {
    mtu: Mtu,
    expected: Psn,
    message: Message,
    numbers: Numbers,
    pending: Option<Accepted>,
    discards: Discards,
}

impl UnreliableResponder {
    /// Creates a responder.
    #[must_use]
    pub fn new(mtu: Mtu, first_psn: Psn) -> Self {
        Self {
            mtu,
            expected: first_psn,
            message: Message::None,
            numbers: Numbers::default(),
            pending: None,
            discards: Discards::default(),
        }
    }

    /// Processes a packet. The caller executes the arrival and calls [`Self::end`]. An arrival at
    /// offset 0 begins a message. If another message was in progress, it is lost, and the new
    /// message uses its receive.
    ///
    /// # Errors
    /// The reason for which the packet is dropped.
    pub fn receive(&mut self, packet: &Packet<'_>) -> Result<Arrival, Discard> {
        let result = self.take(packet);
        if let Err(discard) = result {
            self.discards.count(discard);
        }
        result
    }

    fn take(&mut self, packet: &Packet<'_>) -> Result<Arrival, Discard> {
        let Some(request) = packet.request() else { return Err(Discard::Transport) };
        if packet.head.transport != Transport::Uc {
            return Err(Discard::Transport);
        }
        let begins = match request {
            Request::Send(part) => part.start().is_some(),
            Request::Write(part) => part.start().is_some(),
            _ => return Err(Discard::Opcode),
        };
        if self.pending.is_some() {
            return Err(Discard::Busy);
        }
        let psn = packet.head.psn;
        // A packet is missing, or this packet is late. A packet that begins a message is accepted
        // in any case.
        if psn != self.expected || begins {
            self.message = Message::None;
        }
        self.expected = psn.next();
        let (srqn, payload) = (packet.head.srqn, packet.payload.len());
        let accepted = self.message.accept(request, srqn, payload, self.mtu, self.numbers);
        let Ok(accepted) = accepted else {
            self.message = Message::None;
            return Err(Discard::BrokenMessage);
        };
        self.pending = Some(accepted);
        Ok(Arrival { solicited: packet.head.solicited, ..accepted.arrival })
    }

    /// Ends the arrival that [`Self::receive`] returned. A message that is not executed is dropped
    /// without an answer, and the connection continues.
    pub fn end(&mut self, verdict: Verdict) {
        let Some(accepted) = self.pending.take() else { return };
        if accepted.begins {
            self.numbers = self.numbers.next();
        }
        self.message = accepted.next;
        if verdict != Verdict::Executed {
            self.message = Message::None;
            self.discards.count(Discard::Refused);
        }
    }

    /// Returns the counters of dropped packets.
    #[must_use]
    pub const fn discards(&self) -> &Discards {
        &self.discards
    }
}
