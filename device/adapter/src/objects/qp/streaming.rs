//! The state of a QP whose messages travel in a TCP connection (iWARP): the connection, the stream
//! of messages in it, and its work requests.

use std::sync::Arc;
use std::time::Duration;

use vrnic_abi::connection::{ConnectionStatus, Role, Stage};
use vrnic_abi::qp::{NO_VLAN, State};
use vrnic_iwarp::Stream;
use vrnic_iwarp::wire::terminate::Cause;
use vrnic_packet::ethernet::vlan_of;
use vrnic_packet::ip::Addresses;
use vrnic_packet::{Mtu, Nanos};
use vrnic_tcp::connection::State as TcpState;
use vrnic_tcp::wire::frame::Path;
use vrnic_tcp::{Budget, Connection, Share};

use super::SendRing;
use super::ends::Ends;
use super::handed::Moves;
use super::lifecycle::Lifecycle;
use super::outstanding::{OUTSTANDING_MIN, Outstanding};
use super::peer::WeakPeer;
use super::route::Route;
use super::switched::Switched;
use super::waits::Waits;
use crate::ethernet::Frame;
use crate::host::Host;

/// Time limit for the peer's reply, and for the first message of an initiator.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a graceful end, including the messages before it. After that, the connection is
/// reset.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the end of a connection whose QP is in the error state.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The memory that the messages of more than a few outstanding work requests need.
const MESSAGES: usize = 96 << 10;

/// Number of segments of the longest messages that are copied for a peer that holds
/// acknowledgements back. Linux acknowledges longer ones at once.
const COPIED_SEGMENTS: usize = 2;

/// Time between two probes of a peer that accepts no copied message.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);

/// Time for which a connection without work keeps its buffers.
const LINGER: Duration = Duration::from_millis(10);

/// Times from the opening of a connection to the nudges of a peer that has sent nothing.
const NUDGE_TIMES: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// The path of the messages that a QP with a connection sends.
#[derive(Debug, Default)]
pub enum Pairing<H: Host> {
    /// It is decided when the connection has opened.
    #[default]
    Undecided,
    /// They are sent through the connection.
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

/// The state of a connection in the receiving half of its QP.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamReceiver {
    /// The reason for which a message that was copied has been refused, until the connection
    /// reports it.
    pub refused: Option<Cause>,
}

/// The connection of a QP.
#[derive(Debug)]
pub struct Streaming<H: Host> {
    /// The TCP engine.
    pub tcp: Connection,
    /// The stream of messages.
    pub stream: Stream,
    /// The bytes that the connection has carried before its messages.
    pub switched: Switched,
    /// The addresses of both ends.
    pub ends: Ends<H>,
    /// The outstanding work requests.
    pub outstanding: Outstanding,
    /// The bytes that the host moves for the connection.
    pub moves: Moves,
    /// Frames that are sent at the end of the turn.
    pub outbox: Vec<Frame>,
    /// True if there were turns since the connection was idle.
    used: bool,
    /// Its stages, as reported to the driver.
    pub life: Lifecycle,
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
    /// The time at which the buffers are given back, if the connection has no work.
    idle_at: Option<Nanos>,
    /// The share of the memory for connections that the outstanding work requests may take.
    share: Share,
    /// The time of the next probe of a peer that accepts no copied message, if it has refused one.
    probe_at: Option<Nanos>,
    /// The counts that have been added to the adapter's counters.
    counted: Counted,
}

/// The nudges of a peer.
#[derive(Clone, Copy, Debug, Default)]
struct Nudges {
    /// The time at which the connection opened, if it has.
    since: Option<Nanos>,
    /// The number of nudges that were sent.
    count: usize,
}

/// Events of a connection that the adapter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Segments that were retransmitted.
    pub resent: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Messages with a wrong CRC.
    pub crc_errors: u64,
}

/// TCP and the messages of a connection, and the time at which the adapter takes it over.
#[derive(Debug)]
pub(crate) struct Takeover<'a, H: Host> {
    /// The time.
    pub now: Nanos,
    /// The role of this end.
    pub role: Role,
    /// TCP.
    pub tcp: Connection,
    /// The messages.
    pub stream: Stream,
    /// The addresses of both ends.
    pub ends: Ends<H>,
    /// The memory for the buffers of all connections of the adapter.
    pub memory: &'a Arc<Budget>,
}

