//! The halves of a QP whose peer is reached by packets.
//!
//! Each half takes its share of the memory that all connections of the adapter have, as the
//! connections of TCP do. A sending half without a share has few outstanding work requests, a
//! receiving half without one holds no early packets. Memory of a fixed size is not counted.

use std::sync::Arc;
use std::time::Duration;

use vrnic_packet::Nanos;
use vrnic_roce::admission::Admission;
use vrnic_roce::congestion::Notifier;
use vrnic_roce::requester::{self, Requester};
use vrnic_roce::responder::unreliable::UnreliableResponder;
use vrnic_roce::responder::{self, Responder, Slot};
use vrnic_roce::wire;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_tcp::{Budget, Rest, Share};

use super::SendRing;
use super::deferred_read::DeferredRead;
use super::outstanding::{OUTSTANDING_MIN, Outstanding};
use super::reading::Reading;
use super::takeover::Takeover;
use super::waiting_frame::WaitingFrame;
use super::window::Window;
use crate::ethernet::{Frame, Heading, Parsed};

/// Time for which a QP without work keeps the memory for its work requests.
const LINGER: Duration = Duration::from_millis(10);
/// Number of slots for frames that are held, and the bytes of their table.
const SLOTS: usize = 256;
const HELD_TABLE: usize = SLOTS * size_of::<Option<Box<WaitingFrame>>>();

/// The path of packets to the peer, and the checks of packets from it.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The headers below the transport's.
    pub path: wire::Path,
    /// The rules by which packets are accepted.
    pub admission: Admission,
}

