//! The send queue of a QP of any type: its state, its next entry, its flush.
//!
//! Three loops take entries: `transport/taking.rs` for every protocol on a network, where they stay
//! outstanding; `transport/executing.rs` for datagrams and raw packets, which are complete when
//! they have been sent; and `requester/work.rs` for messages that are copied, where a later request
//! may be executed before a READ has ended. All of them call [`take`]; the last two also call
//! [`not_now`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::cq::{self, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_faults::Site;
use vrnic_packet::Nanos;

use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::completion::Completion;
use crate::objects::core::Core;
use crate::objects::faults::injection::Fate;
use crate::objects::qp::outstanding::{Outstanding, Posted};
use crate::objects::qp::{Path, Qp, Requester};
use crate::requests::wqe::{Malformed, SendWqe, WqeId};
use crate::slice::{Slice, cost};

/// Maximum number of entries that a QP executes in one turn.
pub const BATCH: u32 = 64;

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The queue is empty, or the QP may not send.
    Idle,
    /// There is more work.
    More,
    /// There is no work before this time.
    Wait(Nanos),
    /// The QP has failed; its queues must be flushed.
    Failed,
    /// The QP has failed; its queues must be flushed. There is more work at this time.
    FailedUntil(Nanos),
}

/// An entry in progress: the work request, and the position of its bytes in the batch.
pub(crate) struct Entry {
    pub(crate) send: SendWqe,
    pub(crate) place: Range<usize>,
    /// Number of bytes that have been moved.
    pub(crate) done: u64,
}

impl Entry {
    /// A value for [`take`] to fill.
    pub(crate) const EMPTY: Self = Self { send: SendWqe::EMPTY, place: 0..0, done: 0 };
}

/// The result of taking the next entry of a send queue.
pub(crate) enum Taken {
    /// An entry was taken.
    Entry,
    /// No entry is posted, or the CQ has no room for one. The QP is scheduled when there is one.
    Empty,
    /// The next entry may begin at this time, because of a ceiling of the function.
    Later(Nanos),
    /// There is one that cannot be parsed.
    Malformed(Malformed),
    /// The queue is faulty, and the QP has failed.
    Failed,
}

/// Returns the reason for which a QP does not execute its next entry now, or `None` if it does.
#[inline]
pub(crate) fn not_now<H: Host>(
    core: &Core<H>,
    qp: &Qp<H>,
    requester: &mut Requester<H>,
) -> Option<Turn> {
    if qp.dead.load(Ordering::Acquire) {
        return Some(Turn::Idle);
    }
    match qp.state() {
        State::Rts => {}
        State::Sqd if requester.current.is_some() => {}
        // No new entry is taken, and outstanding ones continue.
        State::Sqd if !requester.open_reads.is_empty() => return Some(Turn::More),
        State::Sqd => return Some(drained(core, qp, requester)),
        State::Err | State::Sqe => return Some(Turn::Failed),
        _ => return Some(Turn::Idle),
    }
    if let Some(until) = requester.not_before {
        if core.host().now() < until {
            return Some(Turn::Wait(until));
        }
        requester.not_before = None;
    }
    None
}

pub(crate) fn drained<H: Host>(core: &Core<H>, qp: &Qp<H>, requester: &mut Requester<H>) -> Turn {
    let mut attr = qp.attr.lock();
    if attr.sq_draining != 0 {
        attr.sq_draining = 0;
        if requester.notify_drained {
            core.report(Kind::SqDrained, qp.qpn);
        }
    }
    Turn::Idle
}

/// Sets `entry` to the one in progress, or to the next posted one after checking it. If the queue
/// is faulty, the reason is logged and the QP fails.
#[inline(always)]
pub(crate) fn take<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    entry: &mut Entry,
) -> Taken {
    if let Some(send) = requester.current.take() {
        let place = batch.put(&requester.raw);
        *entry = Entry { send, place, done: requester.done };
    } else if here.slow_path && qp.waits_for(&qp.send_cq) {
        return Taken::Empty;
    } else {
        match take_posted(here, qp, requester, batch, entry) {
            Ok(Taken::Entry) if here.slow_path || requester.rate_limit.is_set() => {
                if let Some(taken) = take_slowly(here, qp, requester, batch, entry) {
                    return taken;
                }
            }
            Ok(Taken::Entry) => {}
            Ok(taken) => return taken,
            Err(why) => {
                fail(here.core, qp, why);
                return Taken::Failed;
            }
        }
        here.step(entry.send.opcode.info().begun);
        requester.begin();
    }
    here.slice.charge(cost::REQUEST + cost::SEGMENT * entry.send.segments.count());
    Taken::Entry
}

/// Sets `entry` to the next posted one after checking it, without counting it.
///
/// # Errors
/// Returns a description of the error in the queue.
#[inline(always)]
fn take_posted<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    entry: &mut Entry,
) -> Result<Taken, &'static str> {
    let index = requester.ci;
    let Some(place) = batch.take(here, qp, index)? else { return Ok(Taken::Empty) };
    move_to(qp, requester, index.wrapping_add(1));
    Ok(match entry.send.parse_into(qp.kind, batch.entry(&place), index) {
        Ok(()) => {
            (entry.place, entry.done) = (place, 0);
            Taken::Entry
        }
        Err(malformed) => Taken::Malformed(malformed),
    })
}

