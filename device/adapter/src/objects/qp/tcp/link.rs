//! A TCP connection of a QP, whatever it carries: TCP, the ends below it, its frames, the
//! outstanding work requests, and the stages that the driver sees.

use std::sync::Arc;
use std::time::Duration;

use vrnic_abi::connection::Stage;
use vrnic_packet::Nanos;
use vrnic_tcp::connection::State;
use vrnic_tcp::wire::frame::Path;
use vrnic_tcp::{Budget, Connection, Share};

use crate::ethernet::Frame;
use crate::host::Host;
use crate::objects::qp::SendRing;
use crate::objects::qp::outstanding::{OUTSTANDING_MIN, Outstanding};
use crate::objects::qp::tcp::ends::Ends;
use crate::objects::qp::tcp::lifecycle::Lifecycle;
use crate::stats::{Counter, Counters};

/// Time for which a connection without work keeps its buffers.
const LINGER: Duration = Duration::from_millis(10);

/// The connection of a QP.
#[derive(Debug)]
pub struct Link<H: Host> {
    tcp: Connection,
    ends: Ends<H>,
    outstanding: Outstanding,
    life: Lifecycle,
    /// Frames that are sent at the end of the turn.
    outbox: Vec<Frame>,
    /// The share of the memory for connections that the outstanding work requests may take.
    share: Share,
    /// True if there were turns since the connection was idle.
    used: bool,
    /// The time at which the buffers are given back, if the connection has no work.
    idle_at: Option<Nanos>,
    /// The numbers of retransmitted segments, and of retransmission time-outs, that have been added
    /// to the adapter's counters.
    counted: [u64; 2],
}

impl<H: Host> Link<H> {
    /// Creates the connection of a QP with this send queue. Buffers take their memory from
    /// `memory`.
    #[must_use]
    pub fn new(mut tcp: Connection, ends: Ends<H>, queue: &SendRing, memory: &Arc<Budget>) -> Self {
        tcp.use_budget(memory);
        Self {
            tcp,
            ends,
            outstanding: Outstanding::new(queue),
            life: Lifecycle::default(),
            outbox: Vec::new(),
            share: Share::of(memory),
            used: false,
            idle_at: None,
            counted: [0; 2],
        }
    }

    /// Returns the connection as that of another QP with this send queue, which has no work
    /// requests yet.
    #[must_use]
    pub fn of_next(self, queue: &SendRing, memory: &Arc<Budget>) -> Self {
        let (outstanding, share) = (Outstanding::new(queue), Share::of(memory));
        Self { outstanding, share, life: Lifecycle::default(), ..self }
    }

    /// Returns the state of TCP.
    #[must_use]
    pub const fn tcp(&self) -> &Connection {
        &self.tcp
    }

    /// Returns TCP, to change it.
    pub const fn tcp_mut(&mut self) -> &mut Connection {
        &mut self.tcp
    }

    /// Returns the ends below TCP.
    #[must_use]
    pub const fn ends(&self) -> &Ends<H> {
        &self.ends
    }

    /// Returns the ends below TCP, to change them.
    pub const fn ends_mut(&mut self) -> &mut Ends<H> {
        &mut self.ends
    }

    /// Returns the outstanding work requests.
    #[must_use]
    pub const fn outstanding(&self) -> &Outstanding {
        &self.outstanding
    }

    /// Returns the outstanding work requests, to change them.
    pub const fn outstanding_mut(&mut self) -> &mut Outstanding {
        &mut self.outstanding
    }

    /// Returns TCP, and the work requests whose memory it reads.
    pub const fn io(&mut self) -> (&mut Connection, &Outstanding) {
        (&mut self.tcp, &self.outstanding)
    }

    /// Returns the number of bytes that TCP and the outstanding work requests have taken from the
    /// memory for connections.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.tcp.charged() + self.share.used()
    }

    /// Returns the stages of the connection, as reported to the driver.
    #[must_use]
    pub const fn life(&self) -> &Lifecycle {
        &self.life
    }

    /// Returns the stages of the connection, to change them.
    pub const fn life_mut(&mut self) -> &mut Lifecycle {
        &mut self.life
    }

    /// Returns the frames that are sent at the end of the turn.
    pub const fn outbox(&mut self) -> &mut Vec<Frame> {
        &mut self.outbox
    }

    /// Queues the frame that `build` makes, if it makes one. `build` gets the headers below TCP,
    /// and the identification of the last packet.
    pub fn queue(&mut self, build: impl FnOnce(&Path, &mut u16) -> Option<Frame>) {
        self.outbox.extend(build(&self.ends.path, &mut self.ends.id));
    }

    /// Returns whether another work request may be taken. More than a few at a time need a part of
    /// the memory for connections; what TCP carries for them takes at most `bytes` of it.
    pub fn has_room(&mut self, bytes: usize) -> bool {
        let below_min = self.outstanding.len() < OUTSTANDING_MIN;
        self.outstanding.has_room()
            && (below_min || self.share.grow(self.outstanding.max_bytes() + bytes))
    }

    /// Returns whether TCP has ended, or only answers late segments.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.tcp.state(), State::TimeWait | State::Closed)
    }

    /// Records that there was a turn, so that [`Self::idle`] has buffers to give back.
    pub const fn mark_used(&mut self) {
        self.used = true;
    }

    /// Records that the connection has work.
    pub const fn busy(&mut self) {
        self.idle_at = None;
    }

    /// Gives the memory of buffers back if the connection has had no work for some time, or at once
    /// if it will not have any (`now` is `None`). `shrink` does so for what TCP carries. Returns
    /// the time at which that time is over.
    pub fn idle(&mut self, now: Option<Nanos>, shrink: impl FnOnce()) -> Option<Nanos> {
        if !self.used {
            return None;
        }
        if let Some(now) = now {
            let at = *self.idle_at.get_or_insert(now.plus(LINGER));
            if at > now {
                return Some(at);
            }
        }
        self.tcp.shrink();
        self.outstanding.shrink();
        if self.outstanding.is_empty() {
            self.share.give_all_back();
        }
        shrink();
        self.outbox = Vec::new();
        (self.used, self.idle_at) = (false, None);
        None
    }

    /// Adds what TCP has counted since the last call to the counters of the adapter.
    pub fn count(&mut self, stats: &Counters) {
        let send = self.tcp.counters().send;
        let now = [send.resent, send.timeouts];
        let before = std::mem::replace(&mut self.counted, now);
        if now != before {
            stats.add(Counter::TcpRetransSegs, now[0].wrapping_sub(before[0]));
            stats.add(Counter::TcpTimeouts, now[1].wrapping_sub(before[1]));
        }
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
