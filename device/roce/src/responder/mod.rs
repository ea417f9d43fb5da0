//! The receiving half of a reliable connection: RC and the target of XRC.
//!
//! The caller passes each request to [`Responder::receive`], executes the [`Arrival`] that this
//! function returns, and reports the result by [`Responder::end`]. The responder accepts the
//! request only at that time, so a SEND for which there is no receive can arrive again. After a
//! batch of requests, the caller takes the answers from [`Responder::next_reply`].
//!
//! Each request is executed once, in the order of the sequence numbers. A request before the
//! expected number is a duplicate: the responder answers it again, but does not execute it. A
//! request after the expected number shows that packets are missing.
//!
//! | module | contents |
//! | --- | --- |
//! | [`arrival`] | tasks of the caller, and their results |
//! | `message` | the order of the packets of a message, and their lengths |
//! | `resources` | READs and atomics that may have to be answered again |
//! | `early_packets` | packets that wait for a missing packet |
//! | `duplicates` | requests that were executed before |
//! | [`replies`] | answers, in the order of the requests |
//! | [`unreliable`] | the receiving half of an unreliable connection |

pub mod arrival;
mod duplicates;
mod early_packets;
mod message;
pub mod replies;
mod resources;
#[cfg(test)]
mod tests;
pub mod unreliable;

use std::mem;

pub use self::arrival::{Arrival, Arriving, Step, Verdict};
use self::early_packets::EarlyPackets;
pub use self::early_packets::Slot;
use self::message::{Accepted, Message, Numbers};
pub use self::replies::{ReadSegment, Reply};
use self::resources::{Resource, Resources};
use crate::discard::{Discard, Discards};
use crate::psn::{Msn, Psn};
use crate::queue;
use crate::wire::opcode::Transport;
use crate::wire::syndrome::RnrTimer;
use crate::wire::{Mtu, Nak, Packet, Qpn, Request, Syndrome};

/// Configuration of a responder.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The transport, RC or XRC.
    pub transport: Transport,
    /// The peer's QP, for answers.
    pub destination: Qpn,
    /// The path MTU, which must be the same at both ends.
    pub mtu: Mtu,
    /// The number of the first packet.
    pub first_psn: Psn,
    /// The time for which a requester must wait if there is no receive.
    pub min_rnr_timer: RnrTimer,
    /// Maximum number of outstanding READs and atomics of the peer (`max_dest_rd_atomic`).
    pub max_dest_rd_atomic: u8,
    /// Maximum number of packets after a missing one that are held, at most 255; 0 for none.
    pub hold: u32,
}

/// The counters of a responder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets of requests that were executed.
    pub executed: u64,
    /// Requests that had been executed before (`duplicate_request`).
    pub duplicates: u64,
    /// Packets that arrived out of order (`out_of_sequence`).
    pub early: u64,
    /// Packets that were held.
    pub held: u64,
    /// Positive acknowledgements.
    pub acks: u64,
    /// NAKs for a missing packet.
    pub sequence_naks: u64,
    /// Answers "receiver not ready".
    pub not_ready: u64,
    /// Other NAKs.
    pub refusals: u64,
    /// Requests that were dropped.
    pub discards: Discards,
}

/// A request that the caller is executing.
#[derive(Clone, Copy, Debug)]
struct Pending {
    request: Request,
    accepted: Accepted,
    ack_request: bool,
}

/// The reason for which the expected packet must be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// The packet need not be sent again.
    No,
    /// The packet is missing. The responder sends a NAK at the end of the batch.
    Missing,
    /// The packet is missing, and the responder has sent a NAK. It sends only one NAK (C9-115).
    Told,
    /// There was no receive for the packet. The responder drops all later packets until it arrives
    /// again.
    NotReady,
}

/// The receiving half of a reliable connection.
#[derive(Debug)]
pub struct Responder {
    config: Config,
    /// The number of the next request to execute.
    expected: Psn,
    /// Number of messages that have been executed.
    msn: Msn,
    /// Number of messages that have been begun, for keys that are valid for one message.
    numbers: Numbers,
    message: Message,
    pending: Option<Pending>,
    waiting: Waiting,
    held: EarlyPackets,
    /// True if the next packet to process is a held one.
    from_held: bool,
    /// True if the responder acknowledges held packets that request an acknowledgement.
    acks_held: bool,
    resources: Resources,
    /// The last packet for which an acknowledgement is pending.
    ack: Option<Psn>,
    /// A pending negative answer, and its number.
    refusal: Option<(Psn, Syndrome)>,
    failed: bool,
    /// The first request without an answer when [`Responder::give_up`] was called.
    given_up: Option<Psn>,
    counters: Counters,
}

