//! The sending half of a connected QP: RC, UC and the initiator of XRC.
//!
//! The caller posts work requests by [`Requester::push`], takes packets to send from
//! [`Requester::next`], passes answers to [`Requester::receive`], and takes completions, in the
//! order of the queue, from [`Requester::next_completion`]. A packet to send refers to bytes of a
//! work request. The caller copies these bytes from guest memory into the frame; the requester
//! never accesses them.
//!
//! Three sequence numbers describe the state (IBTA volume 1, 9.7.5):
//!
//! ```text
//!         oldest              cursor              high
//!   ────────┼───────────────────┼───────────────────┼────────
//!   executed│ sent, unanswered  │ to be sent again  │ never sent
//! ```
//!
//! Normally `cursor` equals `high`. When packets have been lost, `cursor` goes back to `oldest`.
//!
//! | module | contents |
//! | --- | --- |
//! | [`work`] | work requests and their outcomes |
//! | `ledger` | work requests that are not completed |
//! | `send` | the choice of the next packet |
//! | `answers` | acknowledgements, NAKs, READ responses |
//! | `timers` | time-outs |
//! | [`recovery`] | selective retransmission; probes |
//! | `rtt` | the round trip time |
//! | [`numbers`] | the numbers that people look at when a connection is slow |

mod answers;
mod ledger;
pub mod numbers;
pub mod recovery;
mod rtt;
mod send;
mod timers;
pub mod work;

use std::ops::Range;

use vrnic_packet::Nanos;

pub use self::answers::Effect;
use self::ledger::{Entry, Ledger};
pub use self::recovery::Recovery;
use self::recovery::Repair;
use self::rtt::RoundTrip;
pub use self::send::Transmit;
pub use self::work::{Completion, MESSAGE_MAX, Outcome, Rejected, Remote, Work, WorkRequest};
use crate::congestion::{RateControl, Window};
use crate::discard::Discards;
use crate::psn::Psn;
use crate::queue;
use crate::time::AckTimeout;
use crate::wire::opcode::Transport;
use crate::wire::{Mtu, Qpn, SendEnd};

/// Configuration of a requester.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// RC, UC or XRC.
    pub transport: Transport,
    /// The peer's QP.
    pub destination: Qpn,
    /// The path MTU, which must be the same at both ends.
    pub mtu: Mtu,
    /// The number of the first packet.
    pub first_psn: Psn,
    /// The maximum wait for an answer.
    pub timeout: AckTimeout,
    /// The number of retransmissions without any progress, 0 to 7.
    pub retry_count: u8,
    /// The number of retries when the responder is not ready, 0 to 6; 7 means no limit.
    pub rnr_retry: u8,
    /// Maximum number of outstanding READs and atomics.
    pub max_rd_atomic: u8,
    /// Maximum number of outstanding packets. A READ may ask for more if it is the only outstanding
    /// request.
    pub window: u32,
    /// The method of retransmission.
    pub recovery: Recovery,
    /// True if congestion notifications and losses reduce the window.
    pub congestion_control: bool,
    /// Maximum number of work requests in the ledger.
    pub capacity: usize,
}

/// The limits of a requester that can change while it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum wait for an answer.
    pub timeout: AckTimeout,
    /// The number of retransmissions without any progress, 0 to 7.
    pub retry_count: u8,
    /// The number of retries when the responder is not ready, 0 to 6; 7 means no limit.
    pub rnr_retry: u8,
    /// Maximum number of outstanding READs and atomics.
    pub max_rd_atomic: u8,
}

/// The counters of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that were sent again.
    pub resent: u64,
    /// Time-outs (`local_ack_timeout_err`).
    pub timeouts: u64,
    /// NAKs for a missing packet (`packet_seq_err`).
    pub sequence_naks: u64,
    /// Answers that showed that an earlier answer was lost (`implied_nak_seq_err`).
    pub implied_naks: u64,
    /// Answers "receiver not ready" (`rnr_nak_retry_err`).
    pub not_ready: u64,
    /// Packets that were sent again as probes for losses (`roce_adp_retrans`).
    pub probes: u64,
    /// Notifications that reduced the window, or that the rate control has handled
    /// (`rp_cnp_handled`).
    pub notified: u64,
    /// Notifications that did not reduce the window (`rp_cnp_ignored`).
    pub notifications_ignored: u64,
    /// Answers that were dropped.
    pub discards: Discards,
}

