//! The transports between daemons: which of them a QP takes, and which a frame is for. Each has a
//! folder here and a variant of [`crate::objects::qp::Path`].

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
/// not reached by memory. OPEN_CONNECTION connects those of iWARP.
pub(crate) fn connect<H: Host>(network: Network<'_, H>, qp: &Qp<H>, attr: &Attr, change: Change) {
    packets::connect::connect(network, qp, attr, change);
}

/// Gives a frame to the QP that it is for. Returns the QP if it has to get a turn.
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
