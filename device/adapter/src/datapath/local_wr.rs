//! Work requests that send no message. Those for keys are executed by the table of keys
//! ([`crate::memory::tpt`]), and those for address ranges wait for a direct transfer or a mark.

use std::sync::atomic::Ordering;

use vrnic_abi::admin::QpFlags;
use vrnic_abi::direct::Await;
use vrnic_abi::qp::Access;
use vrnic_abi::sq::{BindMwSeg, CommandFlags, MemFlags, Opcode, RegMrSeg};
use vrnic_abi::{GuestAddr, Key};

use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::limits::{MAX_FAST_REG_PAGES, MAX_QP_COMMANDS};
use crate::memory::tpt::{Binding, Bound, Buffer, CommandData, DataPages, Denied, Registration};
use crate::objects::direct::range::Taken;
use crate::objects::qp::Qp;
use crate::objects::qp::outstanding::CarriedKey;
use crate::requests::wqe::{Segment, SendWqe};
use crate::slice::cost;

/// The time at which a work request that sends no message is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The work request is complete at once.
    Now,
    /// When all present users of the key have ended.
    AfterReaders,
    /// At the end of a direct transfer, or when a mark is there. The request is then executed
    /// again.
    Later,
}

/// Executes a LOCAL_INV, REG_MR, BIND_MW, TRANSFER or AWAIT, whose WQE is `raw`.
///
/// # Errors
/// Returns the check that failed. Nothing has changed then.
pub(crate) fn run<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    send: &SendWqe,
    raw: &[u8],
) -> Result<Settled, Denied> {
    here.slice.charge(cost::KEY);
    if qp.has(QpFlags::NO_SQ_KEYS) && matches!(send.opcode, Opcode::RegMr | Opcode::BindMw) {
        return Err(Denied::Rights);
    }
    match send.opcode {
        Opcode::LocalInv => {
            here.tpt.invalidate(send.rkey, qp.user(), false)?;
            Ok(Settled::AfterReaders)
        }
        Opcode::RegMr => {
            if qp.context.get() != 0 {
                // Page lists have guest addresses.
                return Err(Denied::Foreign);
            }
            let seg: &RegMrSeg = SendWqe::body(raw).ok_or(Denied::Bounds)?;
            let wanted = Registration::new(send.rkey, qp.user(), send.raddr, seg)?;
            let pages = seg.page_count.get().min(MAX_FAST_REG_PAGES);
            here.slice.charge(cost::PAGE * u64::from(pages));
            here.tpt.register(&here.memory, &wanted)?;
            Ok(Settled::Now)
        }
        Opcode::Transfer => {
            let taken = here.core.ranges.take(send.rkey.get().into(), qp.user());
            qp.held.store(taken == Ok(Taken::Later), Ordering::Relaxed);
            Ok(if taken? == Taken::Done { Settled::Now } else { Settled::Later })
        }
        Opcode::Await => {
            let wanted = Await::from_fields(send.raddr, send.rkey.get()).ok_or(Denied::Bounds)?;
            let host = here.core.host();
            let found = host.bar_load32(qp.doorbell.mark(wanted.word));
            let taken = qp.mark_wait.execute(wanted, found, host.now());
            qp.held.store(taken == Ok(Taken::Later), Ordering::Relaxed);
            if taken? == Taken::Done {
                return Ok(Settled::Now);
            }
            here.core.mark_waits.add(qp.qpn, &qp.mark_wait);
            Ok(Settled::Later)
        }
        _ => bind(here, qp, send, raw),
    }
}

/// Executes a BIND_MW.
fn bind<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    send: &SendWqe,
    raw: &[u8],
) -> Result<Settled, Denied> {
    let seg: &BindMwSeg = SendWqe::body(raw).ok_or(Denied::Bounds)?;
    let flags = MemFlags::from_bits_truncate(seg.flags);
    let wanted = Binding {
        lkey: seg.lkey,
        addr: send.raddr,
        length: seg.length.get(),
        access: Access::from_bits_truncate(seg.access.get()),
        one_touch: flags.contains(MemFlags::ONE_TOUCH),
        same_key: flags.contains(MemFlags::SAME_KEY),
    };
    Ok(match here.tpt.bind(send.rkey, qp.user(), &wanted)? {
        Bound::Fresh => Settled::Now,
        Bound::Replaced => Settled::AfterReaders,
    })
}

/// Invalidates a key of the local side. Its memory may be in use until
/// [`wait_for_readers`](crate::objects::core::Core::wait_for_readers) has returned.
///
/// # Errors
/// Returns the check that failed. Nothing has changed then.
pub(crate) fn end_key<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    key: Key,
) -> Result<(), Denied> {
    here.slice.charge(cost::KEY);
    here.tpt.invalidate(key, qp.user(), false)
}

