//! Receives: takes the next one for a message, and finds its memory.

use std::sync::Arc;

use vrnic_abi::qp::Type;
use vrnic_faults::Site;

use crate::datapath::inbound::Inbound;
use crate::datapath::injected;
use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::sgl::SgList;
use crate::datapath::xrc;
use crate::host::{HeldMemory, Host};
use crate::objects::qp::Responder;
use crate::objects::srq::Srq;
use crate::requests::wqe::{RecvWqe, SegmentList};
use crate::slice::cost;
use crate::stats::Counter;

/// Takes a receive for a message, unless the message has one. A message that was refused after
/// READs begins again with the receive that it had.
///
/// # Errors
/// [`Refusal::NotReady`] if none is posted, [`Refusal::Operational`] if the queue is faulty,
/// [`Refusal::Invalid`] if a message begins although the previous one has not ended,
/// [`Refusal::Unexpected`] if a message continues that has not begun here.
pub fn take<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    inbound: &Inbound,
) -> Result<(), Refusal> {
    let begins = inbound.from == 0;
    if responder.current.is_some() {
        let same = responder.current_for == inbound.number;
        // On an unreliable connection, the receive of a message whose end is lost goes to the next
        // message.
        if begins && !same && there.qp.kind != Type::Uc {
            return Err(Refusal::Invalid);
        }
        return Ok(());
    }
    // The beginning of the message may have been placed out of order.
    if !begins && !responder.has_ahead() {
        return Err(Refusal::Unexpected);
    }
    if there.turn.looks_at(Site::Receive) && injected::hides(there, responder) {
        return Err(Refusal::NotReady);
    }
    let recv = next(there, responder)?.ok_or(Refusal::NotReady)?;
    responder.current = Some(recv);
    responder.current_for = inbound.number;
    Ok(())
}

/// Takes the next posted receive, of the QP's own queue or of its SRQ. Takes none while its CQ
/// holds entries back.
///
/// # Errors
/// [`Refusal::Operational`] if the queue's index or memory is faulty.
pub fn next<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
) -> Result<Option<RecvWqe>, Refusal> {
    if there.turn.slow_path && there.qp.waits_for(xrc::receive_cq(there, responder)) {
        return Ok(None);
    }
    let Responder { ahead, ci, seen, xrc, raw, .. } = responder;
    if let Some(taken) = ahead.as_mut().and_then(|ahead| ahead.pop()) {
        *raw = taken.raw;
        return Ok(Some(taken.wqe));
    }
    fetch(there, Queue { ci, seen, xrc: xrc.as_ref() }, raw)
}

/// The positions in a QP's own queue, or the SRQ of the message.
struct Queue<'r> {
    /// Index of the next receive to use.
    ci: &'r mut u32,
    /// Index after the last receive that is known to be posted.
    seen: &'r mut u32,
    xrc: Option<&'r Arc<Srq>>,
}

/// Distance of the entries that are prefetched from the one that is read, and their number. More at
/// once would wait for each other.
const FETCHED_AHEAD: u32 = 8;
const FETCHED_TOGETHER: u32 = 2;

/// Reads the next posted receive.
#[inline(always)]
fn fetch<H: Host>(
    there: &PeerContext<'_, H>,
    Queue { ci, seen, xrc }: Queue<'_>,
    raw: &mut [u8],
) -> Result<Option<RecvWqe>, Refusal> {
    let Some(ring) = &there.qp.rq else { return fetch_shared(there, xrc, raw) };
    let index = *ci;
    if *seen == index {
        // The user's index is read only when necessary, because its cache line moves between two
        // processors.
        *seen = there.turn.host().bar_load32(there.qp.doorbell.rq_pi());
    }
    let posted = seen.wrapping_sub(index);
    if posted == 0 {
        return Ok(None);
    }
    if index.is_multiple_of(FETCHED_TOGETHER) && posted > FETCHED_AHEAD {
        let (next, left) = (index.wrapping_add(FETCHED_AHEAD), posted - FETCHED_AHEAD);
        if let Some(run) = ring.run_at(next, FETCHED_TOGETHER.min(left)) {
            there.turn.memory.fetch_ahead(run.addr, run.count as usize * ring.stride());
        }
    }
    let bytes = raw.get_mut(..ring.stride()).ok_or(Refusal::Operational)?;
    let read = ring.addr(index).filter(|_| posted <= ring.size());
    if read.is_none_or(|addr| there.turn.memory.read(addr, bytes).is_err()) {
        there.turn.core.warn(|name| {
            tracing::warn!(
                function = name,
                qpn = %there.qp.qpn,
                posted,
                "the receive queue has failed: its producer index is beyond the ring, or its memory is gone"
            );
        });
        return Err(Refusal::Operational);
    }
    *ci = index.wrapping_add(1);
    there.turn.step(Counter::RecvWrs);
    Ok(Some(taken(there, RecvWqe::parse(bytes, index, there.qp.user()))))
}