/// The sending half of a connected QP.
#[derive(Debug)]
pub struct Requester {
    config: Config,
    ledger: Ledger,
    /// The oldest packet that is not known to be executed and answered.
    oldest: Psn,
    /// The next packet to send, and the index of its entry in the ledger.
    cursor: Psn,
    at: usize,
    /// The first packet that was never sent.
    high: Psn,
    /// The first packet that no acknowledgement has covered. It is ahead of `oldest` while the
    /// answer of a READ or atomic is missing.
    executed: Psn,
    /// Between `oldest` and this packet, the cursor stops only at READs and atomics.
    skip_to: Psn,
    /// True if the next packet must ask for an acknowledgement.
    urgent: bool,
    /// The packet from which on the requester has sent packets again, until there is progress. It
    /// ignores further signs of the same loss.
    restarted: Option<Psn>,
    /// The time at which the wait for an answer ends.
    timer: Option<Nanos>,
    /// The time before which nothing is sent, because the responder was not ready.
    not_ready_until: Option<Nanos>,
    /// The time before which nothing is sent, because the caller does not have the bytes of the
    /// packet at the cursor.
    stalled_until: Option<Nanos>,
    retries: u8,
    rnr_retries: u8,
    repair: Repair,
    trip: RoundTrip,
    /// The window of congestion control, if there is one.
    window: Option<Window>,
    /// The rate of congestion control, if there is one.
    rate: Option<Box<RateControl>>,
    /// The time before which nothing is sent because of the rate.
    paced_until: Option<Nanos>,
    /// Number of packets sent since the last packet that asked for an acknowledgement.
    since_ack_request: u32,
    /// True if the requester must not start entries.
    paused: bool,
    failed: bool,
    counters: Counters,
}

impl Requester {
    /// Returns the number of bytes that a requester allocates for more than
    /// [`INITIAL_CAPACITY`](queue::INITIAL_CAPACITY) and at most `capacity` work requests.
    #[must_use]
    pub const fn memory(capacity: usize) -> usize {
        queue::bytes::<Entry>(capacity)
    }

    /// Gives memory back if there are no work requests.
    pub fn shrink(&mut self) {
        self.ledger.shrink();
    }

