//! Takes work requests off the send queue, and passes them to the stream.

use vrnic_abi::Key;
use vrnic_abi::admin::QpFlags;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Flags;
use vrnic_iwarp::rdmap::work::{Immediate, Work, WorkRequest};
use vrnic_iwarp::wire::ddp::{Stag, Tagged};
use vrnic_iwarp::wire::rdmap::{AtomicOp, SendKind};

use super::pair::carries;
use super::turn::RdmaTurn;
use crate::datapath::inbound::{Operation, Remote};
use crate::datapath::local_wr;
use crate::datapath::sgl::SgList;
use crate::datapath::transport::executing::wait_for_pages;
use crate::datapath::transport::taking::{Protocol, Queue};
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::qp::Qp;
use crate::objects::qp::outstanding::{End, Posted};
use crate::objects::qp::tcp::rdma::MESSAGES;
use crate::requests::wqe::SendWqe;

impl<H: Host> Protocol<H> for RdmaTurn<'_, H> {
    fn admits(&mut self) -> bool {
        if self.requester.not_before.is_some_and(|until| self.network.core().host().now() < until) {
            return false;
        }
        self.requester.not_before = None;
        let sends = match self.qp.state() {
            State::Rts => true,
            State::Sqd => !self.content.leaves,
            _ => false,
        };
        sends && !self.link.outstanding().has_failed() && self.link.has_room(MESSAGES)
    }

    fn queue(&mut self) -> Queue<'_, H> {
        let outstanding = self.link.outstanding_mut();
        Queue { qp: self.qp, requester: self.requester, outstanding }
    }

    fn start(&mut self, here: &TurnContext<'_, H>, send: &SendWqe, raw: &[u8]) -> bool {
        if here.core.ranges.has_blocks() && !send.is_local() {
            match check_ranges(here, self.qp, send, raw) {
                Ok(()) => {}
                Err(Denied::Absent) => {
                    wait_for_pages(here, self.requester, send, raw);
                    return false;
                }
                Err(denied) => {
                    let end = Some(End::Failed(denied.into()));
                    let opcode = send.completed();
                    let posted = Posted { send: *send, opcode, command: None, end };
                    self.link.outstanding_mut().post(posted, raw);
                    return false;
                }
            }
        }
        self.push(send, raw)
    }
}

/// Checks that all bytes of the requester's own memory that are in ranges can be used: a message of
/// a stream does not wait for them after it has begun. So one READ does not fill a range twice.
///
/// # Errors
/// [`Denied::Absent`] if the message has to wait, [`Denied::Bounds`] if it can never be sent.
#[cold]
fn check_ranges<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    send: &SendWqe,
    raw: &[u8],
) -> Result<(), Denied> {
    let mut side = SgList::default();
    match side.add_own(here, qp.user(), send, raw) {
        // Other memory is checked when its bytes are sent.
        Err(_) if !names_ranges(send, raw) => return Ok(()),
        added => added?,
    }
    if side.repeats_ranges() {
        return Err(Denied::Bounds);
    }
    if side.has_ranges() { side.check_first(here, send.length) } else { Ok(()) }
}

/// Returns whether a segment of a work request is in ranges.
fn names_ranges(send: &SendWqe, raw: &[u8]) -> bool {
    send.inline(raw).is_none() && send.segments.iter(raw).any(|segment| segment.key == Key::WINDOW)
}

impl<H: Host> RdmaTurn<'_, H> {
    /// Passes a message, whose WQE is `raw`, to the stream, and makes it outstanding. Returns
    /// whether the stream can execute it.
    pub(super) fn push(&mut self, send: &SendWqe, raw: &[u8]) -> bool {
        let mut posted = Posted { send: *send, opcode: send.completed(), command: None, end: None };
        if send.opcode.info().command {
            let here = TurnContext::new(self.network.core(), self.qp, self.slice);
            // A message that was being copied has one.
            let known = self.requester.keys.and_then(|keys| keys.command);
            match local_wr::carried_key(&here, self.qp, send, raw, known) {
                Ok(command) => posted.command = Some(command),
                Err(denied) => posted.end = Some(End::Refused(denied)),
            }
        }
        let is_refused = posted.end.is_some();
        self.link.outstanding_mut().post(posted, raw);
        if is_refused {
            return false;
        }
        let request = self.request(send);
        let stream = &mut self.content.stream;
        let pushed = request.is_some_and(|request| stream.push(request).is_ok());
        if !pushed {
            let end = End::Failed(Status::LocQpOpErr.into());
            self.link.outstanding_mut().end(send.index.into(), end);
        }
        pushed
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
            Operation::AtomicWrite(_) | Operation::Flush { .. } => return None,
        };
        Some(WorkRequest {
            id: send.index.into(),
            work,
            length: u32::try_from(send.length).ok()?,
            signaled: self.qp.has(QpFlags::SIGNAL_ALL) || send.flags.contains(Flags::SIGNALED),
            fence: send.flags.contains(Flags::FENCE),
        })
    }
}
