//! Answers of the peer, which complete work requests and carry the bytes of READs.

use std::sync::Arc;

use vrnic_abi::qp::State;
use vrnic_roce::Discard;
use vrnic_roce::requester::Effect;
use vrnic_roce::wire::Packet;

use super::requests::{Received, admit};
use crate::datapath::constants::PAGES_PAUSE;
use crate::datapath::runs::Runs;
use crate::datapath::sgl::SgList;
use crate::datapath::transport::peers::Network;
use crate::datapath::turn::TurnContext;
use crate::host::{HeldMemory, Host};
use crate::memory::tpt::Denied;
use crate::objects::qp::remote::Sender;
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
    let packet = &received.packet;
    let here = TurnContext::patient(network.core(), qp, asker, slice);
    let waits = here.tpt.has_paged() || here.memory.may_wait() || here.core.ranges.has_blocks();
    let found = match waits {
        true => sink(&here, qp, sender, packet),
        false => Ok(None),
    };
    let Ok(found) = found else {
        sender.engine.ask_again(here.now().plus(PAGES_PAUSE));
        return Ok(());
    };
    let effect = sender.engine.receive(here.now(), packet)?;
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
        Some(runs) => runs.write::<H>(&here.memory, bytes),
        None => place(&here, qp, sender, id, offset, bytes),
    };
    here.moved(bytes.len() as u64);
    if placed.is_none() {
        sender.engine.refuse(id);
    }
    Ok(())
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

/// Pages of the memory to which an answer goes are absent, and have been requested.
struct Absent;

/// Looks up the memory to which an answer goes, before the engine takes the answer. It cannot be
/// looked up afterwards, because its pages may have become absent. Returns `None` if the memory is
/// refused when the answer is stored.
fn sink<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    sender: &Sender,
    packet: &Packet<'_>,
) -> Result<Option<Runs>, Absent> {
    let Some((id, bytes)) = sender.engine.waits_for(packet.head.psn) else { return Ok(None) };
    let Some((posted, raw)) = sender.outstanding.find(id) else { return Ok(None) };
    let mut side = SgList::default();
    if side.add_sink(here, qp.user(), &posted.send, raw).is_err() {
        return Ok(None);
    }
    let range = u64::from(bytes.start)..u64::from(bytes.end);
    match Runs::find(&side, range.clone()) {
        None if side.has(range.start, range.end) => Ok(None),
        Some(runs) if runs.prepare::<H>(&here.memory, packet.payload) => Ok(Some(runs)),
        Some(_) if side.fault(here, range.clone()) == Denied::Absent => Err(Absent),
        Some(_) => Ok(None),
        None if side.fault(here, range) == Denied::Absent => Err(Absent),
        None => Ok(None),
    }
}
