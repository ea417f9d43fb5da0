//! The halves of a QP whose peer is not reached by memory but by packets.

use std::collections::VecDeque;

use vrnic_abi::Key;
use vrnic_abi::cq::{Opcode, Status};
use vrnic_roce::admission::Admission;
use vrnic_roce::congestion::Notifier;
use vrnic_roce::requester::{self, Requester};
use vrnic_roce::responder::unreliable::UnreliableResponder;
use vrnic_roce::responder::{self, Responder, Slot};
use vrnic_roce::wire;
use vrnic_roce::wire::syndrome::RnrTimer;

use super::SendRing;
use crate::ethernet::Frame;
use crate::requests::wqe::SendWqe;

/// Work requests that may be outstanding at once. The rest stays in the guest's ring.
pub const OUTSTANDING: u32 = 128;

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
    posted: VecDeque<Posted>,
    /// Private copies of the WQEs that are posted, by index.
    raws: Box<[u8]>,
    stride: usize,
}

/// A work request that was taken from the guest's ring and is not completed.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    /// The work request.
    pub send: SendWqe,
    /// The user's name for it, in the completion.
    pub opcode: Opcode,
    /// The key that it gives to the peer, and its place in the message.
    pub command: Option<(u64, Key)>,
    /// The end of the work request, once it is known.
    pub end: Option<End>,
}

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was executed.
    Done,
    /// It has failed: status, and the number of the check that failed.
    Failed(Status, u32),
    /// It was a request about a key that was refused.
    Refused(u32),
    /// It was outstanding when the send queue failed, and the queue works again.
    Flushed,
}

impl Sender {
    /// Makes a half for a send queue.
    #[must_use]
    pub fn new(engine: Requester, way: Way, queue: &SendRing) -> Self {
        let (room, stride) = (queue.size().min(OUTSTANDING) as usize, queue.stride());
        Self {
            engine,
            way,
            outbox: Vec::new(),
            counted: requester::Counters::default(),
            posted: VecDeque::with_capacity(room),
            raws: vec![0; room * stride].into_boxed_slice(),
            stride,
        }
    }

    /// Takes over the work requests of a half that has failed. They end with a flush error.
    pub fn succeed(&mut self, failed: &Self) {
        self.posted.clone_from(&failed.posted);
        for posted in &mut self.posted {
            posted.end = Some(End::Flushed);
        }
    }

    /// Returns whether nothing is outstanding.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// The number of work requests that are outstanding.
    #[must_use]
    pub fn len(&self) -> usize {
        self.posted.len()
    }

    /// Returns whether another work request may be taken.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.posted.len() < self.room()
    }

    /// Returns whether a work request has failed: none may be taken behind it.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.posted
            .back()
            .is_some_and(|last| !matches!(last.end, None | Some(End::Done | End::Flushed)))
    }

    /// The number of work requests that may be outstanding.
    fn room(&self) -> usize {
        self.raws.len() / self.stride.max(1)
    }

    /// Appends a work request, whose WQE is `raw`.
    pub fn post(&mut self, posted: Posted, raw: &[u8]) {
        let at = self.place(posted.send.index);
        if let Some(kept) = self.raws.get_mut(at..at + raw.len().min(self.stride)) {
            kept.copy_from_slice(raw.get(..kept.len()).unwrap_or_default());
        }
        self.posted.push_back(posted);
    }

    /// The work request that the engine calls `id`, and its WQE.
    #[must_use]
    pub fn find(&self, id: u64) -> Option<(&Posted, &[u8])> {
        // The engine's name of a work request is its index. Indices follow one another.
        let first = self.posted.front()?.send.index;
        // CAST: an index has 32 bits.
        let posted = self.posted.get((id as u32).wrapping_sub(first) as usize)?;
        let at = self.place(posted.send.index);
        Some((posted, self.raws.get(at..at + self.stride)?))
    }

    /// Notes the end of the work request that the engine calls `id`.
    pub fn end(&mut self, id: u64, end: End) {
        let Some(first) = self.posted.front().map(|posted| posted.send.index) else { return };
        // CAST: as above.
        if let Some(posted) = self.posted.get_mut((id as u32).wrapping_sub(first) as usize) {
            posted.end.get_or_insert(end);
        }
    }

    /// Takes the oldest work request, if it has ended.
    pub fn pop_ended(&mut self) -> Option<(Posted, End)> {
        let end = self.posted.front()?.end?;
        self.posted.pop_front().map(|posted| (posted, end))
    }

    /// Takes the oldest work request of a queue that is flushed.
    pub fn pop(&mut self) -> Option<Posted> {
        self.posted.pop_front()
    }

    fn place(&self, index: u32) -> usize {
        index as usize % self.room().max(1) * self.stride
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
