//! Answers of READs whose bytes become visible in another order, if a rule for faults demands it.

use std::ops::Range;

use vrnic_abi::Qpn;
use vrnic_abi::sq::{Class, Opcode};

use super::deferral::Deferral;
use super::reordering::Reordering;
use crate::datapath::constants::{BLOCKS_PAUSE, PAGES_PAUSE};
use crate::datapath::sgl::SgList;
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::qp::reading::Reading;

/// The bytes of an answer.
pub(super) struct Answer<'p> {
    pub(super) qpn: Qpn,
    /// The number of the work request, and its operation.
    pub(super) id: u64,
    pub(super) opcode: Opcode,
    /// The place of the bytes in the message.
    pub(super) range: Range<u64>,
    /// True if they are the last ones.
    pub(super) ends: bool,
    pub(super) payload: &'p [u8],
}

/// Keeps the bytes of an answer, or places blocks of those that are kept. Returns `None` if its
/// bytes are stored in the usual order, or if the engine does not take it.
#[cold]
pub(super) fn place<H: Host>(
    here: &TurnContext<'_, H>,
    reading: &mut Option<Box<Reading>>,
    side: &SgList<'_>,
    answer: &Answer<'_>,
) -> Option<Deferral> {
    let Answer { id, ref range, ends, payload, .. } = *answer;
    if payload.len() as u64 != range.end.saturating_sub(range.start) {
        return None;
    }
    if reading.as_ref().is_none_or(|reading| reading.id != id) {
        *reading = begin(here, side, answer);
    }
    let known = reading.as_deref_mut().filter(|it| it.id == id && it.seed.is_some())?;
    if range.start == known.end() && known.place.is_none() {
        let has_room = known.keep(payload);
        known.place = (ends || !has_room).then_some(0);
    } else if range.end > known.end() {
        return None;
    }
    if range.end != known.end() || known.place.is_none() {
        return Some(Deferral::TakenOver);
    }
    match blocks(here, known, side) {
        Err(Denied::Absent) => return Some(Deferral::Awaited(PAGES_PAUSE)),
        Err(_) => return Some(Deferral::Refused),
        Ok(false) => return Some(Deferral::Awaited(BLOCKS_PAUSE)),
        Ok(true) if ends => *reading = None,
        Ok(true) => known.turn_over(),
    }
    Some(Deferral::TakenOver)
}

/// Decides on the READ that an answer begins.
fn begin<H: Host>(
    here: &TurnContext<'_, H>,
    side: &SgList<'_>,
    answer: &Answer<'_>,
) -> Option<Box<Reading>> {
    let &Answer { qpn, id, opcode, ref range, .. } = answer;
    if range.start != 0 || range.is_empty() || opcode.info().class != Class::Read {
        return None;
    }
    let relaxed = || Some(side.is_relaxed());
    let (core, faults) = (here.core, here.faults_here());
    let (seed, ticket) = core.injection.order_of_packets(faults, qpn, opcode, relaxed)?.unzip();
    let (start, bytes, place) = (0, Vec::new(), None);
    Some(Box::new(Reading { id, seed, start, bytes, place, _ticket: ticket }))
}

/// Places the next blocks. Returns whether all have been placed.
///
/// # Errors
/// The reason for which the memory of a block is not accessible. Pages that are absent have been
/// requested.
fn blocks<H: Host>(
    here: &TurnContext<'_, H>,
    reading: &mut Reading,
    side: &SgList<'_>,
) -> Result<bool, Denied> {
    let Reading { start, seed: Some(seed), ref bytes, place: Some(ref mut place), .. } = *reading
    else {
        return Ok(true);
    };
    let placed = Reordering { start, bytes, seed }.place::<H>(side, &here.memory, place);
    placed.map_err(|at| side.fault(here, at))
}
