//! The halves of a QP whose peer is not reached by memory but by packets.

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

/// The way of packets to the peer, and which packets come from it.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The headers below the transport's.
    pub path: wire::Path,
    /// The packets that the QP looks at.
    pub admission: Admission,
}

/// The sending half.
#[derive(Debug)]
pub struct Sender {
    /// Sequence numbers, timers, acknowledgements.
    pub engine: Requester,
    /// The way of its packets.
    pub way: Way,
    /// Frames that leave at the end of the turn.
    pub outbox: Vec<Frame>,
    /// The part of the engine's counts that the adapter's counters have.
    pub counted: requester::Counters,
    /// The work requests that the engine has.
    pub outstanding: Outstanding,
}

impl Sender {
    /// Makes a half for the work requests of a send queue.
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
    /// Sequence numbers, answers.
    pub engine: Engine,
    /// The way of its answers.
    pub way: Way,
    /// Frames that leave at the end of the turn.
    pub outbox: Vec<Frame>,
    /// The part of the engine's counts that the adapter's counters have.
    pub counted: responder::Counters,
    /// When the peer is told of marks of congestion.
    pub notifier: Notifier,
    /// Frames that came before one that is missing, by slot.
    held: Vec<Option<Frame>>,
}

/// The protocol of a receiving half.
#[derive(Debug)]
pub enum Engine {
    /// Of a reliable connection.
    Reliable(Box<Responder>),
    /// Of an unreliable one.
    Unreliable(Box<UnreliableResponder>),
}

impl Receiver {
    /// Makes a half.
    #[must_use]
    pub fn new(engine: Engine, way: Way) -> Self {
        let counted = responder::Counters::default();
        let notifier = Notifier::default();
        Self { engine, way, outbox: Vec::new(), counted, notifier, held: Vec::new() }
    }

    /// Sets the code of the time for which the peer waits after a message without a receive (IBTA
    /// 9.7.5.2.8).
    pub fn set_min_rnr_timer(&mut self, code: u8) {
        if let Engine::Reliable(engine) = &mut self.engine {
            engine.set_min_rnr_timer(RnrTimer::new(code));
        }
    }

    /// Keeps the frame of a packet that another has to come before.
    pub fn keep(&mut self, slot: Slot, frame: Frame) {
        let at = slot.index();
        if self.held.len() <= at {
            // At most 256 slots.
            self.held.resize_with(at + 1, || None);
        }
        if let Some(place) = self.held.get_mut(at) {
            *place = Some(frame);
        }
    }

    /// Takes the frame that was kept in a slot.
    pub fn take(&mut self, slot: Slot) -> Option<Frame> {
        self.held.get_mut(slot.index())?.take()
    }
}