/// Does what rules for faults, ceilings and optional counters demand for an entry that was just
/// taken off its queue. Returns what the taking results in, unless the entry begins.
#[cold]
fn take_slowly<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    entry: &Entry,
) -> Option<Taken> {
    let (core, send) = (here.core, &entry.send);
    if here.looks_at(Site::Request)
        && let Some(taken) = injected(here, qp, requester, batch, send)
    {
        return Some(taken);
    }
    if (core.pace.is_limited() || requester.rate_limit.is_set())
        && let Some(until) = paced(here, qp, requester, send, batch.entry(&entry.place))
    {
        batch.clear();
        return Some(Taken::Later(until));
    }
    if core.optional.any() {
        core.optional.count(send.opcode.info().begun, send.length);
    }
    None
}

/// Decides on a work request that was just taken off its queue. Returns what the taking results in,
/// unless the request begins.
fn injected<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    send: &SendWqe,
) -> Option<Taken> {
    match here.core.injection.request(here.faults_here(), qp.qpn, send) {
        Fate::Begins => None,
        Fate::Waits(until) => {
            move_to(qp, requester, send.index);
            batch.clear();
            Some(Taken::Later(until))
        }
        Fate::Fails(status) => {
            let (id, opcode) = (send.id(), send.completed());
            Some(Taken::Malformed(Malformed { id, opcode, status }))
        }
        Fate::FailsQp => {
            // The work request is flushed with those after it.
            move_to(qp, requester, send.index);
            qp.failed(here.core, Kind::QpFatal);
            Some(Taken::Failed)
        }
    }
}

/// Returns the time before which a limit does not let an entry begin, if it is not over. The
/// entry stays the next one then.
fn paced<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    requester: &mut Requester<H>,
    send: &SendWqe,
    raw: &[u8],
) -> Option<Nanos> {
    if send.is_local() {
        return None;
    }
    // All frames of a SEGMENT count, because their headers may be longer than the data.
    let bytes = if send.opcode == Opcode::Segment { send.frames(raw).bytes } else { send.length };
    let Requester { rate_limit, reserved, .. } = requester;
    let until = here.core.pace.wait(rate_limit, reserved, bytes, here.now())?;
    move_to(qp, requester, send.index);
    Some(until)
}

/// Makes the entry at this index the next one.
#[inline]
pub(crate) fn move_to<H: Host>(qp: &Qp<H>, requester: &mut Requester<H>, index: u32) {
    requester.ci = index;
    qp.next_send.store(index, Ordering::Relaxed);
}

/// Handles a faulty send queue.
#[cold]
fn fail<H: Host>(core: &Core<H>, qp: &Qp<H>, why: &str) {
    core.warn(
        |name| tracing::warn!(function = name, qpn = %qp.qpn, "the send queue has failed: {why}"),
    );
    qp.failed(core, Kind::QpFatal);
}

/// Completes up to [`BATCH`] entries of the send queue of a QP in the error state with a flush
/// error, or fewer if the slice is over. Returns their number.
pub fn flush<H: Host>(
    core: &Arc<Core<H>>,
    qp: &Arc<Qp<H>>,
    batch: &mut Batch,
    slice: &Slice<'_, H>,
) -> u32 {
    let mut guard = qp.requester.lock();
    let requester = &mut *guard;
    let here = TurnContext::new(core, qp, slice);
    batch.clear();
    (requester.not_before, requester.reserved) = (None, None);
    requester.open_reads.resume_at = None;
    if core.ranges.has_blocks() {
        core.ranges.end_all_of(qp.qpn);
    }
    let (mut entry, mut flushed) = (Entry::EMPTY, 0);
    while flushed < BATCH && qp.flushes_sends() && !qp.dead.load(Ordering::Acquire) {
        if qp.waits_for(&qp.send_cq) {
            break;
        }
        let (id, opcode) = if let Some(entry) = requester.open_reads.pop() {
            let Completion { wr_id, wqe_index: index, opcode, .. } = entry.completion;
            (WqeId { wr_id, index }, opcode)
        } else if let Some(Posted { send, opcode, .. }) =
            requester.path.outstanding().and_then(Outstanding::pop)
        {
            (send.id(), opcode)
        } else if let Some(send) = requester.current.take() {
            (send.id(), send.completed())
        } else {
            match take_posted(&here, qp, requester, batch, &mut entry) {
                Ok(Taken::Entry) => (entry.send.id(), entry.send.completed()),
                Ok(Taken::Malformed(Malformed { id, opcode, .. })) => (id, opcode),
                _ => break,
            }
        };
        if opcode == cq::Opcode::Transfer {
            core.ranges.end_all_of(qp.qpn);
            qp.mark_wait.clear();
        }
        let status = Status::WrFlushErr;
        let completion = Completion::of_send(qp.qpn, id, opcode, status);
        if here.complete(&qp.send_cq, &completion).is_err() {
            break;
        }
        flushed += 1;
        slice.charge(cost::REQUEST);
        if slice.is_over() {
            break;
        }
    }
    if let Path::Packets(sender) = &mut requester.path {
        sender.end();
    }
    flushed
}
