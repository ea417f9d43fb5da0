//! Checks the work requests of a QP in the iSCSI mode, and makes their PDUs.

use std::sync::Arc;

use arrayvec::ArrayVec;
use vrnic_abi::Key;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::Access;
use vrnic_abi::sq::{CommandFlags, Opcode};
use vrnic_iscsi::command::{self, Refused};
use vrnic_iscsi::{BHS_LEN, Bhs};

use super::answer::DATA_MAX;
use super::source::seal;
use crate::datapath::local_wr::{command_buffer, end_command, insert_command};
use crate::datapath::sgl::SgList;
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::memory::tpt::{Buffer, CommandData, Denied};
use crate::objects::qp::Qp;
use crate::objects::qp::outstanding::{CarriedKey, End, Posted};
use crate::objects::qp::tcp::iscsi::{ADDITIONAL_MAX, Data, Pdu, Session};
use crate::requests::wqe::{Segment, SendWqe};
use crate::slice::cost;

/// The mask of an address in its page.
const PAGE_MASK: u64 = 4095;
/// The place of the tag in a header.
const TAG_PLACE: u64 = 16;

/// Checks a work request, whose WQE is `raw`, and adds its PDU to those that leave. Returns the
/// outstanding work request. If it was refused, it has ended.
pub(super) fn post<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Arc<Qp<H>>,
    session: &mut Session,
    send: &SendWqe,
    raw: &[u8],
) -> Posted {
    let (command, end) = match compose(here, qp, session, send, raw) {
        Ok(command) => (command, None),
        Err(end) => (None, Some(end)),
    };
    Posted { send: *send, opcode: send.completed(), command, end }
}

/// The header of a PDU, in the message of a work request.
struct Header {
    bytes: ArrayVec<u8, { BHS_LEN + ADDITIONAL_MAX }>,
    bhs: Bhs,
}

fn compose<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Arc<Qp<H>>,
    session: &mut Session,
    send: &SendWqe,
    raw: &[u8],
) -> Result<Option<CarriedKey>, End> {
    let mut source = SgList::default();
    source.add_source(here, qp.user(), send, raw).map_err(|denied| End::Failed(denied.into()))?;
    let Header { mut bytes, mut bhs } = header(here, send, &source)?;
    let (config, skip) = (session.terms.config, bytes.len() as u64);
    let most = if config.data_digest { DATA_MAX.min(config.max_send) } else { config.max_send };
    if bhs.data_len() > most {
        return Err(End::Failed(Status::LocLenErr.into()));
    }
    let data = Data::Request { index: send.index, skip };
    let key = match send.opcode {
        Opcode::SendCmd => {
            let key = open(here, qp, session, &bhs, send, raw).map_err(End::Refused)?;
            bhs.set_task_tag(key.get());
            bytes.iter_mut().zip(bhs.0).for_each(|(to, from)| *to = from);
            Some(key)
        }
        Opcode::Send => {
            command::check_other(&bhs, send.length).map_err(status)?;
            None
        }
        _ => return Err(End::Failed(Status::LocQpOpErr.into())),
    };
    let mut pdu = Pdu::new(&config, &bytes, data, bhs.data_len());
    if config.data_digest && pdu.length > 0 && seal(here, &source, skip, &mut pdu).is_err() {
        if let Some(key) = key {
            // The target does not hear of the command, and its buffer is the consumer's again. Only
            // this QP uses the key, and it is locked.
            let _it_was_just_made = end_command(qp, key);
            qp.tpt.finish_command(key);
        }
        return Err(End::Failed(Denied::Memory.into()));
    }
    session.outgoing.push(pdu);
    Ok(key.map(|key| CarriedKey { key, place: TAG_PLACE }))
}

fn status(refused: Refused) -> End {
    End::Failed(match refused {
        Refused::Length => Status::LocLenErr.into(),
        Refused::Operation | Refused::Direction => Status::LocQpOpErr.into(),
    })
}

