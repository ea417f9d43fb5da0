//! Delivers a frame of a TCP connection to a QP, in the poll of the QP's worker.

use std::sync::Arc;

use vrnic_tcp::wire::TooLong;

use super::memory::Reach;
use crate::datapath::transport::ingress::tuple_of;
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::tcp::segments;
use crate::ethernet::{Joint, Parsed};
use crate::host::Host;
use crate::objects::qp::tcp::rdma::Rdma;
use crate::objects::qp::tcp::{Content, Tcp};
use crate::objects::qp::{Path, Qp};
use crate::slice::Slice;

/// Passes a segment to the QP that had its connection when it arrived. Returns the QP, which needs
/// a turn.
pub(crate) fn arrive<H: Host>(
    network: Network<'_, H>,
    parsed: Parsed<'_>,
    qp: Arc<Qp<H>>,
    slice: &Slice<'_, H>,
) -> Option<Arc<Qp<H>>> {
    let frame = parsed.frame;
    let parsed = segments::parse(parsed)?;
    let mut requester = qp.requester.lock();
    let asker = requester.asker();
    let Path::Tcp(tcp) = &mut requester.path else { return None };
    let Tcp { link, content: Content::Rdma(rdma) } = &mut **tcp else { return None };
    if !segments::are_for(network, link.ends(), &parsed, frame.count()) {
        return None;
    }
    rdma.dormant = false;
    let now = network.core().host().now();
    let Rdma { stream, switched, moves, .. } = &mut **rdma;
    let (tcp, outstanding) = link.io();
    'received: {
        let mut responder = qp.responder.lock();
        let responder = &mut *responder;
        let core = network.core();
        let mut reach = Reach { core, qp: &qp, responder, outstanding, asker, moves, slice };
        let Some(Joint { segment, .. }) = frame.joint() else {
            tcp.receive(now, &parsed.segment, &mut switched.owner(stream.sink(&mut reach)));
            break 'received;
        };
        // As if they had arrived one by one: an FPDU begins where a segment does.
        for segment in parsed.segment.cut(segment.into()) {
            tcp.receive(now, &segment, &mut switched.owner(stream.sink(&mut reach)));
        }
    }
    drop(requester);
    Some(qp)
}

/// Handles a notice that a segment of a QP was too long for its path: the QP sends shorter ones.
/// Returns the QP if it needs a turn.
pub(crate) fn too_long<H: Host>(
    network: Network<'_, H>,
    Parsed { frame, headers }: Parsed<'_>,
    qp: Arc<Qp<H>>,
) -> Option<Arc<Qp<H>>> {
    let notice = TooLong::of(frame.bytes(), &headers)?;
    let mut requester = qp.requester.lock();
    let Path::Tcp(tcp) = &mut requester.path else { return None };
    let now = network.core().host().now();
    if !tcp.link.ends().is_between(&tuple_of(&notice))
        || !tcp.link.tcp_mut().too_long(now, notice.seq, notice.mss)
    {
        return None;
    }
    drop(requester);
    Some(qp)
}
