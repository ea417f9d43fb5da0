//! READs that take more than a turn, and the entries that may pass them.
//!
//! A responder executes READs and atomics in order, and may execute a SEND or WRITE after a READ
//! before it has read all bytes of the READ (IBTA volume 1, 9.5). So the oldest READ continues by a
//! part in each turn, READs behind it are checked and wait, and other entries are executed
//! meanwhile, unless they ask for a fence, are atomics, or invalidate a key that a READ may use.

use vrnic_abi::cq::Status;
use vrnic_abi::sq::{Class, Flags, Opcode};

use super::work::{Before, Step, Work};
use crate::datapath::send_queue::{Entry, Turn};
use crate::host::Host;
use crate::objects::completion::WrError;
use crate::objects::qp::open_reads::OpenRead;

impl<H: Host> Work<'_, H> {
    /// Makes a READ outstanding, whose bytes up to `done` have arrived.
    #[cold]
    pub(super) fn open_read(&mut self, entry: &Entry, done: u64) -> Option<Turn> {
        let read = OpenRead::new(entry.send, self.batch.entry(&entry.place), done);
        let (completer, send) = (self.completer(), &entry.send);
        let completion = completer.completion(send, send.completed(), self.command(), Ok(()));
        let signaled = completer.is_signaled(send);
        self.requester.open_reads.push_read(completion, signaled, read);
        None
    }

    /// Executes entries behind outstanding READs with half of the turn's bytes, unless `wait` is
    /// set, and continues the READs.
    #[cold]
    pub(super) fn beside_reads(&mut self, wait: Option<Turn>) -> Turn {
        let reserve = self.budget / 2;
        self.budget -= reserve;
        let turn = match wait {
            Some(turn) => turn,
            None if self.is_full() => Turn::More,
            None => self.entries(),
        };
        self.budget += reserve;
        if turn == Turn::Failed {
            return turn;
        }
        match self.read_on() {
            Some(turn) => turn,
            None if self.requester.open_reads.is_empty() => Turn::More,
            None => self.requester.open_reads.resume_at.map_or(Turn::More, Turn::Wait),
        }
    }

    /// Returns whether the turn has moved its maximum number of bytes, or its time is over.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.budget == 0 || self.here.slice.is_over()
    }

    /// Returns whether as many work requests are outstanding as the queue has entries. A correct
    /// guest waits for completions then.
    fn is_full(&self) -> bool {
        self.requester.open_reads.len() >= self.qp.sq.size() as usize
    }

    /// Executes an entry after outstanding READs, if it may pass them. An entry that fails is
    /// executed again after them, because its failure ends the QP, and the READs were posted first.
    #[cold]
    pub(super) fn execute_behind_reads(&mut self, entry: &Entry) -> Step {
        let send = &entry.send;
        let reads = self.requester.open_reads.reads();
        let max_reads = usize::from(self.requester.config.max_rd_atomic);
        let is_read = send.opcode.info().class == Class::Read;
        let waits = match send.opcode.info().class {
            _ if send.opcode.info().invalidate_sink => true,
            Class::Read => reads >= max_reads,
            Class::Atomic | Class::AtomicWrite | Class::Flush => true,
            _ => matches!(send.opcode, Opcode::LocalInv | Opcode::Transfer | Opcode::Await),
        };
        if waits || send.flags.contains(Flags::FENCE) {
            return Step::Behind;
        }
        // Moving no bytes of a READ only checks it.
        let kept = if is_read { std::mem::take(&mut self.budget) } else { 0 };
        let step = self.execute(entry, Before::Reads);
        self.budget += kept;
        match step {
            Step::Failed(..) | Step::Refused(_) | Step::Retry => Step::Behind,
            Step::Partly(_) if is_read => Step::Queued,
            step => step,
        }
    }

    /// Continues the oldest READs until they have ended or the turn has moved its maximum. Returns
    /// `None` if the QP can continue.
    fn read_on(&mut self) -> Option<Turn> {
        if let Some(at) = self.requester.open_reads.resume_at {
            if self.here.host().now() < at {
                return Some(Turn::Wait(at));
            }
            self.requester.open_reads.resume_at = None;
        }
        while !self.is_over()
            && let Some(mut read) = self.requester.open_reads.take_read()
        {
            let place = self.batch.put(&read.raw);
            let entry = Entry { send: read.send, place, done: read.done };
            let keys = self.requester.keys.take();
            let step = self.execute(&entry, Before::Nothing);
            self.requester.keys = keys;
            let open_reads = &mut self.requester.open_reads;
            match step {
                Step::Partly(done) => {
                    read.done = done;
                    open_reads.put_back(read);
                }
                Step::Done { .. } => open_reads.settle(read.send.index, Status::Success, 0),
                Step::Failed(WrError { status, vendor_err }) => {
                    open_reads.settle(read.send.index, status, vendor_err);
                }
                Step::Absent => {
                    open_reads.put_back(read);
                    let until = self.requester.pages_until(self.here.host().now());
                    self.requester.open_reads.resume_at = Some(until);
                }
                _ => {
                    open_reads.put_back(read);
                    self.no_answer(entry.send.index);
                }
            }
            if let Some(turn) = self.complete_settled() {
                return Some(turn);
            }
            if let Some(at) = self.requester.open_reads.resume_at {
                return Some(Turn::Wait(at));
            }
        }
        None
    }

    /// Handles a missing answer of the peer to the READ at this index.
    fn no_answer(&mut self, index: u32) {
        match self.next_try() {
            Some(at) => self.requester.open_reads.resume_at = Some(at),
            None => {
                let _failed = self.requester.open_reads.take_read();
                self.requester.open_reads.settle(index, Status::RetryExcErr, 0);
            }
        }
    }

    /// Writes the completions of the oldest entries, if these have ended.
    fn complete_settled(&mut self) -> Option<Turn> {
        while let Some(entry) = self.requester.open_reads.pop_settled() {
            let end = self.completer().end(&entry.completion, entry.signaled);
            if end.is_some() {
                return end;
            }
        }
        None
    }
}
