//! A frame of a TCP connection on its way to a QP, in the poll of the QP's worker.

use std::sync::Arc;

use vrnic_tcp::Nanos;
use vrnic_tcp::wire::frame::Frame as TcpFrame;

use super::memory::Reach;
use crate::datapath::transport::ingress::tuple;
use crate::datapath::transport::peers::Network;
use crate::ethernet::Frame;
use crate::host::Host;
use crate::objects::qp::streaming::Streaming;
use crate::objects::qp::{Path, Qp};
use crate::slice::Slice;

/// Gives a frame to the QP whose connection it is of. Returns the QP, which has to get a turn.
pub(crate) fn arrive<H: Host>(
    network: Network<'_, H>,
    frame: &Frame,
    slice: &Slice<'_, H>,
) -> Option<Arc<Qp<H>>> {
    let parsed = TcpFrame::parse(frame.bytes()).ok()??;
    let qpn = network.own.claims.find(&tuple(&parsed.path))?;
    let qp = network.own.qp(qpn)?;
    let mut requester = qp.requester.lock();
    let Path::Stream(streaming) = &mut requester.path else { return None };
    streaming.rests = false;
    let now = Nanos(network.core().host().now());
    let Streaming { tcp, stream, outstanding, .. } = &mut **streaming;
    {
        let mut responder = qp.responder.lock();
        let responder = &mut *responder;
        let mut reach = Reach { core: network.core(), qp: &qp, responder, outstanding, slice };
        tcp.receive(now, &parsed.segment, &mut stream.sink(&mut reach));
    }
    drop(requester);
    Some(qp)
}