impl<H: Host> Streaming<H> {
    /// Creates the connection of a QP.
    #[must_use]
    pub(crate) fn new(mut takeover: Takeover<'_, H>, queue: &SendRing) -> Self {
        takeover.tcp.use_budget(takeover.memory);
        Self::with_budget(takeover, queue)
    }

    /// Creates the connection of a QP whose TCP takes its memory from that of all connections.
    fn with_budget(takeover: Takeover<'_, H>, queue: &SendRing) -> Self {
        let Takeover { now, role, tcp, mut stream, ends, memory } = takeover;
        stream.use_budget(memory);
        let share = Share::of(memory);
        // Every adapter asks for a first message of the initiator, so this peer is none. It may
        // hold acknowledgements back.
        if matches!(role, Role::Responder)
            && stream.agreement().is_some_and(|it| it.first.is_none())
        {
            complete_early(&tcp, &mut stream);
        }
        let opening = match role {
            Role::Initiator => REPLY_TIMEOUT,
            Role::Responder | Role::Stream => FIRST_MESSAGE_TIMEOUT,
        };
        Self {
            tcp,
            stream,
            switched: Switched::default(),
            ends,
            outstanding: Outstanding::new(queue),
            moves: Moves::default(),
            outbox: Vec::new(),
            used: false,
            life: Lifecycle::default(),
            open_by: now.plus(opening),
            close_by: None,
            end_by: None,
            leaves: false,
            waits: Waits::default(),
            nudges: matches!(role, Role::Initiator).then(Nudges::default),
            pairing: Pairing::Undecided,
            pair_by: None,
            dormant: false,
            idle_at: None,
            share,
            probe_at: None,
            counted: Counted::default(),
        }
    }

    /// Creates the connection of a QP on which bytes have been carried before. Messages always
    /// travel in it: another QP of this daemon may not have come so far.
    #[must_use]
    pub(crate) fn continuing(
        takeover: Takeover<'_, H>,
        switched: Switched,
        queue: &SendRing,
    ) -> Self {
        Self { switched, pairing: Pairing::Apart, ..Self::with_budget(takeover, queue) }
    }

    /// Makes FPDUs as long as a segment is now. The path may carry less than before, or as much as
    /// at first again.
    pub fn fit_path(&mut self) {
        self.stream.set_emss(u32::try_from(self.tcp.mss()).unwrap_or(u32::MAX));
    }

    /// Records that there was a turn, so that [`Self::idle`] has buffers to give back.
    pub const fn mark_used(&mut self) {
        self.used = true;
    }

    /// Returns whether another work request may be taken. More than a few at a time need a part of
    /// the memory for connections.
    pub fn has_room(&mut self) -> bool {
        let below_min = self.outstanding.len() < OUTSTANDING_MIN;
        let work = self.outstanding.max_bytes() + MESSAGES;
        self.outstanding.has_room() && (below_min || self.share.grow(work))
    }

    /// Gives the memory of buffers back if the connection has had no work for some time, or at once
    /// if it will not have any (`now` is `None`). Returns the time at which that time is over.
    pub fn idle(&mut self, now: Option<Nanos>) -> Option<Nanos> {
        if !self.used {
            return None;
        }
        if let Some(now) = now {
            let at = *self.idle_at.get_or_insert(now.plus(LINGER));
            if at > now {
                return Some(at);
            }
        }
        self.busy();
        self.tcp.shrink();
        self.stream.shrink();
        self.outstanding.shrink();
        if self.outstanding.is_empty() {
            self.share.give_all_back();
        }
        self.outbox = Vec::new();
        self.used = false;
        None
    }