/// Copies the header of a PDU out of the message of a work request.
fn header<H: Host>(
    here: &TurnContext<'_, H>,
    send: &SendWqe,
    source: &SgList<'_>,
) -> Result<Header, End> {
    let short = End::Failed(Status::LocLenErr.into());
    let unreadable = |_| End::Failed(Denied::Memory.into());
    let mut basic = [0; BHS_LEN];
    if send.length < BHS_LEN as u64 {
        return Err(short);
    }
    source.read::<H>(&here.memory, 0, &mut basic).map_err(unreadable)?;
    let bhs = Bhs(basic);
    let additional = bhs.additional_len();
    if additional > ADDITIONAL_MAX || send.length < (BHS_LEN + additional) as u64 {
        return Err(short);
    }
    let mut bytes = ArrayVec::from_iter(basic);
    let mut rest = [0; ADDITIONAL_MAX];
    let rest = rest.get_mut(..additional).ok_or(short)?;
    if additional > 0 {
        source.read::<H>(&here.memory, BHS_LEN as u64, rest).map_err(unreadable)?;
    }
    bytes.extend(rest.iter().copied());
    Ok(Header { bytes, bhs })
}

/// Makes the entry of a command. Returns its key.
fn open<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Arc<Qp<H>>,
    session: &Session,
    bhs: &Bhs,
    send: &SendWqe,
    raw: &[u8],
) -> Result<Key, Denied> {
    let (seg, data) = SendWqe::command(raw).ok_or(Denied::Bounds)?;
    here.slice.charge(cost::KEY + cost::SEGMENT * data.count());
    let flags = CommandFlags::from_bits_truncate(seg.flags);
    if flags.contains(CommandFlags::ONE_TOUCH) || seg.tag_offset.get() != 0 {
        return Err(Denied::Kind);
    }
    let direction = command::check(bhs, session.terms.device, send.length, data.total());
    let direction = direction.map_err(|refused| match refused {
        Refused::Operation => Denied::Kind,
        Refused::Direction => Denied::Rights,
        Refused::Length => Denied::Bounds,
    })?;
    let mut access = Access::empty();
    access.set(Access::REMOTE_WRITE, direction.reads);
    access.set(Access::REMOTE_READ, direction.writes);
    if Access::from_bits_truncate(seg.access.get()) != access {
        return Err(Denied::Rights);
    }
    let buffer = command_buffer(here, send, raw)?;
    if let Buffer::Physical(segments) = &buffer
        && !is_of_pages(segments.clone())
    {
        return Err(Denied::Bounds);
    }
    let data = CommandData { buffer, access, one_touch: false, id: send.index, may_be_empty: true };
    insert_command(here, qp, data)
}

/// Returns whether physical segments do not wrap, and are whole pages, except for the beginning of
/// the first one and the end of the last one.
fn is_of_pages(segments: impl Iterator<Item = Segment>) -> bool {
    let mut before: Option<u64> = None;
    for Segment { addr, len, .. } in segments {
        let Some(end) = addr.checked_add(len.into()) else { return false };
        if before.is_some_and(|before| (before | addr) & PAGE_MASK != 0) {
            return false;
        }
        before = Some(end);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_segments_are_whole_pages_inside() {
        let of = |list: &[(u64, u32)]| {
            let segment = |&(addr, len)| Segment { addr, len, key: Key::default() };
            is_of_pages(list.iter().map(segment))
        };
        assert!(of(&[(100, 17)]) && of(&[(100, 3996), (8192, 4096), (0, 4096), (4096, 5)]));
        assert!(!of(&[(0, 4000), (8192, 4096)]), "the first one ends inside a page");
        assert!(!of(&[(0, 4096), (8200, 4096)]), "the last one begins inside a page");
        assert!(!of(&[(0, 4096), (8192, 4000), (4096, 4096)]));
        assert!(!of(&[(u64::MAX - 5, 100)]), "it wraps around");
    }
}