impl Responder {
    /// Returns the number of bytes that a responder allocates if the peer may have this many
    /// outstanding READs and atomics. For at most [`INITIAL_CAPACITY`](queue::INITIAL_CAPACITY) of
    /// them, this is 0.
    #[must_use]
    pub fn memory(max_dest_rd_atomic: u8) -> usize {
        queue::bytes::<Resource>(max_dest_rd_atomic.into())
    }

    /// Creates a responder. It allocates memory for READs and atomics when they arrive.
    #[must_use]
    pub fn new(mut config: Config) -> Self {
        config.hold = config.hold.min(early_packets::HELD_MAX);
        Self {
            expected: config.first_psn,
            msn: Msn::default(),
            numbers: Numbers::default(),
            message: Message::None,
            pending: None,
            waiting: Waiting::No,
            held: EarlyPackets::default(),
            from_held: false,
            acks_held: true,
            resources: Resources::new(usize::from(config.max_dest_rd_atomic)),
            ack: None,
            refusal: None,
            failed: false,
            given_up: None,
            counters: Counters::default(),
            config,
        }
    }

    /// Processes a request.
    ///
    /// # Errors
    /// The reason for which it is dropped.
    pub fn receive(&mut self, packet: &Packet<'_>) -> Result<Step, Discard> {
        let result = self.take(packet);
        if let Err(discard) = result {
            self.counters.discards.count(discard);
        }
        result
    }

    fn take(&mut self, packet: &Packet<'_>) -> Result<Step, Discard> {
        let Some(request) = packet.request() else { return Err(Discard::Transport) };
        if packet.head.transport != self.config.transport {
            return Err(Discard::Transport);
        }
        if self.failed {
            return Err(Discard::State);
        }
        if self.pending.is_some() {
            return Err(Discard::Busy);
        }
        let psn = packet.head.psn;
        if psn == self.expected {
            Ok(self.in_order(request, packet))
        } else if psn.is_before(self.expected) {
            self.duplicate(psn, request, packet.head.ack_request)
        } else {
            self.early(psn)
        }
    }

    /// Processes the expected request.
    ///
    /// If a requester that has received a NAK sends the missing packet again without a request for
    /// an acknowledgement, it also sends all later packets again, and requests an acknowledgement
    /// at their end. Until then, the responder does not acknowledge held packets. After an earlier
    /// acknowledgement, rxe would not send these packets a third time: if the last packet was lost,
    /// rxe would wait for ever (rxe_comp.c, `COMPST_UPDATE_COMP`).
    fn in_order(&mut self, request: Request, packet: &Packet<'_>) -> Step {
        let kept = mem::take(&mut self.from_held);
        if !kept {
            self.held.release(packet.head.psn);
            self.acks_held = packet.head.ack_request || self.waiting != Waiting::Told;
        }
        let accepted = self.message.accept(
            request,
            packet.head.srqn,
            packet.payload.len(),
            self.config.mtu,
            self.numbers,
        );
        let overrun =
            matches!(accepted, Ok(Accepted { answers: true, .. })) && self.resources.is_overrun();
        match accepted {
            Ok(accepted) if !overrun => {
                let ack_request = packet.head.ack_request && (!kept || self.acks_held);
                self.pending = Some(Pending { request, accepted, ack_request });
                Step::Execute(Arrival { solicited: packet.head.solicited, ..accepted.arrival })
            }
            _ => self.refuse(Nak::InvalidRequest),
        }
    }

    /// Handles a request that follows a missing packet. The responder sends a NAK only at the end
    /// of the batch, because the missing packet may be merely late, and arrive in the same batch.
    fn early(&mut self, psn: Psn) -> Result<Step, Discard> {
        self.counters.early += 1;
        match self.waiting {
            Waiting::NotReady => return Err(Discard::BehindNotReady),
            Waiting::No => self.waiting = Waiting::Missing,
            Waiting::Missing | Waiting::Told => {}
        }
        let ahead = psn.since(self.expected);
        let slot = if ahead <= self.config.hold { self.held.hold(psn) } else { None };
        self.counters.held += u64::from(slot.is_some());
        slot.map(Step::Keep).ok_or(Discard::Early)
    }

    /// Sets the time for which a requester waits after a message for which there is no receive.
    pub const fn set_min_rnr_timer(&mut self, timer: RnrTimer) {
        self.config.min_rnr_timer = timer;
    }