    /// Returns the number of bytes of memory that it keeps while it has no work, apart from its own
    /// fixed size. They are counted in the memory for connections.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.tcp.kept() + self.stream.kept() + self.switched.kept()
    }

    /// Completes short messages without their acknowledgement from now on, if the peer holds
    /// acknowledgements back.
    pub fn watch_acknowledgements(&mut self) {
        if self.tcp.delays_acknowledgements() {
            complete_early(&self.tcp, &mut self.stream);
        }
    }

    /// Records that the connection has work.
    pub const fn busy(&mut self) {
        self.idle_at = None;
    }

    /// Returns the state of the connection.
    #[must_use]
    pub fn status(&self) -> ConnectionStatus {
        self.life.status(&self.stream)
    }

    /// Returns the time by which the connection must open, close or end, if the QP is in this
    /// state.
    pub fn limit(&mut self, state: State, now: Nanos) -> Option<Nanos> {
        let ended = matches!(self.tcp.state(), TcpState::TimeWait | TcpState::Closed);
        match (state, self.life.stage()) {
            _ if ended => None,
            (State::Err, _) => Some(*self.end_by.get_or_insert(now.plus(END_TIMEOUT))),
            (State::Sqd, _) => Some(*self.close_by.get_or_insert(now.plus(CLOSE_TIMEOUT))),
            (_, Stage::Opening) => Some(self.open_by),
            _ => None,
        }
    }

    /// Nudges a peer that has sent nothing since the connection opened, if that is due. Returns the
    /// time of the next nudge. Linux siw does not notice messages that arrive while it accepts a
    /// connection until another one arrives (`siw_cm.c`, `siw_accept`).
    pub fn nudge(&mut self, now: Nanos) -> Option<Nanos> {
        let nudges = self.nudges.as_mut()?;
        if self.life.stage() != Stage::Open || self.stream.counters().fpdus_received > 0 {
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

    /// Records that the peer needs no nudges and no probes, because messages are copied to its
    /// memory.
    pub const fn needs_no_probes(&mut self) {
        self.nudges = None;
        self.tcp.stop_keepalive();
    }

    /// Returns the largest path MTU for which a segment has room.
    #[must_use]
    pub fn path_mtu(&self) -> Mtu {
        Mtu::within(self.ends.mss.into())
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
    pub fn probe(&mut self, now: Nanos) -> bool {
        let next = now.plus(PROBE_INTERVAL);
        // If the peer has accepted messages since then, the time starts again.
        let at = self.probe_at.filter(|at| now < at.plus(PROBE_INTERVAL)).unwrap_or(next);
        self.probe_at = Some(at);
        if at > now {
            return false;
        }
        self.probe_at = Some(next);
        let quiet = self.stream.has_sent_all() && self.tcp.acknowledged() == self.tcp.sent();
        quiet && self.stream.nudge()
    }

    /// Returns the counts since the last call.
    pub fn count(&mut self) -> Counted {
        let vrnic_tcp::connection::Counters { send, .. } = self.tcp.counters();
        let crc_errors = self.stream.counters().crc_errors;
        let now = Counted { resent: send.resent, timeouts: send.timeouts, crc_errors };
        let before = std::mem::replace(&mut self.counted, now);
        Counted {
            resent: now.resent.wrapping_sub(before.resent),
            timeouts: now.timeouts.wrapping_sub(before.timeouts),
            crc_errors: now.crc_errors.wrapping_sub(before.crc_errors),
        }
    }

    /// Returns the route of the messages that are copied.
    pub(crate) fn route(&self) -> Option<Route> {
        let Path { from, to, vlan, source, destination, .. } = self.ends.path;
        let addresses = Addresses::new(source.ip(), destination.ip())?;
        let vlan = vlan.and_then(vlan_of).unwrap_or(NO_VLAN);
        Some(Route { from, to, addresses, vlan })
    }

    /// Handles the end of TCP. Further frames go to the guest's network card.
    pub fn gone(&mut self) {
        self.life.gone();
        self.ends.leave_frames();
    }

    /// Gives up the MACs of a connection whose TCP has ended, when its last frame has been sent.
    pub fn leave_addresses(&mut self) {
        if self.life.stage() == Stage::Gone {
            self.ends.leave_addresses();
        }
    }

    /// Ends TCP at once. Returns the frame that resets the peer's end, if that is still open.
    pub fn hang_up(&mut self, now: Nanos) -> Option<Frame> {
        self.ends.hang_up(&mut self.tcp, now)
    }
}

/// Lets short messages be copied, and complete when they have been sent.
fn complete_early(tcp: &Connection, stream: &mut Stream) {
    stream.complete_early(u32::try_from(COPIED_SEGMENTS * tcp.mss()).unwrap_or(0));
}
