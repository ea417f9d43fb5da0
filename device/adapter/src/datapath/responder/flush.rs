//! ATOMIC WRITE and FLUSH of a peer (IBTA volume 1, annex A19).

use std::sync::atomic::{Ordering, fence};

use vrnic_abi::qp::Access;
use vrnic_abi::sq::FlushFlags;

use super::{end, find};
use crate::datapath::inbound::{Inbound, Remote};
use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::sgl::SgList;
use crate::host::{HeldMemory, Host};
use crate::memory::tpt::Denied;
use crate::objects::qp::Responder;

/// Stores the 8 bytes of an ATOMIC WRITE at once.
///
/// # Errors
/// Returns the reason for which the message is refused.
pub fn atomic_write<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    inbound: &Inbound,
    bytes: [u8; 8],
) -> Result<(), Refusal> {
    let mut side = SgList::default();
    find(there, responder, inbound, &mut side)?;
    let addr = side.word().ok_or_else(|| side.refusal(&there.turn, 0..8))?;
    let memory = &there.turn.memory;
    memory.store(addr, u64::from_le_bytes(bytes)).map_err(|_| Refusal::Operational)?;
    end(there, responder, inbound, &side).map(drop)
}

/// Executes a FLUSH: checks its key, and makes all writes before it visible to every thread and to
/// the guest.
///
/// # Errors
/// Returns the reason for which the message is refused.
pub fn flush<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    inbound: &Inbound,
) -> Result<(), Refusal> {
    let mut side = SgList::default();
    find(there, responder, inbound, &mut side)?;
    fence(Ordering::SeqCst);
    end(there, responder, inbound, &side).map(drop)
}

/// Checks the placement that a FLUSH asks for.
///
/// # Errors
/// Returns an error if the QP does not have the right, or if the memory must be made persistent. No
/// region has that right, because no adapter has persistent memory.
pub(super) fn allowed(responder: &Responder, flags: FlushFlags) -> Result<(), Refusal> {
    let mut need = Access::empty();
    need.set(Access::FLUSH_GLOBAL, flags.contains(FlushFlags::GLOBAL));
    need.set(Access::FLUSH_PERSISTENT, flags.contains(FlushFlags::PERSISTENT));
    if !responder.access.0.contains(need) {
        return Err(Refusal::Invalid);
    }
    match flags.contains(FlushFlags::PERSISTENT) {
        true => Err(Refusal::Access(Denied::Rights)),
        false => Ok(()),
    }
}

/// Returns the memory whose key a FLUSH must be allowed to use, and its length. That is at least
/// one byte, because the key of a FLUSH is always checked (rxe_resp.c, `check_rkey`).
pub(super) fn range<H: Host>(
    there: &PeerContext<'_, H>,
    memory: Remote,
    length: u32,
    flags: FlushFlags,
) -> (Remote, u64) {
    if !flags.contains(FlushFlags::REGION) {
        return (memory, u64::from(length.max(1)));
    }
    // The check of the range finds an invalid key.
    let addr = there.turn.tpt.first_address(memory.key).unwrap_or(memory.addr);
    (Remote { addr, ..memory }, 1)
}