/// Counts a receive that was taken.
#[inline]
fn taken<H: Host>(there: &PeerContext<'_, H>, recv: RecvWqe) -> RecvWqe {
    let segments = recv.segments.map_or(0, |segments| segments.count());
    there.turn.slice.charge(cost::RECEIVE + cost::SEGMENT * segments);
    recv
}

/// Takes the next receive of the SRQ, if the QP or the message has an SRQ.
#[inline(never)]
fn fetch_shared<H: Host>(
    there: &PeerContext<'_, H>,
    xrc: Option<&Arc<Srq>>,
    raw: &mut [u8],
) -> Result<Option<RecvWqe>, Refusal> {
    let Some(srq) = there.qp.srq.as_ref().or(xrc) else { return Ok(None) };
    let recv = srq.take(&there.turn, raw).map_err(|_| Refusal::Operational)?;
    Ok(recv.map(|recv| taken(there, recv)))
}

/// Adds the buffer for a SEND to `side`.
///
/// # Errors
/// Returns the reason: there is no receive, it is too short, or its memory must not be written.
pub fn receive<'a, H: Host>(
    there: &'a PeerContext<'_, H>,
    responder: &mut Responder,
    side: &mut SgList<'a>,
    inbound: &Inbound,
) -> Result<(), Refusal> {
    take(there, responder, inbound)?;
    let length = inbound.length;
    let recv = responder.current.as_ref().ok_or(Refusal::NotReady)?;
    let segments = recv.segments.as_ref().ok_or(Refusal::Malformed)?;
    if segments.total() < length {
        return Err(Refusal::TooShort);
    }
    side.add_filled(&there.turn, recv.user, segments, &responder.raw, length)
        .map_err(|_| Refusal::Operational)
}

/// Copies bytes to the receive in progress, from `from` on.
///
/// # Errors
/// Returns the reason: there is no receive, or its memory must not be written.
pub fn write<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &Responder,
    from: u64,
    bytes: &[u8],
) -> Result<(), Refusal> {
    let recv = responder.current.as_ref().ok_or(Refusal::NotReady)?;
    let segments = recv.segments.as_ref().ok_or(Refusal::Malformed)?;
    let (turn, count) = (&there.turn, bytes.len() as u64);
    let mut target = SgList::default();
    target
        .add_filled(turn, recv.user, segments, &responder.raw, from + count)
        .map_err(|_| Refusal::Operational)?;
    target.write::<H>(&turn.memory, from, bytes).map_err(|_| Refusal::Operational)?;
    turn.slice.charge_copy(count);
    turn.moved(count);
    Ok(())
}

/// Adds the beginning of a buffer, up to `end`, to `side` for a message that arrives out of order.
/// `nth` selects the message's receive: 0 is the receive of the message in progress, 1 the next
/// one. From an SRQ only receive 0 is taken. Otherwise a peer could take receives away from other
/// QPs by sending the ends of messages that it never begins. Returns whether there is such a
/// buffer.
pub fn receive_ahead<'a, H: Host>(
    there: &'a PeerContext<'_, H>,
    responder: &mut Responder,
    side: &mut SgList<'a>,
    nth: usize,
    end: u64,
) -> bool {
    let Some((recv, raw)) = ahead(there, responder, nth) else { return false };
    let Some(segments) = recv.segments.as_ref().filter(|segments| segments.total() >= end) else {
        return false;
    };
    side.add_filled(&there.turn, recv.user, segments, raw, end).is_ok()
}

/// Returns the receive `nth` and its WQE, after taking all receives up to it; see
/// [`receive_ahead`]. Returns `None` if there are too few, or if too many would have to be taken.
fn ahead<'r, H: Host>(
    there: &PeerContext<'_, H>,
    responder: &'r mut Responder,
    nth: usize,
) -> Option<(&'r RecvWqe, &'r [u8])> {
    let Responder { current, ahead, ci, seen, xrc, raw, .. } = responder;
    match (&*current, nth.checked_sub(usize::from(current.is_some()))) {
        (Some(recv), None) => Some((recv, &*raw)),
        (current, nth) if there.qp.rq.is_none() && (current.is_some() || nth != Some(0)) => None,
        (_, nth) => {
            let fetch = |raw: &mut [u8]| {
                let queue = Queue { ci: &mut *ci, seen: &mut *seen, xrc: xrc.as_ref() };
                fetch(there, queue, raw).ok().flatten()
            };
            let taken = ahead.get_or_insert_default().get(nth.unwrap_or_default(), fetch)?;
            Some((&taken.wqe, &taken.raw))
        }
    }
}

/// Returns the number of bytes for which receive `nth` has room; see [`receive_ahead`].
pub fn length_ahead<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    nth: usize,
) -> Option<u64> {
    ahead(there, responder, nth)?.0.segments.as_ref().map(SegmentList::total)
}
