//! The work requests of a send queue that were taken and are not completed.

use std::collections::VecDeque;

use vrnic_abi::Key;
use vrnic_abi::cq::Opcode;

use super::SendRing;
use crate::memory::tpt::Denied;
use crate::objects::completion::WrError;
use crate::requests::wqe::SendWqe;

/// Work requests that may be outstanding at once. The rest stays in the guest's ring.
pub const OUTSTANDING: u32 = 128;

/// The work requests of a QP that are outstanding, in their order, with copies of their WQEs.
#[derive(Debug)]
pub struct Outstanding {
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
    /// The key that it gives to the peer, if it is a command.
    pub command: Option<CarriedKey>,
    /// The end of the work request, once it is known.
    pub end: Option<End>,
}

/// A key in the message of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedKey {
    /// The key.
    pub key: Key,
    /// Offset of its place in the message.
    pub place: u64,
}

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was executed.
    Done,
    /// It has failed.
    Failed(WrError),
    /// It was a request about a key that was refused.
    Refused(Denied),
    /// It was outstanding when the send queue failed, and the queue works again.
    Flushed,
}

impl Outstanding {
    /// Makes room for the work requests of a send queue.
    #[must_use]
    pub fn new(queue: &SendRing) -> Self {
        let (room, stride) = (queue.size().min(OUTSTANDING) as usize, queue.stride());
        Self {
            posted: VecDeque::with_capacity(room),
            raws: vec![0; room * stride].into_boxed_slice(),
            stride,
        }
    }

    /// Takes over the work requests of a queue that has failed. They end with a flush error.
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
