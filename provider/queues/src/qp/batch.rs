// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Work requests being posted: each batch holds its queue's lock, and rings once.

use std::sync::atomic::Ordering;

use vrnic_abi::sq::Sge;

use super::QueuePair;
use crate::layout::WqeHeader;
use crate::lock::Guard;
use crate::recv::RecvQueue;
use crate::request::{Payload, PostError, SendHeader};
use crate::send::{Place, SendQueue};

/// Sends being posted with one doorbell.
#[derive(Debug)]
pub struct SendBatch<'a> {
    qp: &'a QueuePair,
    queue: Guard<'a, SendQueue>,
    start: u32,
}

impl<'a> SendBatch<'a> {
    /// Begins a batch in the queue of `qp` whose lock `queue` holds.
    #[inline]
    pub(super) fn new(qp: &'a QueuePair, queue: Guard<'a, SendQueue>) -> Self {
        let start = queue.producer();
        Self { qp, queue, start }
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`PostError`]; the queue is unchanged then.
    #[inline(always)]
    pub fn push(&mut self, mut header: SendHeader, payload: Payload<'_>) -> Result<(), PostError> {
        header.flags |= self.qp.always;
        let freed = self.qp.credits.send.load(Ordering::Acquire);
        self.queue.push(freed, &header, payload)
    }
}

impl Drop for SendBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.queue.producer() != self.start {
            ring(self.qp, &self.queue);
        }
    }
}

/// Tells the adapter that entries were posted.
#[inline]
fn ring(qp: &QueuePair, queue: &SendQueue) {
    if let Some(posted) = &qp.credits.sends {
        posted.publish(queue.producer());
    }
    match queue.place() {
        Place::Guest => qp.door.post_sends(queue.producer()),
        Place::Device => qp.door.ring_sends(),
    }
}

/// Sends that are posted together, or dropped together.
#[derive(Debug)]
pub struct StagedSends<'a> {
    qp: &'a QueuePair,
    queue: Guard<'a, SendQueue>,
    /// The index of the first entry that is not posted.
    start: u32,
}

impl<'a> StagedSends<'a> {
    /// Begins a batch in the queue of `qp` whose lock `queue` holds.
    #[inline]
    pub(super) fn new(qp: &'a QueuePair, queue: Guard<'a, SendQueue>) -> Self {
        let start = queue.producer();
        Self { qp, queue, start }
    }

    /// Returns the header of its WQEs.
    #[must_use]
    #[inline]
    pub fn wqe_header(&self) -> WqeHeader {
        self.qp.wqe_header()
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`PostError`]; the other requests are unchanged then.
    #[inline]
    pub fn push(&mut self, mut header: SendHeader, payload: Payload<'_>) -> Result<(), PostError> {
        if !self.qp.takes_sends() {
            return Err(PostError::State);
        }
        header.flags |= self.qp.always;
        let freed = self.qp.credits.send.load(Ordering::Acquire);
        self.queue.stage(freed, &header, payload)
    }

    /// Posts the requests with one doorbell.
    #[inline]
    pub fn post(mut self) {
        let producer = self.queue.producer();
        if producer == self.start {
            return;
        }
        self.queue.commit(self.start);
        self.start = producer;
        ring(self.qp, &self.queue);
    }
}

impl Drop for StagedSends<'_> {
    #[inline]
    fn drop(&mut self) {
        self.queue.roll_back(self.start);
    }
}

/// Receives being posted together.
#[derive(Debug)]
pub struct RecvBatch<'a> {
    qp: &'a QueuePair,
    queue: Guard<'a, RecvQueue>,
    start: u32,
}

impl<'a> RecvBatch<'a> {
    /// Begins a batch in the queue of `qp` whose lock `queue` holds.
    #[inline]
    pub(super) fn new(qp: &'a QueuePair, queue: Guard<'a, RecvQueue>) -> Self {
        let start = queue.producer();
        Self { qp, queue, start }
    }

    /// Adds a receive.
    ///
    /// # Errors
    /// [`PostError`]; the queue is unchanged then.
    #[inline]
    pub fn push(&mut self, wr_id: u64, segments: &[Sge]) -> Result<(), PostError> {
        let freed = self.qp.credits.recv.load(Ordering::Acquire);
        self.queue.push(freed, wr_id, segments)
    }
}

impl Drop for RecvBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        let producer = self.queue.producer();
        if producer != self.start {
            if let Some(posted) = &self.qp.credits.recvs {
                posted.publish(producer);
            }
            self.qp.door.post_recvs(producer, self.qp.recvs_ring);
        }
    }
}
