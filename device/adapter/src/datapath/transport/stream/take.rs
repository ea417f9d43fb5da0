//! Takes work requests off the send queue, and passes them to the stream.

use arrayvec::ArrayVec;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::{Flags, Opcode, STRIDE_MAX};
use vrnic_iwarp::rdmap::work::{Immediate, Work, WorkRequest};
use vrnic_iwarp::wire::ddp::{Stag, Tagged};
use vrnic_iwarp::wire::rdmap::{AtomicOp, SendKind};

use super::pair::carries;
use super::turn::{Next, Sending};
use crate::datapath::inbound::{Operation, Remote};
use crate::datapath::memory_wr::{self, Settled};
use crate::datapath::send_queue::{BATCH, Entry, Taken, take};
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::objects::qp::outstanding::{End, Posted};
use crate::requests::wqe::SendWqe;

/// The bytes of an entry of a send queue.
type Raw = ArrayVec<u8, { STRIDE_MAX as usize }>;

impl<H: Host> Sending<'_, H> {
    /// Takes as many work requests as there is room for.
    pub(super) fn take(&mut self) -> Next {
        let mut entry = Entry::EMPTY;
        for _ in 0..BATCH {
            let sends = match self.qp.state() {
                State::Rts => true,
                State::Sqd => !self.streaming.leaves,
                _ => false,
            };
            let failed = self.streaming.outstanding.has_failed();
            if !sends || failed || !self.streaming.has_room() {
                return Next::Done;
            }
            if let Some(next) = self.fetch(&mut entry) {
                return next;
            }
            let raw: Raw = self.batch.entry(&entry.place).iter().copied().collect();
            if let Some(next) = self.start(&entry.send, &raw) {
                return next;
            }
            if self.slice.is_over() {
                return Next::More;
            }
        }
        Next::More
    }

    /// Takes the next entry off the send queue. Returns why none follows now, or `None` if one has
    /// been taken.
    fn fetch(&mut self, entry: &mut Entry) -> Option<Next> {
        let here = TurnContext::new(self.network.core(), self.qp, self.slice);
        match take(&here, self.qp, self.requester, self.batch, entry) {
            Taken::Entry => None,
            Taken::Empty => Some(Next::Done),
            Taken::Malformed(malformed) => {
                self.streaming.outstanding.post(Posted::malformed(&malformed), &[]);
                Some(Next::Done)
            }
            Taken::Failed => Some(Next::Failed),
        }
    }

    /// Executes a request that concerns a key, or passes a message to the stream. Returns the
    /// reason if no other work request may follow now.
    pub(super) fn start(&mut self, send: &SendWqe, raw: &[u8]) -> Option<Next> {
        let mut posted = Posted { send: *send, opcode: send.completed(), command: None, end: None };
        if send.is_about_key() {
            // Requests before it may use a key that it invalidates. A registration invalidates no
            // such key.
            if send.opcode != Opcode::RegMr && !self.streaming.outstanding.is_empty() {
                self.requester.keep(send, raw, 0);
                return Some(Next::Done);
            }
            let here = TurnContext::new(self.network.core(), self.qp, self.slice);
            let settled = memory_wr::run(&here, self.qp, (send, raw));
            drop(here);
            posted.end = match settled {
                Ok(Settled::Later) => {
                    self.requester.keep(send, raw, 0);
                    return Some(Next::Done);
                }
                Ok(Settled::Now) => Some(End::Done),
                Ok(Settled::AfterReaders) => None,
                Err(denied) => Some(End::Refused(denied)),
            };
            self.streaming.outstanding.post(posted, raw);
            return settled
                .is_ok_and(|settled| matches!(settled, Settled::AfterReaders))
                .then_some(Next::Readers(send.index));
        }
        self.streaming.outstanding.post(posted, raw);
        let request = self.request(send);
        let stream = &mut self.streaming.stream;
        if request.is_some_and(|request| stream.push(request).is_ok()) {
            return None;
        }
        let end = End::Failed(Status::LocQpOpErr.into());
        self.streaming.outstanding.end(send.index.into(), end);
        Some(Next::Done)
    }

    /// Returns the work request for the stream, if the stream can execute it.
    fn request(&self, send: &SendWqe) -> Option<WorkRequest> {
        if !carries(send) {
            return None;
        }
        let tagged = |at: Remote| Tagged { stag: Stag(at.key.get()), to: at.addr };
        let solicited = send.flags.contains(Flags::SOLICITED);
        let work = match Operation::of(send)? {
            Operation::Send => Work::Send(SendKind { solicited, invalidate: None }),
            Operation::SendInvalidate(key) => {
                Work::Send(SendKind { solicited, invalidate: Some(Stag(key.get())) })
            }
            Operation::Write(at) => send.imm().map_or(Work::Write(tagged(at)), |data| {
                Work::WriteImmediate(tagged(at), Immediate { data, solicited })
            }),
            Operation::Read(at) => {
                // The peer names this place in its answer. It is not a key, and grants no access.
                let sink = Tagged { stag: Stag(send.index), to: 0 };
                Work::Read { sink, source: tagged(at) }
            }
            Operation::FetchAdd { word, add } => {
                Work::Atomic(tagged(word), AtomicOp::FetchAdd { add, mask: 0 })
            }
            Operation::CompareSwap { word, compare, swap } => {
                let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
                let op = AtomicOp::CompareSwap { compare, compare_mask, swap, swap_mask };
                Work::Atomic(tagged(word), op)
            }
        };
        Some(WorkRequest {
            id: send.index.into(),
            work,
            length: u32::try_from(send.length).ok()?,
            signaled: self.qp.signal_all || send.flags.contains(Flags::SIGNALED),
            fence: send.flags.contains(Flags::FENCE),
        })
    }
}