impl Way {
    /// Returns where the packets go.
    #[must_use]
    pub fn heading(&self) -> Heading {
        Heading::of(&self.path.ethernet, self.path.network.traffic_class)
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Sender {
    /// The protocol engine: sequence numbers, timers, acknowledgements.
    pub engine: Requester,
    /// The path of its packets.
    pub way: Way,
    /// Frames that are sent at the end of the turn.
    pub outbox: Vec<Frame>,
    /// The engine's counts that have been added to the adapter's counters.
    pub counted: requester::Counters,
    /// The outstanding work requests.
    pub outstanding: Outstanding,
    /// The bytes of the READ in progress that the host has taken over, if there were any.
    pub takeover: Option<Box<Takeover>>,
    /// The last answer of this READ, if it waits for them.
    pub(crate) late: Option<Box<DeferredRead>>,
    /// The READ in progress, if a rule for faults looks at the order of its bytes.
    pub(crate) reading: Option<Box<Reading>>,
    /// The memory for more than a few outstanding work requests.
    share: Share,
    /// Bytes of this memory.
    max_bytes: usize,
    /// The time at which this memory is given back, if there is no work.
    idle_at: Option<Nanos>,
}

impl Sender {
    /// Creates a half for the work requests of a send queue. All connections share `memory`.
    #[must_use]
    pub fn new(engine: Requester, way: Way, queue: &SendRing, memory: &Arc<Budget>) -> Self {
        let outstanding = Outstanding::new(queue);
        let max_bytes = outstanding.max_bytes() + Requester::memory(outstanding.room());
        Self {
            engine,
            way,
            outbox: Vec::new(),
            counted: requester::Counters::default(),
            outstanding,
            takeover: None,
            late: None,
            reading: None,
            max_bytes,
            share: Share::of(memory),
            idle_at: None,
        }
    }

    /// Takes over the work requests of a half that has failed, which end with a flush error, and
    /// their memory.
    pub fn succeed(&mut self, failed: &mut Self) {
        self.outstanding.succeed(&failed.outstanding);
        std::mem::swap(&mut self.share, &mut failed.share);
    }

    /// Returns whether another work request may be taken.
    pub fn has_room(&mut self) -> bool {
        let below_min = self.outstanding.len() < OUTSTANDING_MIN;
        self.outstanding.has_room() && (below_min || self.share.grow(self.max_bytes))
    }

    /// Returns the number of bytes that are counted in the memory for connections: those for all
    /// work requests that may be outstanding, or none.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.share.used()
    }

    /// Returns the number of bytes for all work requests that may be outstanding, if there are more
    /// than a few.
    #[must_use]
    pub fn kept(&self) -> usize {
        if self.outstanding.len() > OUTSTANDING_MIN { self.max_bytes } else { 0 }
    }

    /// Returns the time of the next turn, if the half needs one: for an answer that is missing, or
    /// to give memory back.
    pub fn deadline(&mut self, now: impl FnOnce() -> Nanos) -> Option<Nanos> {
        let idle = self.outstanding.is_empty() && self.share.used() > 0;
        // While an answer waits, the engine would miss it.
        let late = self.late.as_ref().map(|late| late.due);
        let wait = late.or_else(|| self.engine.deadline());
        if wait.is_some() || !idle {
            self.idle_at = None;
            return wait;
        }
        self.idle(now())
    }

    /// Gives the memory for more than a few work requests back if there has been no work for some
    /// time. Returns the time at which that time is over.
    fn idle(&mut self, now: Nanos) -> Option<Nanos> {
        let at = *self.idle_at.get_or_insert(now.plus(LINGER));
        if at > now {
            return Some(at);
        }
        self.idle_at = None;
        self.outstanding.shrink();
        self.engine.shrink();
        self.share.give_all_back();
        None
    }

    /// Gives this memory back at once, because the QP has failed, if all work requests have been
    /// flushed. The half sends nothing any more.
    pub fn end(&mut self) {
        if self.share.used() == 0 || !self.outstanding.is_empty() {
            return;
        }
        self.engine.fail();
        while self.engine.next_completion().is_some() {}
        self.engine.shrink();
        self.outstanding.shrink();
        self.share.give_all_back();
        self.idle_at = None;
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    /// The protocol engine: sequence numbers, answers.
    pub engine: Engine,
    /// The path of its answers.
    pub way: Way,
    /// Frames that are sent at the end of the turn.
    pub outbox: Vec<Frame>,
    /// The engine's counts that have been added to the adapter's counters.
    pub counted: responder::Counters,
    /// Decides when the peer is notified of congestion.
    pub notifier: Notifier,
    /// The bytes of a message in progress that the host has taken over, if there were any.
    pub takeover: Option<Box<Takeover>>,
    /// Frames that arrived before a missing one, by slot.
    held: Vec<Option<Box<WaitingFrame>>>,
    /// The number of these frames.
    count: u32,
    /// The memory for these frames.
    share: Share,
    /// The memory for the READs and atomics of the peer.
    resources: Share,
    /// The message in progress, if a rule for faults looks at the order of its bytes.
    pub(crate) window: Option<Box<Window>>,
}

/// The protocol of a receiving half.
#[derive(Debug)]
pub enum Engine {
    /// The engine of a reliable connection.
    Reliable(Box<Responder>),
    /// The engine of an unreliable connection.
    Unreliable(Box<UnreliableResponder>),
}

impl Receiver {
    /// Creates a receiving half. All connections share `memory`.
    #[must_use]
    pub fn new(engine: Engine, way: Way, memory: &Arc<Budget>) -> Self {
        Self {
            engine,
            way,
            outbox: Vec::new(),
            counted: responder::Counters::default(),
            notifier: Notifier::default(),
            takeover: None,
            held: Vec::new(),
            count: 0,
            share: Share::leaving(Rest::Quarter, memory),
            resources: Share::of(memory),
            window: None,
        }
    }

    /// Takes memory for this number of outstanding READs and atomics of the peer. Returns whether
    /// the adapter has it.
    #[must_use]
    pub fn reserve(&mut self, max_dest_rd_atomic: u8) -> bool {
        self.resources.grow(Responder::memory(max_dest_rd_atomic))
    }

    /// Sets the RNR timer code: the time for which the peer waits after a message without a receive
    /// (IBTA 9.7.5.2.8).
    pub fn set_min_rnr_timer(&mut self, code: u8) {
        if let Engine::Reliable(engine) = &mut self.engine {
            engine.set_min_rnr_timer(RnrTimer::new(code));
        }
    }

    /// Sets the number of outstanding READs and atomics that the peer may have. Returns false if
    /// the adapter has no memory for them.
    #[must_use]
    pub fn set_max_dest_rd_atomic(&mut self, count: u8) -> bool {
        let reserved = self.reserve(count);
        if let (Engine::Reliable(engine), true) = (&mut self.engine, reserved) {
            engine.set_max_dest_rd_atomic(count);
        }
        reserved
    }

    /// Returns whether packets must wait until earlier bytes have become visible.
    pub(crate) fn is_closing(&self) -> bool {
        self.window.as_ref().is_some_and(|window| window.closing.is_some())
    }

    /// Returns whether answers of the peer's READs have not been sent.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        matches!(&self.engine, Engine::Reliable(engine) if engine.is_reading())
    }

    /// Stores a copy of the frame of a packet that must be executed after a missing one. Without
    /// memory for it, the peer must send it again. Returns whether it was stored.
    #[must_use]
    pub(crate) fn keep(&mut self, slot: Slot, packet: Parsed<'_>) -> bool {
        let first = if self.held.is_empty() { HELD_TABLE } else { 0 };
        if !self.share.take(first + WaitingFrame::memory(packet.frame)) {
            if let Engine::Reliable(engine) = &mut self.engine {
                engine.lose(slot);
            }
            return false;
        }
        if self.held.is_empty() {
            self.held.resize_with(SLOTS, || None);
        }
        if let Some(place) = self.held.get_mut(slot.index()) {
            self.share.give_back(place.as_deref().map_or(0, WaitingFrame::bytes));
            self.count += u32::from(place.is_none());
            *place = Some(Box::new(WaitingFrame::of(packet)));
        }
        true
    }

    /// Removes the frame in a slot, and returns it.
    pub(crate) fn take(&mut self, slot: Slot) -> Option<Box<WaitingFrame>> {
        let held = self.held.get_mut(slot.index())?.take()?;
        self.share.give_back(held.bytes());
        self.count -= 1;
        Some(held)
    }

    /// Discards the frames that the engine does not need any more.
    pub fn discard(&mut self) {
        let needed = match &self.engine {
            Engine::Reliable(engine) => engine.held_count(),
            Engine::Unreliable(_) => 0,
        };
        if self.count != needed {
            for slot in Slot::all() {
                let Engine::Reliable(engine) = &self.engine else { break };
                if !engine.holds(slot) {
                    self.take(slot);
                }
            }
        }
        if self.count == 0 && !self.held.is_empty() {
            self.held = Vec::new();
            self.share.give_all_back();
        }
    }

    /// Returns the number of bytes that are counted in the memory for connections.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.share.used() + self.resources.used()
    }

    /// Returns the number of bytes of the frames that are stored, and of the peer's READs and
    /// atomics if it has this many outstanding.
    #[must_use]
    pub fn kept(&self, max_dest_rd_atomic: u8) -> usize {
        let frames: usize = self.held.iter().flatten().map(|frame| frame.bytes()).sum();
        let table = if self.held.is_empty() { 0 } else { HELD_TABLE };
        table + frames + Responder::memory(max_dest_rd_atomic)
    }

    /// Returns whether frames are stored.
    #[must_use]
    pub const fn stores(&self) -> bool {
        !self.held.is_empty()
    }
}
