//! The RDMA messages in the TCP connection of a QP (iWARP).

use std::sync::Arc;
use std::time::Duration;

use vrnic_abi::admin::QpOptions;
use vrnic_abi::connection::{Role, Stage};
use vrnic_abi::qp::State;
use vrnic_iwarp::Stream;
use vrnic_iwarp::wire::terminate::Cause;
use vrnic_packet::Nanos;
use vrnic_tcp::{Budget, Connection};

use super::link::Link;
use super::switched::Switched;
use super::waits::Waits;
use crate::host::Host;
use crate::objects::qp::WeakPeer;
use crate::objects::qp::takeover::Moves;

/// Time limit for the peer's reply, and for the first message of an initiator.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a graceful end, including the messages before it. After that, the connection is
/// reset.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the end of a connection whose QP is in the error state.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The memory that the messages of more than a few outstanding work requests need.
pub(crate) const MESSAGES: usize = 96 << 10;

/// Number of segments of the longest messages that are copied for a peer that holds
/// acknowledgements back. Linux acknowledges longer ones at once.
const COPIED_SEGMENTS: usize = 2;

/// Time between two probes of a peer that accepts no copied message.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);

/// Times from the opening of a connection to the nudges of a peer that has sent nothing.
const NUDGE_TIMES: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// The path of the messages that a QP with a connection sends.
#[derive(Debug, Default)]
pub enum Pairing<H: Host> {
    /// The decision comes when the connection has opened.
    #[default]
    Undecided,
    /// Messages are sent through the connection.
    Apart,
    /// The other end is this QP. Messages are copied to its memory, and the connection only carries
    /// its own end.
    Paired(WeakPeer<H>),
    /// As [`Self::Paired`], but the other end has refused a message, and is about to report this
    /// through the connection.
    Refused,
}

impl<H: Host> Pairing<H> {
    /// Returns whether messages are copied.
    #[inline]
    #[must_use]
    pub const fn is_paired(&self) -> bool {
        matches!(self, Self::Paired(_))
    }
}

/// The state of the messages in the receiving half of the QP.
#[derive(Clone, Copy, Debug, Default)]
pub struct RdmaReceiver {
    /// The reason for which a message that was copied has been refused, until the connection
    /// reports it.
    pub refused: Option<Cause>,
}

/// The messages in the connection of a QP.
#[derive(Debug)]
pub struct Rdma<H: Host> {
    /// The stream of messages.
    pub stream: Stream,
    /// The bytes that the connection has carried before its messages.
    pub switched: Switched,
    /// The bytes that the host moves for the connection.
    pub moves: Moves,
    /// The time by which it must be open.
    open_by: Nanos,
    /// The time by which it must be closed, if the driver has asked for that.
    close_by: Option<Nanos>,
    /// The time by which it must have ended, if the QP is in the error state.
    end_by: Option<Nanos>,
    /// True if no more work requests are taken, because the driver wants to close the connection.
    pub leaves: bool,
    /// The waits for its guest.
    waits: Waits,
    /// The nudges of the peer, if this end is the initiator.
    nudges: Option<Nudges>,
    /// The path of the messages that it sends.
    pub pairing: Pairing<H>,
    /// The time by which the two ends must be paired, after this one has opened.
    pub pair_by: Option<Nanos>,
    /// True if TCP has no work until a frame arrives, because the ends are paired.
    pub dormant: bool,
    /// True if short messages may complete without their acknowledgement.
    early: bool,
    /// The time of the next probe of a peer that accepts no copied message, if it has refused one.
    probe_at: Option<Nanos>,
    /// The number of messages with a wrong CRC that has been added to the adapter's counter.
    crc_errors: u64,
}

/// The nudges of a peer.
#[derive(Clone, Copy, Debug, Default)]
struct Nudges {
    /// The time at which the connection opened, if it has.
    since: Option<Nanos>,
    /// The number of nudges that were sent.
    count: usize,
}

impl<H: Host> Rdma<H> {
    /// Creates the messages of a connection that the adapter takes over now, for a QP with these
    /// options. Buffers take their memory from `memory`.
    #[must_use]
    pub(crate) fn new(
        now: Nanos,
        role: Role,
        options: QpOptions,
        tcp: &Connection,
        mut stream: Stream,
        memory: &Arc<Budget>,
    ) -> Self {
        stream.use_budget(memory);
        // Every adapter asks for a first message of the initiator, so this peer is none. It may
        // hold acknowledgements back.
        let early = !options.contains(QpOptions::ACKNOWLEDGED);
        if early
            && matches!(role, Role::Responder)
            && stream.agreement().is_some_and(|it| it.first.is_none())
        {
            complete_early(tcp, &mut stream);
        }
        let opening = match role {
            Role::Initiator => REPLY_TIMEOUT,
            Role::Responder | Role::Stream => FIRST_MESSAGE_TIMEOUT,
        };
        Self {
            stream,
            switched: Switched::default(),
            moves: Moves::default(),
            open_by: now.plus(opening),
            close_by: None,
            end_by: None,
            leaves: false,
            waits: Waits::default(),
            nudges: matches!(role, Role::Initiator).then(Nudges::default),
            pairing: Pairing::Undecided,
            pair_by: None,
            dormant: false,
            early,
            probe_at: None,
            crc_errors: 0,
        }
    }