/// Creates the region of a SEND_CMD, whose WQE is `raw`. Returns its key.
///
/// # Errors
/// Returns the check that failed: [`Denied::Rights`] if the QP's send queue makes no keys valid,
/// [`Denied::Kind`] if the QP has no commands, [`Denied::Bounds`] if
/// the key's place is not in the message, [`Denied::Foreign`] for guest addresses of a user's QP,
/// [`Denied::Full`] if too many commands wait for a response.
pub(crate) fn open_command<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    send: &SendWqe,
    raw: &[u8],
) -> Result<Key, Denied> {
    if qp.has(QpFlags::NO_SQ_KEYS) {
        return Err(Denied::Rights);
    }
    if !qp.tags.any() {
        return Err(Denied::Kind);
    }
    let (seg, data) = SendWqe::command(raw).ok_or(Denied::Bounds)?;
    here.slice.charge(cost::KEY + cost::SEGMENT * data.count());
    qp.tags.place(seg.tag_offset.get(), send.length).ok_or(Denied::Bounds)?;
    let flags = CommandFlags::from_bits_truncate(seg.flags);
    if flags.intersects(CommandFlags::PHYSICAL | CommandFlags::PAGES) && qp.context.get() != 0 {
        return Err(Denied::Foreign);
    }
    let data = CommandData {
        buffer: command_buffer(here, send, raw)?,
        access: Access::from_bits_truncate(seg.access.get()),
        one_touch: flags.contains(CommandFlags::ONE_TOUCH),
        id: send.index,
        may_be_empty: false,
    };
    insert_command(here, qp, data)
}

/// Returns the place of the data of a SEND_CMD of context 0 or of a user, whose WQE is `raw`.
///
/// # Errors
/// Returns [`Denied::Bounds`] if the request has no such data.
pub(crate) fn command_buffer<'a, H: Host>(
    here: &TurnContext<'_, H>,
    send: &SendWqe,
    raw: &'a [u8],
) -> Result<Buffer<impl Iterator<Item = Segment> + Clone + use<'a, H>>, Denied> {
    let (seg, data) = SendWqe::command(raw).ok_or(Denied::Bounds)?;
    let flags = CommandFlags::from_bits_truncate(seg.flags);
    let mut segments = data.iter(raw);
    if flags.contains(CommandFlags::PAGES) {
        let (Some(all), None) = (segments.next(), segments.next()) else {
            return Err(Denied::Bounds);
        };
        let pages = DataPages::new(GuestAddr::new(all.addr), send.raddr, all.len.into())?;
        here.slice.charge(cost::PAGE * pages.list.count);
        return Ok(Buffer::Pages(pages));
    }
    let physical = flags.contains(CommandFlags::PHYSICAL);
    Ok(if physical { Buffer::Physical(segments) } else { Buffer::Ranges(segments) })
}

/// Creates the region of a command of `qp`, and returns its key.
///
/// # Errors
/// Returns [`Denied::Full`] if too many commands wait for a response, and the errors of
/// [`Tpt::insert_command`](crate::memory::tpt::Tpt::insert_command).
pub(crate) fn insert_command<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    data: CommandData<impl Iterator<Item = Segment> + Clone>,
) -> Result<Key, Denied> {
    let mut commands = qp.commands.lock();
    if commands.len() >= MAX_QP_COMMANDS {
        return Err(Denied::Full);
    }
    let key = here.tpt.insert_command(&here.memory, qp.user(), data)?;
    commands.insert(key);
    Ok(key)
}

/// Returns the offset of the key of a SEND_CMD in its message, or `None` if it has no place there.
pub(crate) fn key_place<H: Host>(qp: &Qp<H>, send: &SendWqe, raw: &[u8]) -> Option<u64> {
    let (seg, _) = SendWqe::command(raw)?;
    qp.tags.place(seg.tag_offset.get(), send.length)
}

/// Returns the key that a SEND_CMD of packets or of a stream carries: `known`, or a new one.
///
/// # Errors
/// As [`open_command`].
#[cold]
pub(crate) fn carried_key<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    send: &SendWqe,
    raw: &[u8],
    known: Option<Key>,
) -> Result<CarriedKey, Denied> {
    let key = known.map_or_else(|| open_command(here, qp, send, raw), Ok)?;
    let place = key_place(qp, send, raw).ok_or(Denied::Bounds)?;
    Ok(CarriedKey { key, place })
}

/// Ends the command of `qp` that a response names. Its last use ends when all threads that hold the
/// guest's memory have released it. Returns the name that the consumer has for the command.
///
/// # Errors
/// Returns an error if the QP has no such command.
pub(crate) fn end_command<H: Host>(qp: &Qp<H>, key: Key) -> Result<u32, Denied> {
    let id = qp.tpt.end_command(key, qp.user())?;
    qp.commands.lock().remove(&key);
    Ok(id)
}
