//! The state of a QP whose TCP connection carries bytes instead of messages (TOE).
//!
//! | module | contents |
//! | --- | --- |
//! | [`sends`] | the places of the outstanding sends in the stream |
//! | [`receives`] | the progress of the receives in the stream |
//! | [`switch`] | the transition to RDMA |
//! | [`iscsi`] | the iSCSI mode: PDUs instead of bytes |

pub mod iscsi;
pub mod receives;
pub mod sends;
pub mod switch;

use std::sync::Arc;
use std::time::Duration;

use vrnic_abi::connection::{ConnectionStatus, Ending, RdmaState, Stage};
use vrnic_packet::Nanos;
use vrnic_tcp::connection::State as TcpState;
use vrnic_tcp::{Budget, Connection, Share};

use self::iscsi::Session;
use self::receives::Receives;
use self::sends::Sends;
use self::switch::{Progress, Switch};
use super::SendRing;
use super::ends::Ends;
use super::lifecycle::Lifecycle;
use super::outstanding::{OUTSTANDING_MIN, Outstanding};
use crate::ethernet::Frame;
use crate::host::Host;

/// Time for which a connection without work keeps its buffers.
const LINGER: Duration = Duration::from_millis(10);

/// The connection of a QP.
#[derive(Debug)]
pub struct Toe<H: Host> {
    /// The TCP engine.
    pub tcp: Connection,
    /// The addresses of both ends.
    pub ends: Ends<H>,
    /// The outstanding work requests.
    pub outstanding: Outstanding,
    /// Their places in the stream.
    pub sends: Sends,
    /// The progress of the receives.
    pub receives: Receives,
    /// Its stages, as reported to the driver.
    pub life: Lifecycle,
    /// Frames that are sent at the end of the turn.
    pub outbox: Vec<Frame>,
    /// True if both directions are closed.
    pub closed: bool,
    /// The transition to RDMA, if the program has begun one.
    pub switch: Option<Box<Switch<H>>>,
    /// The iSCSI mode, if the consumer has set it.
    pub session: Option<Box<Session>>,
    /// The share of the memory for connections that the outstanding work requests may take.
    share: Share,
    /// True if there were turns since the connection was idle.
    used: bool,
    /// The time at which the buffers are given back, if the connection has no work.
    idle_at: Option<Nanos>,
    /// The counts that have been added to the adapter's counters.
    counted: Counted,
}

/// Events of a connection that the adapter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Segments that were retransmitted.
    pub resent: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
}

impl<H: Host> Toe<H> {
    /// Creates the connection of a QP with this send queue. Buffers take their memory from
    /// `memory`.
    #[must_use]
    pub fn new(
        mut tcp: Connection,
        ends: Ends<H>,
        receives: Receives,
        sends: Sends,
        queue: &SendRing,
        memory: &Arc<Budget>,
    ) -> Self {
        tcp.use_budget(memory);
        let mut life = Lifecycle::default();
        life.open();
        Self {
            tcp,
            ends,
            outstanding: Outstanding::new(queue),
            sends,
            receives,
            life,
            outbox: Vec::new(),
            closed: false,
            switch: None,
            session: None,
            share: Share::of(memory),
            used: false,
            idle_at: None,
            counted: Counted::default(),
        }
    }

    /// Returns whether another work request may be taken. More than a few at a time need a part of
    /// the memory for connections.
    pub fn has_room(&mut self) -> bool {
        let below_min = self.outstanding.len() < OUTSTANDING_MIN;
        self.outstanding.has_room()
            && (below_min || self.share.grow(self.outstanding.max_bytes() + Sends::MAX_BYTES))
    }

    /// Returns the number of bytes of memory that it keeps while it has no work, apart from its own
    /// fixed size. They are counted in the memory for connections.
    #[must_use]
    pub fn kept(&self) -> usize {
        let received = self.switch.as_ref().map_or(0, |switch| switch.received.len());
        let session = self.session.as_ref().map_or(0, |_| Session::MAX_BYTES);
        self.tcp.kept() + self.receives.kept() + received + session
    }

    /// Returns the state of the connection.
    #[must_use]
    pub fn status(&self) -> ConnectionStatus {
        let bare = self.life.bare_status();
        let mut status = ConnectionStatus { state: self.state() as u8, ..bare };
        if let Some(session) = &self.session {
            session.describe(&mut status);
        }
        status
    }

    /// Returns the state as the driver sees it. One direction may be closed for any time.
    fn state(&self) -> RdmaState {
        match (self.life.ending(), self.tcp.state()) {
            (Ending::Graceful, _) => RdmaState::Idle,
            (Ending::None, TcpState::Established | TcpState::CloseWait) => RdmaState::Rts,
            (Ending::None, TcpState::Closed) => RdmaState::Error,
            (Ending::None, _) => RdmaState::Closing,
            _ => RdmaState::Error,
        }
    }

    /// Returns whether TCP has ended, or only answers late segments.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.tcp.state(), TcpState::TimeWait | TcpState::Closed)
    }

    /// Returns whether another QP gets the connection at the end of this turn.
    #[must_use]
    pub fn switches(&self) -> bool {
        self.switch.as_ref().is_some_and(|switch| switch.progress == Progress::Ready)
    }

    /// Records that the connection has work.
    pub const fn busy(&mut self) {
        (self.used, self.idle_at) = (true, None);
    }

    /// Gives the memory of buffers back if the connection has had no work for some time. Returns
    /// the time at which that time is over.
    pub fn idle(&mut self, now: Nanos) -> Option<Nanos> {
        if !self.used {
            return None;
        }
        let at = *self.idle_at.get_or_insert(now.plus(LINGER));
        if at > now && !self.has_ended() {
            return Some(at);
        }
        self.tcp.shrink();
        self.outstanding.shrink();
        if self.outstanding.is_empty() {
            self.sends.shrink();
            self.share.give_all_back();
        }
        self.outbox = Vec::new();
        (self.used, self.idle_at) = (false, None);
        None
    }

    /// Returns the counts since the last call.
    pub fn count(&mut self) -> Counted {
        let vrnic_tcp::connection::Counters { send, .. } = self.tcp.counters();
        let now = Counted { resent: send.resent, timeouts: send.timeouts };
        let before = std::mem::replace(&mut self.counted, now);
        Counted {
            resent: now.resent.wrapping_sub(before.resent),
            timeouts: now.timeouts.wrapping_sub(before.timeouts),
        }
    }

    /// Handles the end of TCP.
    pub fn gone(&mut self) {
        self.life.gone();
        self.ends.leave_frames();
    }

    /// Gives up what a connection whose TCP has ended no longer needs.
    pub fn leave(&mut self) {
        if self.life.stage() == Stage::Gone {
            self.ends.leave_addresses();
        }
    }

    /// Ends TCP at once. Returns the frame that resets the peer's end, if that is still open.
    pub fn hang_up(&mut self, now: Nanos) -> Option<Frame> {
        self.ends.hang_up(&mut self.tcp, now)
    }
}
