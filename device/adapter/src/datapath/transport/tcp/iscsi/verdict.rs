//! Decides what happens to a PDU that arrives. Only SCSI Responses, Data-In and R2T concern a
//! command of the adapter; all others belong to the consumer.

use vrnic_abi::Key;
use vrnic_abi::qp::Access;
use vrnic_iscsi::header::NO_TAG;
use vrnic_iscsi::{Bhs, Opcode, Solicited};

use crate::datapath::peer_context::PeerContext;
use crate::datapath::sgl::SgList;
use crate::host::Host;
use crate::memory::tpt::{ByteRange, Denied};
use crate::objects::qp::tcp::iscsi::{Arriving, Session, Target, count};

/// Returns what happens to the PDU with this header. Nothing has changed.
pub(super) fn judge<H: Host>(there: &PeerContext<'_, H>, session: &Session, bhs: &Bhs) -> Arriving {
    let whole = Arriving { target: Target::Receive, ..Arriving::default() };
    match bhs.opcode() {
        Some(Opcode::ScsiResponse) => match of_command(there, bhs, Use::NONE) {
            Ok(id) => Arriving { executed: Some((tag(bhs), id)), ends: true, ..whole },
            Err(_) => Arriving { is_dropped: true, ..Arriving::default() },
        },
        Some(Opcode::DataIn) => data_in(there, bhs),
        Some(Opcode::R2t) => {
            let length = bhs.desired_len();
            let sound = length > 0 && length <= session.terms.config.max_burst;
            let asked = Use { length, need: Access::REMOTE_READ };
            // An R2T has no data segment (RFC 7143, 11.8).
            let checked = if sound && bhs.data_len() == 0 {
                of_command(there, bhs, asked)
            } else {
                Err(Denied::Bounds)
            };
            match checked {
                Ok(id) => Arriving { executed: Some((tag(bhs), id)), ..whole },
                Err(denied) => Arriving { denied: Some(denied), ..whole },
            }
        }
        _ => whole,
    }
}

fn data_in<H: Host>(there: &PeerContext<'_, H>, bhs: &Bhs) -> Arriving {
    let ends = bhs.has_status();
    let placed = Use { length: bhs.data_len(), need: Access::REMOTE_WRITE };
    let denied = match of_command(there, bhs, placed) {
        Ok(id) => {
            let target = Target::Buffer(bhs.offset().into());
            return Arriving {
                executed: Some((tag(bhs), id)),
                target,
                ends,
                ..Arriving::default()
            };
        }
        Err(denied) => Some(denied),
    };
    let refused = Arriving { target: Target::Receive, denied, ends, ..Arriving::default() };
    if !ends {
        return refused;
    }
    match of_command(there, bhs, Use::NONE) {
        Ok(id) => Arriving { executed: Some((tag(bhs), id)), ..refused },
        Err(_) => Arriving { is_dropped: true, ..Arriving::default() },
    }
}

/// Begins the execution of a PDU for which there is a receive.
pub(super) fn begin(session: &mut Session, bhs: &Bhs, arriving: &mut Arriving) {
    if bhs.opcode() == Some(Opcode::R2t) && arriving.executed.is_some() {
        match session.solicit(Solicited::of(*bhs)) {
            Ok(()) => count(&mut session.counters.served, 1),
            Err(denied) => (arriving.executed, arriving.denied) = (None, Some(denied)),
        }
    }
    if arriving.denied.is_some() {
        count(&mut session.counters.refused, 1);
    }
}

fn tag(bhs: &Bhs) -> Key {
    Key::new(bhs.task_tag())
}

/// The use of a command's data by a PDU.
#[derive(Clone, Copy)]
struct Use {
    length: u32,
    need: Access,
}

impl Use {
    /// No use of data.
    const NONE: Self = Self { length: 0, need: Access::empty() };
}

/// Checks that a PDU belongs to a command of the QP, and may use its data. Returns the name that
/// the consumer has for the command.
fn of_command<H: Host>(
    there: &PeerContext<'_, H>,
    bhs: &Bhs,
    Use { length, need }: Use,
) -> Result<u32, Denied> {
    if bhs.task_tag() == NO_TAG {
        return Err(Denied::Invalid);
    }
    let addr = if need.is_empty() { 0 } else { u64::from(bhs.offset()) };
    let range = ByteRange { addr, len: length.into() };
    SgList::default().add_command(&there.turn, there.qp.user(), tag(bhs), range, need)
}
