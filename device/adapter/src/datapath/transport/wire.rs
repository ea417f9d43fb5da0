//! The transports between daemons, and the choice of the one for a QP or a frame. Each has a folder
//! here and a variant of [`crate::objects::qp::Path`].

use std::sync::Arc;

use vrnic_abi::qp::Attr;
use vrnic_roce::wire::Frame as RoceFrame;

use super::{packets, stream};
use crate::datapath::transport::peers::Network;
use crate::ethernet::Frame;
use crate::host::Host;
use crate::objects::qp::Qp;
use crate::objects::qp::transitions::Change;
use crate::slice::{Slice, cost};

/// Prepares the transport of a QP that MODIFY_QP moves from one state to another, if its peer is
/// not reached by memory. For iWARP, OPEN_CONNECTION does this.
pub(crate) fn connect<H: Host>(network: Network<'_, H>, qp: &Qp<H>, attr: &Attr, change: Change) {
    packets::connect::connect(network, qp, attr, change);
}

/// Passes a frame to its destination QP. Returns the QP if it needs a turn.
pub(crate) fn arrive<H: Host>(
    network: Network<'_, H>,
    frame: &Frame,
    slice: &Slice<'_, H>,
) -> Option<Arc<Qp<H>>> {
    slice.charge(cost::PACKET);
    slice.charge_copy(frame.bytes().len() as u64);
    match RoceFrame::parse(frame.bytes()).transpose() {
        Some(parsed) => packets::arrive(network, frame, parsed, slice),
        None => stream::arrive(network, frame, slice),
    }
}