    /// Sets the maximum number of outstanding READs and atomics of the peer.
    pub fn set_max_dest_rd_atomic(&mut self, count: u8) {
        self.config.max_dest_rd_atomic = count;
        self.resources.set_capacity(count.into());
    }

    /// Ends the request of [`Step::Execute`].
    ///
    /// Returns a NAK if the connection has failed. The caller then moves its QP to the error state.
    /// Pending answers must still be sent.
    pub fn end(&mut self, verdict: Verdict) -> Option<Nak> {
        let pending = self.pending.take()?;
        let atomic = matches!(pending.request, Request::CompareSwap(_) | Request::FetchAdd(_));
        let nak = match verdict {
            Verdict::Executed if !atomic => return self.executed(&pending, None),
            Verdict::Old(old) if atomic => return self.executed(&pending, Some(old)),
            Verdict::NotReady | Verdict::Absent(_) => {
                self.counters.not_ready += 1;
                let timer = match verdict {
                    Verdict::Absent(timer) => timer,
                    _ => self.config.min_rnr_timer,
                };
                let syndrome = Syndrome::NotReady(timer);
                self.refusal = Some((self.expected, syndrome));
                self.waiting = Waiting::NotReady;
                self.held = EarlyPackets::default();
                return None;
            }
            Verdict::Invalid => Nak::InvalidRequest,
            Verdict::Access => Nak::RemoteAccess,
            Verdict::Operational | Verdict::Executed | Verdict::Old(_) => Nak::RemoteOperational,
        };
        self.refuse(nak);
        Some(nak)
    }

    /// Updates the state after a request has been executed.
    fn executed(&mut self, pending: &Pending, old: Option<u64>) -> Option<Nak> {
        let psn = self.expected;
        let Accepted { next, count, completes, begins, answers, .. } = pending.accepted;
        self.counters.executed += 1;
        self.message = next;
        self.expected = psn.plus(count);
        self.resources.age(self.expected);
        self.held.forget(psn.next(), count - 1);
        if begins {
            self.numbers = self.numbers.next();
        }
        if completes {
            self.msn = self.msn.next();
        }
        if answers {
            self.resources.push(psn, count, pending.request, old, self.numbers);
        } else if pending.ack_request {
            self.ack = Some(psn);
        }
        self.waiting = if self.held.is_empty() { Waiting::No } else { Waiting::Missing };
        None
    }

    /// Answers the expected request with a NAK, which ends the connection.
    fn refuse(&mut self, nak: Nak) -> Step {
        self.fail(self.expected, nak);
        Step::Refused(nak)
    }

    fn fail(&mut self, psn: Psn, nak: Nak) {
        self.counters.refusals += 1;
        self.refusal = Some((psn, Syndrome::Nak(nak)));
        self.failed = true;
        self.held = EarlyPackets::default();
    }

    /// Refuses the first request that was not answered, because this side has ended the connection.
    /// The caller calls this function again for each request that arrives later. A requester that
    /// had no outstanding requests, or has missed the NAK, then receives a NAK, too.
    pub fn give_up(&mut self) {
        let unanswered = self.resources.due().map_or(self.expected, |(_, progress)| progress.next);
        let psn = *self.given_up.get_or_insert(unanswered);
        self.resources.stop();
        self.pending = None;
        self.ack = None;
        self.fail(psn, Nak::RemoteOperational);
    }

    /// Returns the slot of the expected packet if the caller has stored it. The caller must pass
    /// this packet to [`Self::receive`] now. Before the caller takes answers, it calls this
    /// function until the result is `None`.
    pub fn next_held(&mut self) -> Option<Slot> {
        if self.failed || self.pending.is_some() {
            return None;
        }
        let slot = self.held.release(self.expected);
        self.from_held = slot.is_some();
        slot
    }

    /// Forgets a held packet, whose bytes the caller has not stored or has discarded. The peer must
    /// send it again.
    pub fn lose(&mut self, slot: Slot) {
        self.held.lose(slot);
    }

    /// Returns the number of packets that are held.
    #[must_use]
    pub fn held_count(&self) -> u32 {
        self.held.count()
    }

    /// Returns whether the packet in a slot is still needed.
    #[must_use]
    pub fn holds(&self, slot: Slot) -> bool {
        self.held.has(slot)
    }

    /// Returns whether the connection has failed.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns the number of the next request to execute (`rq_psn` of QUERY_QP).
    #[must_use]
    pub const fn expected(&self) -> Psn {
        self.expected
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}
