//! Delivers a frame of a TCP connection to a QP, in the poll of the QP's worker.

use std::sync::Arc;

use vrnic_packet::Nanos;
use vrnic_tcp::wire::TooLong;
use vrnic_tcp::wire::frame::Frame as TcpFrame;

use super::memory::Reach;
use crate::datapath::transport::ingress::{tuple, tuple_of};
use crate::datapath::transport::peers::Network;
use crate::ethernet::{Frame, Joint};
use crate::host::Host;
use crate::objects::qp::streaming::Streaming;
use crate::objects::qp::{Path, Qp};
use crate::slice::Slice;

/// Passes a frame to the QP with this connection. Returns the QP, which needs a turn.
pub(crate) fn arrive<H: Host>(
    network: Network<'_, H>,
    frame: &Frame,
    slice: &Slice<'_, H>,
) -> Option<Arc<Qp<H>>> {
    let joint = frame.joint();
    let parsed = match joint {
        None => TcpFrame::parse(frame.bytes()),
        Some(_) => TcpFrame::parse_joined(frame.bytes()),
    };
    let Some(parsed) = parsed.ok()? else {
        return too_long(network, &TooLong::parse(frame.bytes())?);
    };
    let qpn = network.own.claims.find(&tuple(&parsed.path))?;
    let qp = network.own.qp(qpn)?;
    let mut requester = qp.requester.lock();
    let Path::Stream(streaming) = &mut requester.path else { return None };
    streaming.rests = false;
    let now = Nanos(network.core().host().now());
    let Streaming { tcp, stream, outstanding, .. } = &mut **streaming;
    'received: {
        let mut responder = qp.responder.lock();
        let responder = &mut *responder;
        let mut reach = Reach { core: network.core(), qp: &qp, responder, outstanding, slice };
        let Some(Joint { segment, .. }) = joint else {
            tcp.receive(now, &parsed.segment, &mut stream.sink(&mut reach));
            break 'received;
        };
        // As if they had arrived one by one: an FPDU begins where a segment does.
        for segment in parsed.segment.cut(segment.into()) {
            tcp.receive(now, &segment, &mut stream.sink(&mut reach));
        }
    }
    drop(requester);
    Some(qp)
}

/// Handles a notice that a segment of a QP was too long for its path: the QP sends shorter ones.
fn too_long<H: Host>(network: Network<'_, H>, notice: &TooLong) -> Option<Arc<Qp<H>>> {
    let qpn = network.own.claims.find(&tuple_of(notice))?;
    let qp = network.own.qp(qpn)?;
    let mut requester = qp.requester.lock();
    let Path::Stream(streaming) = &mut requester.path else { return None };
    let now = Nanos(network.core().host().now());
    if !streaming.tcp.too_long(now, notice.seq, notice.mss) {
        return None;
    }
    streaming.fit_path();
    drop(requester);
    Some(qp)
}
