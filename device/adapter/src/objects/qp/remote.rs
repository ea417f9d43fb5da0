//! The halves of a QP whose peer is reached by packets.

use vrnic_roce::admission::Admission;
use vrnic_roce::congestion::Notifier;
use vrnic_roce::requester::{self, Requester};
use vrnic_roce::responder::unreliable::UnreliableResponder;
use vrnic_roce::responder::{self, Responder, Slot};
use vrnic_roce::wire;
use vrnic_roce::wire::syndrome::RnrTimer;

use super::SendRing;
use super::outstanding::Outstanding;
use crate::ethernet::Frame;

/// The path of packets to the peer, and the checks of packets from it.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The headers below the transport's.
    pub path: wire::Path,
    /// The rules by which packets are accepted.
    pub admission: Admission,
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
}

impl Sender {
    /// Creates a half for the work requests of a send queue.
    #[must_use]
    pub fn new(engine: Requester, way: Way, queue: &SendRing) -> Self {
        Self {
            engine,
            way,
            outbox: Vec::new(),
            counted: requester::Counters::default(),
            outstanding: Outstanding::new(queue),
        }
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
    /// Frames that arrived before a missing one, by slot.
    held: Vec<Option<Frame>>,
}

/// The protocol of a receiving half.
#[derive(Debug)]
pub enum Engine {
    /// That of a reliable connection.
    Reliable(Box<Responder>),
    /// That of an unreliable connection.
    Unreliable(Box<UnreliableResponder>),
}

impl Receiver {
    /// Creates a receiving half.
    #[must_use]
    pub fn new(engine: Engine, way: Way) -> Self {
        let counted = responder::Counters::default();
        let notifier = Notifier::default();
        Self { engine, way, outbox: Vec::new(), counted, notifier, held: Vec::new() }
    }

    /// Sets the RNR timer code: the time for which the peer waits after a message without a receive
    /// (IBTA 9.7.5.2.8).
    pub fn set_min_rnr_timer(&mut self, code: u8) {
        if let Engine::Reliable(engine) = &mut self.engine {
            engine.set_min_rnr_timer(RnrTimer::new(code));
        }
    }

    /// Stores the frame of a packet that must be executed after a missing one.
    pub fn keep(&mut self, slot: Slot, frame: Frame) {
        let at = slot.index();
        if self.held.len() <= at {
            // There are at most 256 slots.
            self.held.resize_with(at + 1, || None);
        }
        if let Some(place) = self.held.get_mut(at) {
            *place = Some(frame);
        }
    }

    /// Removes the frame in a slot, and returns it.
    pub fn take(&mut self, slot: Slot) -> Option<Frame> {
        self.held.get_mut(slot.index())?.take()
    }
}