    /// Returns the messages of a connection on which bytes have been carried before. They always
    /// travel in it: another QP of this daemon may not have come so far.
    #[must_use]
    pub(crate) fn after(self, switched: Switched) -> Self {
        Self { switched, pairing: Pairing::Apart, ..self }
    }

    /// Makes FPDUs as long as a segment is now. The path may carry less than before, or as much as
    /// at first again.
    pub fn fit_path(&mut self, tcp: &Connection) {
        self.stream.set_emss(u32::try_from(tcp.mss()).unwrap_or(u32::MAX));
    }

    /// Returns the number of bytes of memory that they keep while there is no work.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.stream.kept() + self.switched.kept()
    }

    /// Returns the number of bytes that are counted in the memory for connections.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.stream.charged() + self.switched.charged()
    }

    /// Completes short messages without their acknowledgement from now on, if the peer holds
    /// acknowledgements back and the QP allows it.
    pub fn watch_acknowledgements(&mut self, tcp: &Connection) {
        if self.early && tcp.delays_acknowledgements() {
            complete_early(tcp, &mut self.stream);
        }
    }

    /// Returns the time by which the connection must open, close or end, if the QP is in this
    /// state.
    pub fn limit(&mut self, link: &Link<H>, state: State, now: Nanos) -> Option<Nanos> {
        match (state, link.life().stage()) {
            _ if link.has_ended() => None,
            (State::Err, _) => Some(*self.end_by.get_or_insert(now.plus(END_TIMEOUT))),
            (State::Sqd, _) => Some(*self.close_by.get_or_insert(now.plus(CLOSE_TIMEOUT))),
            (_, Stage::Opening) => Some(self.open_by),
            _ => None,
        }
    }

    /// Nudges a peer that has sent nothing since the connection opened, if that is due. Returns the
    /// time of the next nudge. Linux siw does not notice messages that arrive while it accepts a
    /// connection until another one arrives (`siw_cm.c`, `siw_accept`).
    pub fn nudge(&mut self, stage: Stage, now: Nanos) -> Option<Nanos> {
        let nudges = self.nudges.as_mut()?;
        if stage != Stage::Open || self.stream.counters().fpdus_received > 0 {
            return None;
        }
        let since = *nudges.since.get_or_insert(now);
        let due = |count: usize| NUDGE_TIMES.get(count).map(|after| since.plus(*after));
        if due(nudges.count)? <= now {
            self.stream.nudge();
            nudges.count += 1;
        }
        due(nudges.count)
    }

    /// Records that the peer needs no nudges, because messages are copied to its memory.
    pub const fn needs_no_nudges(&mut self) {
        self.nudges = None;
    }

    /// Ends the stream if a SEND of the peer has waited too long for a receive. Returns the time of
    /// the next check, also for bytes that wait for memory. `is_scheduled` says that the SEND waits
    /// for room in a CQ instead, and that the QP is scheduled when there is some.
    pub fn check_waits(
        &mut self,
        now: Nanos,
        is_scheduled: impl FnOnce() -> bool,
    ) -> Option<Nanos> {
        self.waits.check(&mut self.stream, now, is_scheduled)
    }

    /// Handles a peer that accepts no copied message. After some time, TCP sends an empty WRITE to
    /// find out whether the peer is still there, and another one whenever the peer has acknowledged
    /// the last. Returns whether one must be sent now.
    pub fn probe(&mut self, tcp: &Connection, now: Nanos) -> bool {
        let next = now.plus(PROBE_INTERVAL);
        // If the peer has accepted messages since then, the time starts again.
        let at = self.probe_at.filter(|at| now < at.plus(PROBE_INTERVAL)).unwrap_or(next);
        self.probe_at = Some(at);
        if at > now {
            return false;
        }
        self.probe_at = Some(next);
        let quiet = self.stream.has_sent_all() && tcp.acknowledged() == tcp.sent();
        quiet && self.stream.nudge()
    }

    /// Returns the number of messages with a wrong CRC since the last call.
    pub const fn count_crc_errors(&mut self) -> u64 {
        let now = self.stream.counters().crc_errors;
        now.wrapping_sub(std::mem::replace(&mut self.crc_errors, now))
    }
}

/// Lets short messages be copied, and complete when they have been sent.
fn complete_early(tcp: &Connection, stream: &mut Stream) {
    stream.complete_early(u32::try_from(COPIED_SEGMENTS * tcp.mss()).unwrap_or(0));
}
