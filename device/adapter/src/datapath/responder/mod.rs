//! The receiving half of a QP: executes messages of any transport, under the responder's lock.
//!
//! [`find`] checks a message and finds its memory, the transport moves the bytes, and [`end`]
//! invalidates keys and completes the receive. [`find`] is called for each part of a long message,
//! [`end`] only with the last part. A WRITE with immediate data needs a receive before its last
//! part is placed: [`accept`].
//!
//! | module | contents |
//! | --- | --- |
//! | [`receives`] | taking the next receive |
//! | [`flush`] | ATOMIC WRITE and FLUSH |
//! | [`outcome`] | completions of receives, failures, the flush |

pub mod flush;
pub mod outcome;
pub mod receives;

use vrnic_abi::Key;
use vrnic_abi::admin::QpFlags;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Access, State, Type};

use self::outcome::received;
use self::receives::{receive, take};
use crate::datapath::inbound::{Inbound, Operation, Remote};
use crate::datapath::local_wr;
use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::sgl::SgList;
use crate::datapath::xrc;
use crate::host::{HeldMemory, Host};
use crate::memory::tpt::{Message, RemoteUse, User};
use crate::objects::qp::{Ended, Responder};
use crate::requests::wqe::Segment;
use crate::stats::Counter;

/// Checks a message or a part of it, and adds the memory that its bytes are copied to or from to
/// `side`. Nothing must be undone before the part is passed again: a receive that was taken for the
/// message stays assigned to it.
///
/// # Errors
/// Returns the reason for which the message is refused.
#[inline(always)]
pub fn find<'a, H: Host>(
    there: &'a PeerContext<'_, H>,
    responder: &mut Responder,
    inbound: &Inbound,
    side: &mut SgList<'a>,
) -> Result<(), Refusal> {
    if !responder.established {
        established(there, responder);
    }
    if there.qp.kind == Type::XrcTgt {
        xrc::choose(there, responder, inbound.srqn)?;
    }
    let wanted =
        |remote, need| Wanted { remote, len: inbound.length, message: Some(inbound.number), need };
    match inbound.operation {
        Operation::Send | Operation::SendInvalidate(_) => receive(there, responder, side, inbound),
        Operation::Write(remote) => {
            add_remote(there, responder, side, &wanted(remote, Access::REMOTE_WRITE))
        }
        Operation::Read(remote) => {
            accepts_reads(responder)?;
            add_remote(there, responder, side, &wanted(remote, Access::REMOTE_READ))
        }
        Operation::FetchAdd { word, .. } | Operation::CompareSwap { word, .. } => {
            accepts_reads(responder)?;
            if !word.addr.is_multiple_of(8) {
                return Err(Refusal::Invalid);
            }
            add_remote(there, responder, side, &wanted(word, Access::REMOTE_ATOMIC))
        }
        Operation::AtomicWrite(word) => {
            accepts_reads(responder)?;
            if !word.addr.is_multiple_of(8) || inbound.length != 8 {
                return Err(Refusal::Invalid);
            }
            add_remote(there, responder, side, &wanted(word, Access::REMOTE_WRITE))
        }
        Operation::Flush { memory, length, flags } => {
            accepts_reads(responder)?;
            flush::allowed(responder, flags)?;
            let (remote, len) = flush::range(there, memory, length, flags);
            let need = Access::FLUSH_GLOBAL;
            add_remote(
                there,
                responder,
                side,
                &Wanted { remote, len, message: Some(inbound.number), need },
            )
        }
    }
}

/// Checks a segment of a WRITE that has arrived out of order, and adds its memory to `side`. If the
/// key is valid for one message, the caller must note the access in its entry.
///
/// # Errors
/// Returns the reason for which the segment must not be placed.
pub fn find_ahead<'a, H: Host>(
    there: &'a PeerContext<'_, H>,
    responder: &Responder,
    remote: Remote,
    len: u64,
    side: &mut SgList<'a>,
) -> Result<(), Refusal> {
    let wanted = Wanted { remote, len, message: None, need: Access::REMOTE_WRITE };
    add_remote(there, responder, side, &wanted)
}

