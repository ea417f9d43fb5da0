//! MODIFY_QP of the numbers of READs on a connection of iWARP.

use vrnic_abi::admin::Status;
use vrnic_abi::qp::{Attr, AttrMask};

use super::Outcome;
use crate::host::Host;
use crate::objects::qp::Qp;

/// The attributes that are numbers of READs.
pub(super) const BOTH: AttrMask = AttrMask::MAX_QP_RD_ATOMIC.union(AttrMask::MAX_DEST_RD_ATOMIC);
/// Attributes that change nothing else.
const OTHERS: AttrMask = AttrMask::STATE.union(AttrMask::CUR_STATE);

/// Returns whether the READs of a QP travel in a TCP connection.
pub(super) fn has_connection<H: Host>(qp: &Qp<H>) -> bool {
    qp.requester.lock().path.rdma().is_some()
}

/// Changes the number of READs and atomics that are outstanding at a time (ORD), and of those of
/// the peer that are served at a time (IRD). The values have been checked.
///
/// # Errors
/// [`Status::Busy`] if a READ is outstanding and ORD changes, or if the peer may still send
/// requests and IRD gets smaller: it may have sent as many as it was allowed to.
pub(super) fn change<H: Host>(qp: &Qp<H>, new: &Attr, mask: AttrMask) -> Outcome<()> {
    if !BOTH.union(OTHERS).contains(mask) {
        return Err(Status::BadState.into());
    }
    let mut requester = qp.requester.lock();
    let posted = requester.current.is_some();
    let Some(rdma) = requester.path.rdma_mut() else { return Err(Status::BadState.into()) };
    let stream = &mut rdma.stream;
    let Some(now) = stream.agreement().copied() else { return Err(Status::BadState.into()) };
    let asked = |bit, value: u8, now| if mask.contains(bit) { value.into() } else { now };
    let ord = asked(AttrMask::MAX_QP_RD_ATOMIC, new.max_rd_atomic, now.ord);
    let ird = asked(AttrMask::MAX_DEST_RD_ATOMIC, new.max_dest_rd_atomic, now.ird);
    // A message in progress may be a READ that is copied.
    if ord != now.ord && posted || !stream.change_depths(ird, ord) {
        return Err(Status::Busy.into());
    }
    let few = |count: u16| u8::try_from(count).unwrap_or(u8::MAX);
    requester.config.max_rd_atomic = few(ord);
    qp.responder.lock().max_dest_rd_atomic = few(ird);
    let mut attr = qp.attr.lock();
    (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (few(ord), few(ird));
    Ok(())
}
