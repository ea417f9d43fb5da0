//! Work requests that were taken off a send queue and are not completed.

use std::collections::VecDeque;

use vrnic_abi::Key;
use vrnic_abi::cq::Opcode;

use super::SendRing;
use crate::memory::tpt::Denied;
use crate::objects::completion::WrError;
use crate::requests::wqe::{Malformed, SendWqe};

/// Maximum number of outstanding work requests. The others stay in the guest's ring.
pub const OUTSTANDING: u32 = 128;
/// Number of outstanding work requests for which there is memory at first.
pub const OUTSTANDING_MIN: usize = 8;

/// The outstanding work requests of a QP, in order, with copies of their WQEs.
#[derive(Debug)]
pub struct Outstanding {
    posted: VecDeque<Posted>,
    /// Private copies of the WQEs, by index. There is room for none, for a few, or for all.
    raws: Vec<u8>,
    /// Maximum number of outstanding work requests.
    room: usize,
    stride: usize,
}

/// A work request that was taken from the guest's ring and is not completed.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    /// The work request.
    pub send: SendWqe,
    /// The opcode of its completion.
    pub opcode: Opcode,
    /// The key that it gives to the peer, if it is a command.
    pub command: Option<CarriedKey>,
    /// The end of the work request, if it has ended.
    pub end: Option<End>,
}

impl Posted {
    /// Returns an entry that cannot be parsed. It fails when all before it have ended.
    #[must_use]
    pub fn malformed(&Malformed { id, opcode, status }: &Malformed) -> Self {
        let send = SendWqe { wr_id: id.wr_id, index: id.index, ..SendWqe::EMPTY };
        Self { send, opcode, command: None, end: Some(End::Failed(status.into())) }
    }
}

/// A key in the message of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedKey {
    /// The key that the work request carries.
    pub key: Key,
    /// Offset of its place in the message.
    pub place: u64,
}

impl CarriedKey {
    /// Writes the part of the key that is inside of the bytes of the message from `at` on.
    #[cold]
    pub fn insert(&self, bytes: &mut [u8], at: u64) {
        for (nth, byte) in (0..).zip(self.key.get().to_be_bytes()) {
            let offset = (self.place + nth).checked_sub(at).and_then(|at| usize::try_from(at).ok());
            if let Some(to) = offset.and_then(|offset| bytes.get_mut(offset)) {
                *to = byte;
            }
        }
    }
}

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The work request was executed.
    Done,
    /// The work request has failed.
    Failed(WrError),
    /// The work request concerned a key and was refused.
    Refused(Denied),
    /// The work request was outstanding when the send queue failed, and the send queue works again.
    Flushed,
}

impl Outstanding {
    /// Creates an empty list for the work requests of a send queue.
    #[must_use]
    pub fn new(queue: &SendRing) -> Self {
        let (room, stride) = (queue.size().min(OUTSTANDING) as usize, queue.stride());
        Self { posted: VecDeque::new(), raws: Vec::new(), room, stride }
    }

    /// Gives memory back if no work request is outstanding.
    pub fn shrink(&mut self) {
        if self.posted.is_empty() {
            (self.posted, self.raws) = (VecDeque::new(), Vec::new());
        }
    }

    /// Returns the maximum number of outstanding work requests.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.room
    }

    /// Returns the number of bytes that the WQEs and their descriptions take at most.
    #[must_use]
    pub const fn max_bytes(&self) -> usize {
        self.room * (self.stride + size_of::<Posted>())
    }

    /// Adds the work requests of a queue that has failed. They end with a flush error.
    pub fn succeed(&mut self, failed: &Self) {
        self.posted.clone_from(&failed.posted);
        for posted in &mut self.posted {
            posted.end = Some(End::Flushed);
        }
    }

    /// Returns whether no work request is outstanding.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// Returns the number of outstanding work requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.posted.len()
    }

    /// Returns whether another work request may be taken.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.posted.len() < self.room
    }

    /// Returns whether a work request has failed. No other may be taken after it.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.posted
            .back()
            .is_some_and(|last| !matches!(last.end, None | Some(End::Done | End::Flushed)))
    }

    /// Appends a work request, whose WQE is `raw`.
    pub fn post(&mut self, posted: Posted, raw: &[u8]) {
        if self.posted.len() >= self.places() {
            self.grow();
        }
        let at = self.place(posted.send.index);
        if let Some(kept) = self.raws.get_mut(at..at + raw.len().min(self.stride)) {
            kept.copy_from_slice(raw.get(..kept.len()).unwrap_or_default());
        }
        self.posted.push_back(posted);
    }

    /// Returns the work request with the engine's name `id`, and its WQE.
    #[must_use]
    pub fn find(&self, id: u64) -> Option<(&Posted, &[u8])> {
        // The engine's name of a work request is its index, and indices are consecutive.
        let first = self.posted.front()?.send.index;
        // CAST: an index has 32 bits.
        let posted = self.posted.get((id as u32).wrapping_sub(first) as usize)?;
        let at = self.place(posted.send.index);
        Some((posted, self.raws.get(at..at + self.stride)?))
    }

    /// Records the end of the work request with the engine's name `id`.
    pub fn end(&mut self, id: u64, end: End) {
        let Some(first) = self.posted.front().map(|posted| posted.send.index) else { return };
        // CAST: an index has 32 bits.
        if let Some(posted) = self.posted.get_mut((id as u32).wrapping_sub(first) as usize) {
            posted.end.get_or_insert(end);
        }
    }

    /// Removes the oldest work request if it has ended, and returns it.
    pub fn pop_ended(&mut self) -> Option<(Posted, End)> {
        let end = self.posted.front()?.end?;
        self.posted.pop_front().map(|posted| (posted, end))
    }

    /// Removes the oldest work request of a queue that is flushed, and returns it.
    pub fn pop(&mut self) -> Option<Posted> {
        self.posted.pop_front()
    }

    /// Makes room for a few WQEs, or for all.
    fn grow(&mut self) {
        let places = if self.raws.is_empty() { OUTSTANDING_MIN.min(self.room) } else { self.room };
        let mut raws = vec![0; places * self.stride];
        for posted in &self.posted {
            let index = posted.send.index as usize;
            let from = self.place(posted.send.index);
            let to = index % places.max(1) * self.stride;
            if let (Some(to), Some(from)) =
                (raws.get_mut(to..to + self.stride), self.raws.get(from..from + self.stride))
            {
                to.copy_from_slice(from);
            }
        }
        self.raws = raws;
        self.posted.reserve_exact(places.saturating_sub(self.posted.len()));
    }

    /// Returns the number of WQEs for which there is room.
    fn places(&self) -> usize {
        self.raws.len() / self.stride.max(1)
    }

    fn place(&self, index: u32) -> usize {
        index as usize % self.places().max(1) * self.stride
    }
}