/// Takes a receive for a WRITE with immediate data, unless the message has one.
///
/// # Errors
/// Returns the reason for which the message is refused.
#[inline]
pub fn accept<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    inbound: &Inbound,
) -> Result<(), Refusal> {
    let takes = matches!(inbound.operation, Operation::Write(_)) && inbound.imm.is_some();
    if takes { take(there, responder, inbound) } else { Ok(()) }
}

/// Ends a message whose last bytes have been moved to or from `side`: invalidates its key, if it
/// has one, and completes its receive. If a key was invalidated, the receive stays open, and
/// [`received`] must be called when the last use of the key has ended.
///
/// # Errors
/// Returns an error if the key must not be invalidated, or if the receive CQ has no room. The QP
/// has failed then.
#[inline(always)]
pub fn end<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    inbound: &Inbound,
    side: &SgList<'_>,
) -> Result<Option<Ended>, Refusal> {
    match inbound.operation {
        Operation::Send | Operation::SendInvalidate(_) => {
            let plain = matches!(inbound.operation, Operation::Send);
            if !plain || there.qp.tags.any() {
                let ended = end_key(there, inbound, side)?;
                if ended.is_some() {
                    return Ok(ended);
                }
            }
            received(there, responder, inbound, None)?;
        }
        Operation::Write(remote) => {
            placed(there, inbound.number, remote, side);
            if inbound.imm.is_some() {
                received(there, responder, inbound, None)?;
            }
        }
        Operation::Read(remote)
        | Operation::FetchAdd { word: remote, .. }
        | Operation::CompareSwap { word: remote, .. }
        | Operation::AtomicWrite(remote)
        | Operation::Flush { memory: remote, .. } => placed(there, inbound.number, remote, side),
    }
    Ok(None)
}

/// Executes an atomic operation. Returns the old value of the word.
///
/// # Errors
/// Returns the reason for which the message is refused.
pub fn atomic<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    inbound: &Inbound,
) -> Result<u64, Refusal> {
    let mut side = SgList::default();
    find(there, responder, inbound, &mut side)?;
    let old = change_word(there, inbound, &side)?;
    end(there, responder, inbound, &side)?;
    Ok(old)
}

/// Changes the word in `side`. Returns its old value.
fn change_word<H: Host>(
    there: &PeerContext<'_, H>,
    inbound: &Inbound,
    side: &SgList<'_>,
) -> Result<u64, Refusal> {
    let addr = side.word().ok_or_else(|| side.refusal(&there.turn, 0..8))?;
    let memory = &there.turn.memory;
    let old = match inbound.operation {
        Operation::FetchAdd { add, .. } => memory.fetch_add(addr, add),
        Operation::CompareSwap { compare, swap, .. } => memory.compare_swap(addr, compare, swap),
        _ => return Err(Refusal::Invalid),
    };
    old.map_err(|_| Refusal::Operational)
}

/// A part of the memory that a READ reads.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The memory.
    pub remote: Remote,
    /// Number of its bytes before the part.
    pub at: u64,
    /// Number of bytes of the READ from the part on.
    pub left: u64,
    /// The number of the READ.
    pub message: u64,
    /// True if the part is the last one.
    pub last: bool,
}

/// Copies a part of the memory of a READ that [`find`] has accepted earlier. The key is looked up
/// again, because it may have been invalidated in the meantime.
///
/// # Errors
/// Returns the reason for which the READ cannot continue.
pub fn read_on<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &Responder,
    source: &Source,
    into: &mut [u8],
) -> Result<(), Refusal> {
    let &Source { remote, at, left, message, last } = source;
    // The memory is looked up to the end of the part.
    let end = at.saturating_add(into.len() as u64);
    let mut side = SgList::default();
    let (message, need) = (Some(message), Access::REMOTE_READ);
    let wanted = Wanted { remote, len: end, message, need };
    look_up(there, responder, &mut side, &wanted)?;
    there.turn.memory.of_message(source.message);
    if !side.is_immediate::<H>(&there.turn.memory, at..end) {
        let mut whole = SgList::default();
        let wanted = Wanted { len: at.saturating_add(left), ..wanted };
        if look_up(there, responder, &mut whole, &wanted).is_ok() {
            whole.announce::<H>(&there.turn.memory, at..wanted.len, into.len() as u64);
        }
    }
    side.read::<H>(&there.turn.memory, at, into).map_err(|_| side.refusal(&there.turn, at..end))?;
    if last {
        placed(there, source.message, remote, &side);
    }
    Ok(())
}

