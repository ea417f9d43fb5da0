//! The turn of a send queue whose work requests are complete when they have been sent.

use std::sync::Arc;

use vrnic_packet::Nanos;

use crate::datapath::complete::Completer;
use crate::datapath::constants::NO_ROOM_PAUSE;
use crate::datapath::send_queue::{BATCH, Entry, Taken, Turn, not_now, take};
use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::completion::Completion;
use crate::objects::qp::{Qp, Requester};
use crate::requests::wqe::{Malformed, SendWqe};

/// A turn of such a QP.
pub(crate) trait Executor<H: Host> {
    fn requester(&mut self) -> &mut Requester<H>;

    /// Executes an entry, of whose message `done` bytes have been sent, and writes its completion.
    /// Returns `None` if the next entry can be executed.
    fn execute(&mut self, send: &SendWqe, raw: &[u8], done: u64) -> Option<Turn>;
}

/// Executes entries of the send queue of `qp`, which are copied to `batch`.
pub(crate) fn execute_all<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Arc<Qp<H>>,
    executor: &mut impl Executor<H>,
    batch: &mut Batch,
) -> Turn {
    let mut entry = Entry::EMPTY;
    for _ in 0..BATCH {
        match take(here, qp, executor.requester(), batch, &mut entry) {
            Taken::Entry => {}
            Taken::Empty => return Turn::Idle,
            Taken::Later(until) => return Turn::Wait(until),
            Taken::Malformed(Malformed { id, opcode, status }) => {
                let completion = Completion::of_send(qp.qpn, id, opcode, status);
                let end = Completer { here, qp }.end(&completion, true);
                return end.unwrap_or(Turn::Failed);
            }
            Taken::Failed => return Turn::Failed,
        }
        let end = executor.execute(&entry.send, batch.entry(&entry.place), entry.done);
        if let Some(end) = end.or_else(|| not_now(here.core, qp, executor.requester())) {
            return end;
        }
        if here.slice.is_over() {
            break;
        }
    }
    Turn::More
}

/// Keeps an entry for which the network has no room, to go on with it after a pause. `done` bytes
/// of its message have been sent.
pub(crate) fn wait_for_room<H: Host>(
    here: &TurnContext<'_, H>,
    requester: &mut Requester<H>,
    send: &SendWqe,
    raw: &[u8],
    done: u64,
) -> Turn {
    requester.keep(send, raw, done);
    wait_until(here.host().now().plus(NO_ROOM_PAUSE), requester)
}

/// Keeps an entry whose memory has absent pages, to execute it again after a pause.
#[cold]
pub(crate) fn wait_for_pages<H: Host>(
    here: &TurnContext<'_, H>,
    requester: &mut Requester<H>,
    send: &SendWqe,
    raw: &[u8],
) -> Turn {
    requester.keep(send, raw, 0);
    wait_until(requester.pages_until(here.host().now()), requester)
}

/// Goes on with the entry in progress at `until`.
const fn wait_until<H: Host>(until: Nanos, requester: &mut Requester<H>) -> Turn {
    requester.not_before = Some(until);
    Turn::Wait(until)
}
