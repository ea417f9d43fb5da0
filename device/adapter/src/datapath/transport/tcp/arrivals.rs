//! Delivers a frame of a TCP connection to a QP, in the poll of the QP's worker.

use std::sync::Arc;

use vrnic_packet::Headers;
use vrnic_tcp::wire::{Segment, TooLong};

use super::rdma::Reach;
use super::{bytes, iscsi, segments};
use crate::datapath::peer_context::PeerContext;
use crate::datapath::transport::ingress::{tuple, tuple_of};
use crate::datapath::transport::peers::Network;
use crate::ethernet::{Class, Classified, Frame, Joint, Parsed};
use crate::host::Host;
use crate::objects::network::claims::Tuple;
use crate::objects::qp::tcp::bytes::Toe;
use crate::objects::qp::tcp::rdma::Rdma;
use crate::objects::qp::tcp::{Content, Tcp};
use crate::objects::qp::{Path, Qp};
use crate::slice::Slice;
use crate::stats::Counter;

/// Passes a segment to the QP that had its connection when it arrived. Returns the QP, which needs
/// a turn.
pub(crate) fn arrive<H: Host>(
    network: Network<'_, H>,
    parsed: Parsed<'_>,
    qp: Arc<Qp<H>>,
    slice: &Slice<'_, H>,
) -> Option<Arc<Qp<H>>> {
    let Parsed { frame, headers } = parsed;
    let parsed = segments::parse(parsed)?;
    let mut requester = qp.requester.lock();
    let asker = requester.asker();
    let Path::Tcp(tcp) = &mut requester.path else {
        drop(requester);
        forward(network, frame, headers, &qp, &tuple(&parsed.path));
        return None;
    };
    if !segments::are_for(network, tcp.link.ends(), &parsed, frame.count()) {
        return None;
    }
    let core = network.core();
    let (now, segment) = (core.host().now(), &parsed.segment);
    {
        let responder = &mut *qp.responder.lock();
        let Tcp { link, content } = &mut **tcp;
        match content {
            Content::Rdma(rdma) => {
                rdma.dormant = false;
                let Rdma { stream, switched, moves, .. } = &mut **rdma;
                let (tcp, outstanding) = link.io();
                let mut reach =
                    Reach { core, qp: &qp, responder, outstanding, asker, moves, slice };
                each(frame, segment, |segment| {
                    tcp.receive(now, segment, &mut switched.owner(stream.sink(&mut reach)));
                });
            }
            Content::Bytes(content) => {
                let receives = &mut content.receives;
                let there = &counted(PeerContext::new(core, &qp, slice), frame, segment);
                each(frame, segment, |segment| {
                    bytes::note_push(link.tcp(), receives, segment);
                    let inbox = &mut bytes::Inbox { there, responder, receives };
                    link.tcp_mut().receive(now, segment, inbox);
                });
            }
            Content::Iscsi(content) => {
                let Toe { receives, mode, .. } = &mut **content;
                let there = &counted(PeerContext::new(core, &qp, slice), frame, segment);
                each(frame, segment, |segment| {
                    let inbox = bytes::Inbox { there, responder, receives };
                    link.tcp_mut().receive(now, segment, &mut iscsi::Inbox::new(inbox, mode));
                });
            }
        }
    }
    drop(requester);
    Some(qp)
}

/// Passes the segments of a frame to `receive` as if they had arrived one by one, since an FPDU
/// begins where a segment does.
fn each(frame: &Frame, whole: &Segment<'_>, mut receive: impl FnMut(&Segment<'_>)) {
    match frame.joint() {
        None => receive(whole),
        Some(Joint { segment, .. }) => {
            whole.cut(segment.into()).for_each(|segment| receive(&segment));
        }
    }
}

/// Counts the bytes of a frame that carries no messages, at the QP in `peer_context`.
fn counted<'a, H: Host>(
    there: PeerContext<'a, H>,
    frame: &Frame,
    segment: &Segment<'_>,
) -> PeerContext<'a, H> {
    there.turn.add(Counter::RxPkts, frame.count() as u64);
    there.turn.add(Counter::RxBytes, segment.payload.len() as u64);
    there
}

/// Passes a frame that was under way during a transition to the QP that has the connection now.
fn forward<H: Host>(
    network: Network<'_, H>,
    frame: &Frame,
    headers: Headers,
    former: &Qp<H>,
    tuple: &Tuple,
) {
    let owner = network.own.claims.find(tuple).filter(|qpn| *qpn != former.qpn);
    if let Some(owner) = owner.and_then(|qpn| network.own.qp(qpn)) {
        let class = Class::Segment(owner.qpn, headers);
        // The peer sends it again if there is no room.
        let _lost =
            network.core().put_frame(owner.worker(), Classified { frame: frame.clone(), class });
    }
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