/// Reports the first message on a QP whose driver waits for one.
#[cold]
fn established<H: Host>(there: &PeerContext<'_, H>, responder: &mut Responder) {
    responder.established = true;
    if there.qp.state() == State::Rtr {
        there.turn.core.report(Kind::CommEstablished, there.qp.qpn);
    }
}

/// Returns the peer's QP as a user of keys.
#[inline]
fn user<H: Host>(there: &PeerContext<'_, H>, responder: &Responder) -> User {
    match &responder.xrc {
        Some(srq) if there.qp.kind == Type::XrcTgt => User { qpn: there.qp.qpn, ..srq.user() },
        _ => there.qp.user(),
    }
}

/// Checks that the QP has resources for READs and atomics.
fn accepts_reads(responder: &Responder) -> Result<(), Refusal> {
    if responder.max_dest_rd_atomic == 0 { Err(Refusal::Invalid) } else { Ok(()) }
}

/// Adds the memory that a message refers to by a key, if the QP has this right.
#[inline(always)]
fn add_remote<'a, H: Host>(
    there: &'a PeerContext<'_, H>,
    responder: &Responder,
    side: &mut SgList<'a>,
    wanted: &Wanted,
) -> Result<(), Refusal> {
    if !responder.access.0.contains(wanted.need) {
        return Err(Refusal::Invalid);
    }
    look_up(there, responder, side, wanted)
}

/// Memory that the message with this number refers to, and the rights that it needs.
struct Wanted {
    remote: Remote,
    len: u64,
    message: Option<u64>,
    need: Access,
}

/// Adds memory that a message refers to by a key, after the checks of the key.
#[inline(always)]
fn look_up<'a, H: Host>(
    there: &'a PeerContext<'_, H>,
    responder: &Responder,
    side: &mut SgList<'a>,
    &Wanted { remote, len, message, need }: &Wanted,
) -> Result<(), Refusal> {
    let len = u32::try_from(len).map_err(|_| Refusal::Invalid)?;
    let segment = Segment { addr: remote.addr, len, key: remote.key };
    let user = user(there, responder);
    let windows_only = there.qp.has(QpFlags::WINDOWS_ONLY);
    let by = RemoteUse { need, message, windows_only };
    side.add_remote(&there.turn, user, &segment, by).map_err(Refusal::Access)
}

/// Records that the last bytes of a message have been copied by a key that may be valid for one
/// message only.
#[inline]
fn placed<H: Host>(there: &PeerContext<'_, H>, number: u64, remote: Remote, side: &SgList<'_>) {
    if side.one_touch() {
        let message = Message { qpn: there.qp.qpn, number };
        there.turn.tpt.end_message(remote.key, message);
    }
}

/// Invalidates the key that a message names, if any: by SEND with invalidate, or by a response to a
/// command.
#[cold]
fn end_key<H: Host>(
    there: &PeerContext<'_, H>,
    inbound: &Inbound,
    side: &SgList<'_>,
) -> Result<Option<Ended>, Refusal> {
    let (turn, qp) = (&there.turn, there.qp);
    if let Operation::SendInvalidate(key) = inbound.operation {
        turn.tpt.invalidate(key, qp.user(), true).map_err(Refusal::Access)?;
        turn.step(Counter::RemoteInvalidations);
        return Ok(Some(Ended::Invalidated(key)));
    }
    let read = |at, into: &mut [u8]| side.read::<H>(&turn.memory, at, into);
    let tag = qp.tags.response(inbound.length, read).map_err(|_| Refusal::Operational)?;
    let Some(key) = tag.map(Key::new) else { return Ok(None) };
    local_wr::end_command(qp, key).map_err(Refusal::Access)?;
    turn.step(Counter::RemoteInvalidations);
    Ok(Some(Ended::Command(key)))
}
