//! Takes the work requests of a QP whose messages travel on a network off its send queue. They stay
//! outstanding until the peer has answered.

use std::sync::Arc;

use vrnic_abi::sq::Opcode;
use vrnic_packet::Nanos;

use crate::datapath::local_wr::{self, Settled};
use crate::datapath::send_queue::{BATCH, Entry, Taken, take};
use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::qp::outstanding::{End, Outstanding, Posted};
use crate::objects::qp::{Qp, Requester};
use crate::requests::wqe::SendWqe;

/// The result of taking work requests in a turn.
pub(super) enum Next {
    /// All that were posted, or for which there is room, have been taken.
    Done,
    /// More may be posted.
    More,
    /// The next one may begin at this time.
    Later(Nanos),
    /// A key was invalidated. The work request with this index ends when the key is no longer used.
    Readers(u32),
}

impl Next {
    /// Returns the time at which more may begin, if it is known.
    pub(super) fn until(&self) -> Option<Nanos> {
        if let Self::Later(until) = self { Some(*until) } else { None }
    }
}

/// The protocol of a QP whose messages travel on a network.
pub(super) trait Protocol<H: Host> {
    /// Returns whether another work request may be taken now.
    fn admits(&mut self) -> bool;

    /// Returns the send queue and its outstanding work requests.
    fn queue(&mut self) -> Queue<'_, H>;

    /// Passes a message, whose WQE is `raw`, to the protocol, and makes it outstanding. Returns
    /// whether other work requests may follow now.
    fn start(&mut self, here: &TurnContext<'_, H>, send: &SendWqe, raw: &[u8]) -> bool;
}

/// A send queue, and its outstanding work requests.
pub(super) struct Queue<'a, H: Host> {
    pub(super) qp: &'a Arc<Qp<H>>,
    pub(super) requester: &'a mut Requester<H>,
    pub(super) outstanding: &'a mut Outstanding,
}

/// Takes as many work requests as the protocol admits, up to the limits of a turn, and starts them.
/// `batch` is for their WQEs. Returns `None` if the QP has failed.
pub(super) fn take_all<H: Host>(
    protocol: &mut impl Protocol<H>,
    here: &TurnContext<'_, H>,
    batch: &mut Batch,
) -> Option<Next> {
    let mut entry = Entry::EMPTY;
    for _ in 0..BATCH {
        if !protocol.admits() {
            return Some(protocol.queue().wait());
        }
        let mut queue = protocol.queue();
        match take(here, queue.qp, queue.requester, batch, &mut entry) {
            Taken::Entry => {}
            Taken::Empty => return Some(Next::Done),
            Taken::Later(until) => return Some(Next::Later(until)),
            Taken::Malformed(malformed) => {
                // The work request fails when all before it have ended.
                queue.outstanding.post(Posted::malformed(&malformed), &[]);
                return Some(Next::Done);
            }
            Taken::Failed => return None,
        }
        let (send, raw) = (&entry.send, batch.entry(&entry.place));
        if send.is_local() {
            if let Some(next) = queue.start_local(here, send, raw) {
                return Some(next);
            }
        } else if !protocol.start(here, send, raw) {
            return Some(protocol.queue().wait());
        }
        if here.slice.is_over() {
            break;
        }
    }
    Some(Next::More)
}

impl<H: Host> Queue<'_, H> {
    /// Returns the result of the turn's taking if no work request may follow now.
    fn wait(&self) -> Next {
        let waits = self.requester.current.as_ref().and(self.requester.not_before);
        waits.map_or(Next::Done, Next::Later)
    }

    /// Executes a work request that sends no message, whose WQE is `raw`. Returns the result of the
    /// turn's taking if no other work request may follow now.
    fn start_local(
        &mut self,
        here: &TurnContext<'_, H>,
        send: &SendWqe,
        raw: &[u8],
    ) -> Option<Next> {
        // Requests before it may use a key that it invalidates. A registration invalidates no such
        // key.
        let waits = send.opcode != Opcode::RegMr && !self.outstanding.is_empty();
        let settled =
            if waits { Ok(Settled::Later) } else { local_wr::run(here, self.qp, send, raw) };
        let end = match settled {
            Ok(Settled::Later) => {
                self.requester.keep(send, raw, 0);
                return Some(Next::Done);
            }
            Ok(Settled::Now) => Some(End::Done),
            Ok(Settled::AfterReaders) => None,
            Err(denied) => Some(End::Refused(denied)),
        };
        let posted = Posted { send: *send, opcode: send.completed(), command: None, end };
        self.outstanding.post(posted, raw);
        end.is_none().then_some(Next::Readers(send.index))
    }
}
