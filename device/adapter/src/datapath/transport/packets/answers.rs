//! Answers of the peer, which complete work requests and carry the bytes of READs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use vrnic_abi::qp::State;
use vrnic_faults::Site;
use vrnic_roce::Discard;
use vrnic_roce::requester::Effect;
use vrnic_roce::wire::Packet;

use super::deferral::Deferral;
use super::disordered::{self, Answer};
use super::requests::{Received, admit};
use crate::datapath::constants::{LATE_PAUSE, LONGEST_PAUSE, PAGES_PAUSE};
use crate::datapath::runs::Runs;
use crate::datapath::sgl::SgList;
use crate::datapath::transport::peers::Network;
use crate::datapath::turn::TurnContext;
use crate::host::{Awaited, HeldMemory, Host};
use crate::memory::tpt::Denied;
use crate::objects::qp::deferred_read::DeferredRead;
use crate::objects::qp::remote::Sender;
use crate::objects::qp::takeover::Takeover;
use crate::objects::qp::waiting_frame::WaitingFrame;
use crate::objects::qp::{Path, Qp};
use crate::slice::Slice;
use crate::stats::Counter;

/// Processes an answer for a QP. Completions are written in the QP's turn.
///
/// # Errors
/// Returns the reason for which it is dropped.
pub(super) fn receive<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    received: &Received<'_>,
    slice: &Slice<'_, H>,
) -> Result<(), Discard> {
    let mut guard = qp.requester.lock();
    let asker = guard.asker();
    let Path::Packets(sender) = &mut guard.path else { return Err(Discard::State) };
    if !matches!(qp.state(), State::Rts | State::Sqd) {
        return Err(Discard::State);
    }
    admit(network, &sender.way, received)?;
    if let Some(late) = &mut sender.late {
        let waits = late.wait(Box::new(WaitingFrame::of(received.arrived)));
        return if waits { Ok(()) } else { Err(Discard::Early) };
    }
    let here = TurnContext::patient(network.core(), qp, asker, slice);
    take(&here, qp, sender, received)
}

/// Processes an answer, which comes from the peer.
///
/// # Errors
/// Returns the reason for which it is dropped.
fn take<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    sender: &mut Sender,
    received: &Received<'_>,
) -> Result<(), Discard> {
    let packet = &received.packet;
    let waits = here.tpt.has_paged()
        || here.memory.may_wait()
        || here.core.ranges.has_blocks()
        || here.core.injection.looks_at(Site::Copy)
        || sender.reading.is_some();
    let found = match waits {
        true => sink(here, qp, sender, packet),
        false => Ok(None),
    };
    let now = here.now();
    match found {
        Err(Deferral::Absent) => {
            sender.engine.ask_again(now.plus(pause(here, PAGES_PAUSE)));
            return Ok(());
        }
        Err(Deferral::Awaited(wait)) => {
            let mut late = DeferredRead::new(now, now.plus(wait));
            let _has_room = late.wait(Box::new(WaitingFrame::of(received.arrived)));
            sender.late = Some(Box::new(late));
            return Ok(());
        }
        _ => {}
    }
    let effect = sender.engine.receive(now, packet)?;
    here.step(Counter::RxPkts);
    here.add(Counter::RxBytes, packet.payload.len() as u64);
    let word;
    let (id, offset, bytes) = match effect {
        Effect::Nothing => return Ok(()),
        Effect::Place { id, offset, bytes } => (id, offset, bytes),
        Effect::Old { id, value } => {
            word = value.to_le_bytes();
            (id, 0, &word[..])
        }
    };
    let placed = match found {
        Ok(Some(runs)) => runs.write::<H>(&here.memory, bytes),
        Ok(None) => place(here, qp, sender, id, offset, bytes),
        Err(Deferral::TakenOver) => Some(()),
        Err(Deferral::Refused | Deferral::Absent | Deferral::Awaited(_)) => None,
    };
    here.moved(bytes.len() as u64);
    if placed.is_none() {
        sender.engine.refuse(id);
    }
    Ok(())
}

/// Returns the time after which bytes that the host moves are looked for again, or `usual` if it
/// moves none.
fn pause<H: Host>(here: &TurnContext<'_, H>, usual: Duration) -> Duration {
    match here.host().moves_for() {
        Duration::ZERO => usual,
        wait => wait.min(LONGEST_PAUSE),
    }
}