    /// Creates a requester. It allocates memory for its ledger when it has work requests.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            ledger: Ledger::new(config.capacity),
            oldest: config.first_psn,
            cursor: config.first_psn,
            at: 0,
            high: config.first_psn,
            executed: config.first_psn,
            skip_to: config.first_psn,
            urgent: false,
            restarted: None,
            timer: None,
            not_ready_until: None,
            stalled_until: None,
            retries: config.retry_count,
            rnr_retries: config.rnr_retry,
            repair: Repair::new(),
            trip: RoundTrip::default(),
            window: config.congestion_control.then(|| Window::new(config.mtu, config.window)),
            rate: None,
            paced_until: None,
            since_ack_request: 0,
            paused: false,
            failed: false,
            counters: Counters::default(),
            config,
        }
    }

    /// Sets the limits of retransmission and of READs. They hold from now on for all work requests.
    pub const fn set_limits(&mut self, limits: Limits) {
        let Limits { timeout, retry_count, rnr_retry, max_rd_atomic } = limits;
        self.config.timeout = timeout;
        (self.config.retry_count, self.retries) = (retry_count, retry_count);
        (self.config.rnr_retry, self.rnr_retries) = (rnr_retry, rnr_retry);
        self.config.max_rd_atomic = max_rd_atomic;
    }

    /// Sets whether a rate limits the packets, in place of a window: notifications of congestion
    /// reduce it.
    pub fn set_rate_control(&mut self, rate: Option<RateControl>) {
        self.rate = rate.map(Box::new);
        self.paced_until = None;
        let window = self.config.congestion_control && self.rate.is_none();
        self.window = window.then(|| Window::new(self.config.mtu, self.config.window));
    }

    /// Appends a work request.
    ///
    /// # Errors
    /// The reason for which it is not accepted.
    pub fn push(&mut self, request: WorkRequest) -> Result<(), Rejected> {
        let reliable = self.config.transport.is_reliable();
        let exists = match request.work {
            Work::Send(SendEnd::Invalidate(_)) => reliable,
            Work::Send(_) | Work::Write(..) => true,
            Work::Read(_)
            | Work::CompareSwap { .. }
            | Work::FetchAdd { .. }
            | Work::AtomicWrite(_)
            | Work::Flush(..) => reliable && self.config.max_rd_atomic > 0,
        };
        let flush = matches!(request.work, Work::Flush(..));
        let word = request.work.is_atomic() || matches!(request.work, Work::AtomicWrite(_));
        if self.failed {
            Err(Rejected::Failed)
        } else if !exists {
            Err(Rejected::Operation)
        } else if (request.length > MESSAGE_MAX && !flush) || (word && request.length != 8) {
            Err(Rejected::Length)
        } else if self.ledger.push(request) {
            Ok(())
        } else {
            Err(Rejected::Full)
        }
    }

    /// Returns the next completion, in the order of the queue. After the first one that has failed,
    /// all others are flushed, and the requester sends and receives nothing any more.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let ended = self.pop_ended()?;
        let WorkRequest { id, signaled, .. } = ended.request;
        let outcome = match ended.failed {
            _ if self.failed => Outcome::Flushed,
            Some(outcome) => outcome,
            None => Outcome::Success,
        };
        if ended.failed.is_some() {
            self.fail();
        }
        Some(Completion { id, outcome, signaled })
    }

    fn pop_ended(&mut self) -> Option<Entry> {
        let entry = if self.failed { self.ledger.pop() } else { self.ledger.pop_ended() }?;
        self.at = self.at.saturating_sub(1);
        Some(entry)
    }

    /// Ends the work request with this identifier, whose memory the caller could not read or write.
    /// It completes with [`Outcome::Local`] after all requests before it. Until then no later
    /// request is started. Does nothing if the ledger has no such work request.
    pub fn refuse(&mut self, id: u64) {
        self.ledger.fail(id, Outcome::Local);
    }

    /// Ends all work: requests that are not completed are flushed.
    pub fn fail(&mut self) {
        self.failed = true;
        self.disarm();
        self.not_ready_until = None;
        self.stalled_until = None;
        self.paced_until = None;
    }

    /// Takes the packet with this number back, which [`Self::next`] has just returned, because the
    /// caller does not have its bytes yet. It is returned again when the time `until` has come.
    /// This counts as no retry. Returns false if the packet cannot be taken back, because the
    /// transport is unreliable: it is lost then.
    pub fn stall(&mut self, psn: Psn, until: Nanos) -> bool {
        if !self.config.transport.is_reliable() {
            return false;
        }
        self.go_back_to(psn);
        self.stalled_until = Some(until);
        true
    }

    /// Sends nothing before the time `until`, because the caller does not have the next packet's
    /// bytes yet ([`Self::upcoming_bytes`]).
    pub fn hold_until(&mut self, until: Nanos) {
        self.stalled_until = Some(until);
    }

    /// If `paused` is true, starts no more work requests, while started work requests continue
    /// (state SQD). If it is false, starts work requests again.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Asks for all outstanding answers again when the time `until` has come, because the caller
    /// has nowhere to store an answer yet, which it has not passed to [`Self::receive`]. This
    /// counts as no retry.
    pub fn ask_again(&mut self, until: Nanos) {
        if !self.failed && self.not_ready_until.is_none() {
            self.go_back();
            self.stalled_until = Some(until);
        }
    }

    /// Returns the READ or atomic that a packet with this number answers, and the range of its
    /// bytes in the packet.
    #[must_use]
    pub fn waits_for(&self, psn: Psn) -> Option<(u64, Range<u32>)> {
        let mut started = self.ledger.oldest()..self.ledger.started();
        let entry = started.find_map(|at| {
            self.ledger.get(at).filter(|entry| entry.has_answer() && entry.span.contains(psn))
        })?;
        let offset = entry.offset(psn, self.config.mtu);
        let bytes = entry.bytes_at(psn, self.config.mtu);
        Some((entry.request.id, offset..offset.saturating_add(bytes)))
    }

    /// Returns the oldest READ or atomic without its whole answer. The answers of later ones are
    /// not accepted before.
    #[must_use]
    pub fn next_answered(&self) -> Option<u64> {
        let mut started = self.ledger.oldest()..self.ledger.started();
        started.find_map(|at| {
            let entry = self.ledger.get(at).filter(|entry| entry.has_answer())?;
            Some(entry.request.id)
        })
    }

    /// Returns whether nothing is outstanding.
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        self.ledger.is_quiet()
    }

    /// Returns whether the requester has failed.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns the number of the next packet that was never sent (`sq_psn` of QUERY_QP).
    #[must_use]
    pub const fn psn(&self) -> Psn {
        self.high
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sends all unanswered packets again. The first one asks for an acknowledgement, because the
    /// peer may be ahead of its received answers.
    fn go_back(&mut self) {
        self.rewind();
        self.skip_to = self.executed;
        self.urgent = true;
        self.repair.reset();
        self.trip.forget();
    }

    /// Moves the cursor to the oldest packet.
    fn rewind(&mut self) {
        self.cursor = self.oldest;
        self.at = self.ledger.oldest();
    }

    /// Moves the cursor back to an outstanding packet.
    fn go_back_to(&mut self, psn: Psn) {
        let mut started = self.ledger.oldest()..self.ledger.started();
        let holds = |at: &usize| self.ledger.get(*at).is_some_and(|it| it.span.contains(psn));
        if let Some(at) = started.find(holds) {
            (self.cursor, self.at) = (psn, at);
        }
    }

    /// Returns the distance from the oldest packet forwards to a number, if it belongs to a sent
    /// packet or to the next one; otherwise zero.
    const fn ahead(&self, psn: Psn) -> u32 {
        let ahead = psn.since(self.oldest);
        if ahead <= self.high.since(self.oldest) { ahead } else { 0 }
    }
}
