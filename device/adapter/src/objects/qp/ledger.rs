//! The ledger of a send queue: work requests that were taken and whose completion is not written
//! yet.
//!
//! Taking a work request, executing it and completing it are three things. Most are done in one
//! turn and never come here. A READ whose bytes take more than a turn stays in the ledger while
//! requests behind it are executed (IBTA volume 1, 10.8.3.3); their completions wait here, since
//! completions are written in the order of the queue.

use std::collections::VecDeque;

use vrnic_abi::cq::Status;
use vrnic_abi::sq::STRIDE_MAX;

use crate::objects::completion::Completion;
use crate::requests::wqe::SendWqe;

/// The work requests of a send queue that are outstanding, the oldest first.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: VecDeque<Outstanding>,
    /// READs among them whose bytes have not all come.
    reads: usize,
    /// The READs go on no earlier than this, because the peer did not answer.
    pub resume_at: Option<u64>,
}

/// A work request that is outstanding.
#[derive(Debug)]
pub struct Outstanding {
    /// Its completion, with the status that it has if nothing goes wrong.
    pub completion: Completion,
    /// True if success is reported, too.
    pub signaled: bool,
    /// A READ whose bytes have not all come.
    read: Option<Box<OpenRead>>,
}

/// A READ whose bytes have not all come.
#[derive(Debug)]
pub struct OpenRead {
    /// The work request.
    pub send: SendWqe,
    /// Its WQE.
    pub raw: [u8; STRIDE_MAX as usize],
    /// Bytes that have come.
    pub done: u64,
}

impl OpenRead {
    /// Makes the READ of this work request, whose WQE is `raw` and of which `done` bytes have come.
    #[must_use]
    pub fn new(send: SendWqe, raw: &[u8], done: u64) -> Self {
        let mut read = Self { send, raw: [0; STRIDE_MAX as usize], done };
        store(&mut read.raw, raw);
        read
    }
}

/// Copies a WQE, which is no longer than the place.
pub(super) fn store(place: &mut [u8; STRIDE_MAX as usize], raw: &[u8]) {
    if let Some(kept) = place.get_mut(..raw.len()) {
        kept.copy_from_slice(raw);
    }
}

impl Ledger {
    /// Returns whether nothing is outstanding.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of outstanding work requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of READs whose bytes have not all come.
    #[inline]
    #[must_use]
    pub fn reads(&self) -> usize {
        self.reads
    }

    /// The oldest READ whose bytes have not all come.
    #[must_use]
    pub fn oldest_read(&self) -> Option<&OpenRead> {
        self.entries.iter().find_map(|entry| entry.read.as_deref())
    }

    /// Appends a READ whose bytes have not all come.
    #[cold]
    pub fn push_read(&mut self, completion: Completion, signaled: bool, read: OpenRead) {
        self.reads += 1;
        self.entries.push_back(Outstanding { completion, signaled, read: Some(Box::new(read)) });
    }

    /// Appends a work request that was executed, behind those that were not.
    #[cold]
    pub fn push_done(&mut self, completion: Completion, signaled: bool) {
        self.entries.push_back(Outstanding { completion, signaled, read: None });
    }

    /// Takes the oldest open READ out to go on with it; [`Self::put_back`] or [`Self::settle`] is
    /// due then.
    pub fn take_read(&mut self) -> Option<Box<OpenRead>> {
        self.entries.iter_mut().find_map(|entry| entry.read.take())
    }

    /// Puts the READ back that was taken out.
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
        if let Some(Outstanding { completion, .. }) = place {
            (completion.status, completion.vendor_err) = (status, vendor_err);
            if status != Status::Success {
                completion.byte_len = 0;
            }
        }
    }

    /// Takes the oldest work request, if it has ended.
    pub fn pop_settled(&mut self) -> Option<Outstanding> {
        self.entries.pop_front_if(|entry| entry.read.is_none())
    }

    /// Takes the oldest work request of a queue that is flushed, whether it has ended or not.
    pub fn pop(&mut self) -> Option<Outstanding> {
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
        let mut ledger = Ledger::default();
        ledger.push_read(completion(1), true, read(1));
        ledger.push_done(completion(2), true);
        ledger.push_read(completion(3), true, read(3));
        assert_eq!((ledger.len(), ledger.reads()), (3, 2));
        assert!(ledger.pop_settled().is_none(), "the READ is open");

        let open = ledger.take_read().expect("a READ");
        assert_eq!(open.send.index, 1);
        ledger.put_back(open);
        let open = ledger.take_read().expect("a READ");
        ledger.settle(open.send.index, Status::Success, 0);
        let order: Vec<_> =
            std::iter::from_fn(|| ledger.pop_settled()).map(|e| e.completion.wqe_index).collect();
        assert_eq!((order, ledger.reads()), (vec![1, 2], 1));
        assert_eq!(ledger.oldest_read().map(|read| read.send.index), Some(3));
    }

    #[test]
    fn a_flush_takes_open_reads_too() {
        let mut ledger = Ledger::default();
        ledger.push_read(completion(1), false, read(1));
        ledger.push_done(completion(2), false);
        let order: Vec<_> =
            std::iter::from_fn(|| ledger.pop()).map(|e| e.completion.wqe_index).collect();
        assert_eq!((order, ledger.reads(), ledger.is_empty()), (vec![1, 2], 0, true));
    }
}