/// Executes an answer that has waited for its bytes, and the packets behind it, if its time has
/// come. Those behind another one that waits wait again.
#[cold]
pub(super) fn go_on<H: Host>(here: &TurnContext<'_, H>, qp: &Qp<H>, sender: &mut Sender) {
    let now = here.now();
    let Some(late) = sender.late.take_if(|late| late.due <= now) else { return };
    let until = late.until;
    for (nth, held) in late.into_packets().into_iter().enumerate() {
        if let Some(late) = &mut sender.late {
            let _has_room = late.wait(held);
            continue;
        }
        if let Some(received) = Received::of(&held)
            && take(here, qp, sender, &received).is_err()
        {
            here.step(Counter::RxRoceDiscards);
        }
        if let Some(late) = sender.late.as_mut().filter(|_| nth == 0) {
            late.until = until;
        }
    }
    if sender.late.as_ref().is_some_and(|late| late.until <= now) {
        sender.late = None;
        sender.engine.ask_again(now.plus(pause(here, PAGES_PAUSE)));
    }
}

/// Stores bytes at an offset in the memory of the work request `id`. Returns `None` if the memory
/// must not be written, or is not accessible.
fn place<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    sender: &Sender,
    id: u64,
    offset: u32,
    bytes: &[u8],
) -> Option<()> {
    let (posted, raw) = sender.outstanding.find(id)?;
    let mut side = SgList::default();
    side.add_sink(here, qp.user(), &posted.send, raw).ok()?;
    side.write::<H>(&here.memory, offset.into(), bytes).ok()
}

/// Looks up the memory to which an answer goes, before the engine takes the answer. It cannot be
/// looked up afterwards, because its pages may have become absent. Returns `None` if the memory is
/// refused when the answer is stored.
fn sink<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    sender: &mut Sender,
    packet: &Packet<'_>,
) -> Result<Option<Runs>, Deferral> {
    let Some((id, bytes)) = sender.engine.waits_for(packet.head.psn) else {
        return Ok(None);
    };
    let Some((posted, raw)) = sender.outstanding.find(id) else { return Ok(None) };
    let mut side = SgList::default();
    if side.add_sink(here, qp.user(), &posted.send, raw).is_err() {
        return Ok(None);
    }
    let range = u64::from(bytes.start)..u64::from(bytes.end);
    if side.has_ranges() {
        let waits = !side.has(range.start, range.end);
        let is_absent = waits && side.fault(here, range) == Denied::Absent;
        return if is_absent { Err(Deferral::Absent) } else { Ok(None) };
    }
    let is_handed = sender.takeover.as_ref().is_some_and(|it| it.is_of(id));
    // The engine does not take an answer after a missing one.
    let is_next = sender.engine.next_answered() == Some(id);
    if is_next && (here.core.injection.looks_at(Site::Copy) || sender.reading.is_some()) {
        let Packet { payload, .. } = *packet;
        let (opcode, ends) = (posted.send.opcode, range.end == posted.send.length);
        let answer = Answer { qpn: qp.qpn, id, opcode, range: range.clone(), ends, payload };
        if let Some(aside) = disordered::place(here, &mut sender.reading, &side, &answer) {
            return Err(aside);
        }
    }
    if (is_handed || !side.is_immediate::<H>(&here.memory, range.clone())) && !is_next {
        return Ok(None);
    }
    if is_handed || !side.is_immediate::<H>(&here.memory, range.clone()) {
        let takeover = sender.takeover.get_or_insert_default();
        takeover.turn_to(id);
        let ends = range.end == posted.send.length;
        return hand_over(here, takeover, &side, Part { range, ends, payload: packet.payload });
    }
    match Runs::find(&side, range.clone()) {
        Some(runs) => Ok(Some(runs)),
        None if side.fault(here, range) == Denied::Absent => Err(Deferral::Absent),
        None => Ok(None),
    }
}

/// The bytes of an answer.
struct Part<'p> {
    range: Range<u64>,
    /// True if they are the last ones of the message.
    ends: bool,
    payload: &'p [u8],
}

/// Passes the bytes of an answer to memory that the host writes. The last ones count as stored when
/// all bytes of the message have arrived there.
#[cold]
fn hand_over<H: Host>(
    here: &TurnContext<'_, H>,
    takeover: &mut Takeover,
    side: &SgList<'_>,
    Part { range, ends, payload }: Part<'_>,
) -> Result<Option<Runs>, Deferral> {
    // Neither does it take one of another length.
    if payload.len() as u64 != range.end.saturating_sub(range.start) || !takeover.has(range.start) {
        return Ok(None);
    }
    if !takeover.has(range.end) {
        if side.hand_over::<H>(&here.memory, range.start, payload, takeover.progress()).is_err() {
            let is_absent = side.fault(here, range) == Denied::Absent;
            return Err(if is_absent { Deferral::Absent } else { Deferral::Refused });
        }
        takeover.reach(range.end);
    }
    match takeover.awaited() {
        Awaited::Failed => Err(Deferral::Refused),
        Awaited::Soon if ends => Err(Deferral::Awaited(pause(here, LATE_PAUSE))),
        _ => Err(Deferral::TakenOver),
    }
}
