//! The open READs of a send queue, whose bytes take more than a turn, and the work requests after
//! them that have been executed meanwhile.
//!
//! Requests after a READ may be executed before it is complete (IBTA volume 1, 10.8.3.3). Their
//! completions wait here, since completions are written in the order of the queue. All other work
//! requests of a QP whose messages are copied are taken, executed and completed in one turn.

use std::collections::VecDeque;

use vrnic_abi::cq::Status;
use vrnic_abi::sq::STRIDE_MAX;
use vrnic_packet::Nanos;

use crate::objects::completion::Completion;
use crate::requests::wqe::SendWqe;

/// Open READs and the executed work requests after them, the oldest first.
#[derive(Debug, Default)]
pub struct OpenReads {
    entries: VecDeque<Waiting>,
    /// The number of READs among them that are not complete.
    reads: usize,
    /// The time before which the READs do not continue, because the peer did not answer.
    pub resume_at: Option<Nanos>,
}

/// An open READ, or a work request that was executed after one.
#[derive(Debug)]
pub struct Waiting {
    /// The completion of the work request, with its status if no error occurs.
    pub completion: Completion,
    /// True if success is reported, too.
    pub signaled: bool,
    /// The state of a READ that is not complete.
    read: Option<Box<OpenRead>>,
}

/// The state of a READ that is not complete.
#[derive(Debug)]
pub struct OpenRead {
    /// The work request.
    pub send: SendWqe,
    /// The WQE of the READ.
    pub raw: [u8; STRIDE_MAX as usize],
    /// Number of bytes that have arrived.
    pub done: u64,
}

impl OpenRead {
    /// Creates the state of this READ, whose WQE is `raw`. `done` bytes have arrived.
    #[must_use]
    pub fn new(send: SendWqe, raw: &[u8], done: u64) -> Self {
        let mut read = Self { send, raw: [0; STRIDE_MAX as usize], done };
        if let Some(kept) = read.raw.get_mut(..raw.len()) {
            kept.copy_from_slice(raw);
        }
        read
    }
}

impl OpenReads {
    /// Returns whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of READs and of work requests after them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of READs that are not complete.
    #[inline]
    #[must_use]
    pub fn reads(&self) -> usize {
        self.reads
    }

    /// Returns the oldest READ that is not complete.
    #[must_use]
    pub fn oldest_read(&self) -> Option<&OpenRead> {
        self.entries.iter().find_map(|entry| entry.read.as_deref())
    }

    /// Appends a READ that is not complete.
    #[cold]
    pub fn push_read(&mut self, completion: Completion, signaled: bool, read: OpenRead) {
        self.reads += 1;
        self.entries.push_back(Waiting { completion, signaled, read: Some(Box::new(read)) });
    }

    /// Appends a work request that was executed while others before it were not complete.
    #[cold]
    pub fn push_done(&mut self, completion: Completion, signaled: bool) {
        self.entries.push_back(Waiting { completion, signaled, read: None });
    }

    /// Takes the oldest incomplete READ out to continue it. The caller must call [`Self::put_back`]
    /// or [`Self::settle`] afterwards.
    pub fn take_read(&mut self) -> Option<Box<OpenRead>> {
        self.entries.iter_mut().find_map(|entry| entry.read.take())
    }

    /// Puts a READ back that was taken out.
    pub fn put_back(&mut self, read: Box<OpenRead>) {
        let index = read.send.index;
        let place = self.entries.iter_mut().find(|entry| entry.completion.wqe_index == index);
        if let Some(entry) = place {
            entry.read = Some(read);
        }
    }

    /// Ends the READ at this index, which was taken out.
    pub fn settle(&mut self, index: u32, status: Status, vendor_err: u32) {
        self.reads = self.reads.saturating_sub(1);
        let place = self.entries.iter_mut().find(|entry| entry.completion.wqe_index == index);
        if let Some(Waiting { completion, .. }) = place {
            (completion.status, completion.vendor_err) = (status, vendor_err);
            if status != Status::Success {
                completion.byte_len = 0;
            }
        }
    }

    /// Removes the oldest work request if it has ended, and returns it.
    pub fn pop_settled(&mut self) -> Option<Waiting> {
        self.entries.pop_front_if(|entry| entry.read.is_none())
    }

    /// Removes the oldest work request of a queue that is flushed, even if it has not ended, and
    /// returns it.
    pub fn pop(&mut self) -> Option<Waiting> {
        let entry = self.entries.pop_front()?;
        if entry.read.is_some() {
            self.reads = self.reads.saturating_sub(1);
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use vrnic_abi::cq::Opcode;

    use super::*;
    use crate::requests::wqe::WqeId;

    fn completion(index: u32) -> Completion {
        let id = WqeId { wr_id: index.into(), index };
        Completion::of_send(7.into(), id, Opcode::Read, Status::Success)
    }

    fn read(index: u32) -> OpenRead {
        OpenRead::new(SendWqe { index, ..SendWqe::EMPTY }, &[], 0)
    }

    #[test]
    fn completions_come_in_the_order_of_the_queue() {
        let mut open_reads = OpenReads::default();
        open_reads.push_read(completion(1), true, read(1));
        open_reads.push_done(completion(2), true);
        open_reads.push_read(completion(3), true, read(3));
        assert_eq!((open_reads.len(), open_reads.reads()), (3, 2));
        assert!(open_reads.pop_settled().is_none(), "the READ is open");

        let open = open_reads.take_read().expect("a READ");
        assert_eq!(open.send.index, 1);
        open_reads.put_back(open);
        let open = open_reads.take_read().expect("a READ");
        open_reads.settle(open.send.index, Status::Success, 0);
        let order: Vec<_> = std::iter::from_fn(|| open_reads.pop_settled())
            .map(|e| e.completion.wqe_index)
            .collect();
        assert_eq!((order, open_reads.reads()), (vec![1, 2], 1));
        assert_eq!(open_reads.oldest_read().map(|read| read.send.index), Some(3));
    }

    #[test]
    fn a_flush_takes_open_reads_too() {
        let mut open_reads = OpenReads::default();
        open_reads.push_read(completion(1), false, read(1));
        open_reads.push_done(completion(2), false);
        let order: Vec<_> =
            std::iter::from_fn(|| open_reads.pop()).map(|e| e.completion.wqe_index).collect();
        assert_eq!((order, open_reads.reads(), open_reads.is_empty()), (vec![1, 2], 0, true));
    }
}
