//! Data-Out PDUs for R2Ts.

use std::sync::Arc;

use vrnic_abi::Key;
use vrnic_abi::qp::Access;
use vrnic_iscsi::DataOut;
use vrnic_tcp::StreamPos;

use super::source::seal;
use crate::datapath::sgl::SgList;
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::memory::tpt::ByteRange;
use crate::objects::qp::Qp;
use crate::objects::qp::tcp::iscsi::{Data, Pdu, Session, count};
use crate::slice::cost;

/// Maximum number of bytes of the data of a PDU, even if the target accepts more: its digest is
/// computed at once.
pub(super) const DATA_MAX: u32 = 256 << 10;

/// The data of a command cannot be read, although the command has not ended.
#[derive(Debug)]
pub(super) struct Unreadable;

/// Adds Data-Out PDUs to those that leave, as many as there is room for. The target has
/// acknowledged all bytes before `una`. Returns whether there may be more in a later turn.
///
/// # Errors
/// [`Unreadable`].
pub(super) fn answer<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Arc<Qp<H>>,
    session: &mut Session,
    una: StreamPos,
) -> Result<bool, Unreadable> {
    let config = session.terms.config;
    while session.may_answer(una) {
        if here.slice.is_over() {
            return Ok(true);
        }
        here.slice.charge(cost::REQUEST);
        let Some(solicited) = session.next_solicited() else { break };
        let key = Key::new(solicited.task_tag());
        let Some(next) = solicited.next(config.max_send.min(DATA_MAX)) else {
            session.solicited_is_over();
            continue;
        };
        let DataOut { header, offset, length } = next;
        let offset = u64::from(offset);
        let data = Data::Command { key, offset };
        let mut pdu = Pdu::new(&config, &header.0, data, length);
        if config.data_digest {
            let mut source = SgList::default();
            let range = ByteRange { addr: offset, len: length.into() };
            source
                .add_command(here, qp.user(), key, range, Access::REMOTE_READ)
                .map_err(|_| Unreadable)?;
            seal(here, &source, 0, &mut pdu).map_err(|_| Unreadable)?;
        }
        session.outgoing.push(pdu);
        count(&mut session.counters.data_out, 1);
    }
    Ok(false)
}
