//! The tables of QPs that spread frames over others ([`vrnic_abi::rss`]), as CREATE_QP reads them.

use std::mem::offset_of;
use std::sync::Arc;

use vrnic_abi::admin::{CreateQp, NO_QUEUE, QpFlags, Status};
use vrnic_abi::qp::Type;
use vrnic_abi::rss::{Fields, LOG_ENTRIES_MAX, Spread as Table};
use vrnic_abi::{Pdn, Qpn};
use zerocopy::FromBytes;

use super::{Failure, bad, zero};
use crate::adapter::Adapter;
use crate::host::{HeldMemory, Host, Lane};
use crate::objects::network::frame_key::Target;
use crate::objects::network::spread::Spread;
use crate::objects::qp::SendRing;

/// Returns the table of a QP that spreads, or `None` for another QP. The details of errors in a
/// table are offsets in it.
pub(super) fn of<H: Host>(
    adapter: &Adapter<H>,
    params: &CreateQp,
    flags: QpFlags,
    kind: Type,
) -> Result<Option<Arc<Spread>>, Failure> {
    if !flags.contains(QpFlags::SPREADS) {
        return Ok(None);
    }
    if kind != Type::RawPacket || flags.contains(QpFlags::SQ_IN_DEVICE) {
        return Err(bad(offset_of!(CreateQp, flags)));
    }
    for (log_size, at) in [
        (params.sq_log_size, offset_of!(CreateQp, sq_log_size)),
        (params.rq_log_size, offset_of!(CreateQp, rq_log_size)),
    ] {
        if log_size != NO_QUEUE {
            return Err(bad(at));
        }
    }
    zero(&params.srqn, offset_of!(CreateQp, srqn))?;
    zero(&params.rq_page_shift, offset_of!(CreateQp, rq_page_shift))?;
    zero(&params.rq_levels, offset_of!(CreateQp, rq_levels))?;
    let addr = params.rq_table;
    if !addr.is_multiple_of(8) {
        return Err(bad(offset_of!(CreateQp, rq_table)));
    }
    let mut bytes = [0; size_of::<Table>()];
    adapter.host().hold(Lane::SHARED).read(addr, &mut bytes).map_err(|_| Status::BadAddress)?;
    let table = Table::read_from_bytes(&bytes).map_err(|_| Status::Internal)?;
    read(adapter, &table, params.pdn).map(Arc::new).map(Some)
}

/// Checks the table of a guest.
fn read<H: Host>(adapter: &Adapter<H>, table: &Table, pdn: Pdn) -> Result<Spread, Failure> {
    let fields = Fields::from_bits(table.fields.get()).ok_or(bad(offset_of!(Table, fields)))?;
    if table.log_entries > LOG_ENTRIES_MAX {
        return Err(bad(offset_of!(Table, log_entries)));
    }
    zero(&table.reserved, offset_of!(Table, reserved))?;
    let at = |index: usize| offset_of!(Table, entries) + index * size_of::<Qpn>();
    let (entries, rest) =
        table.entries.split_at_checked(1 << table.log_entries).ok_or(Status::Internal)?;
    zero(rest, at(entries.len()))?;
    let targets = entries
        .iter()
        .enumerate()
        .map(|(index, qpn)| target(adapter, *qpn, pdn).ok_or(bad(at(index))));
    let targets = targets.collect::<Result<_, Failure>>()?;
    Ok(Spread { fields, key: table.key, targets })
}

/// Returns a work queue of this PD.
fn target<H: Host>(adapter: &Adapter<H>, qpn: Qpn, pdn: Pdn) -> Option<Target> {
    let qp = adapter.qp(qpn)?;
    let is_work_queue = qp.kind == Type::RawPacket
        && qp.rq.is_some()
        && matches!(qp.sq, SendRing::None)
        && qp.pdn == pdn;
    is_work_queue.then(|| qp.target())
}
