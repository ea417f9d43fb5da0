//! Delivers a frame of a TCP connection to a QP, in the poll of the QP's worker.

use std::sync::Arc;

use vrnic_packet::Headers;
use vrnic_tcp::Connection;
use vrnic_tcp::wire::{Flags, Segment, TooLong};

use super::inbox::Inbox;
use crate::datapath::there::There;
use crate::datapath::transport::ingress::{tuple, tuple_of};
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::tcp::{iscsi, segments};
use crate::ethernet::{Class, Classified, Frame, Joint, Parsed};
use crate::host::Host;
use crate::objects::claims::Tuple;
use crate::objects::qp::tcp::bytes::Bytes;
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
    let Parsed { frame, headers: parsed_headers } = parsed;
    let parsed = segments::parse(parsed)?;
    let mut requester = qp.requester.lock();
    let Path::Tcp(tcp) = &mut requester.path else {
        drop(requester);
        forward(network, frame, parsed_headers, &qp, &tuple(&parsed.path));
        return None;
    };
    let Tcp { link, content: Content::Bytes(content) } = &mut **tcp else { return None };
    if !segments::are_for(network, link.ends(), &parsed, frame.count()) {
        return None;
    }
    let now = network.core().host().now();
    {
        let there = There::new(network.core(), &qp, slice);
        there.turn.add(Counter::RxPkts, frame.count() as u64);
        there.turn.add(Counter::RxBytes, parsed.segment.payload.len() as u64);
        let mut responder = qp.responder.lock();
        let mut receive = |segment: &Segment<'_>| {
            note_push(link.tcp(), content, segment);
            let Bytes { receives, session, .. } = &mut **content;
            let tcp = link.tcp_mut();
            let responder = &mut responder;
            match session {
                Some(session) => {
                    let mut inbox = iscsi::Inbox { there: &there, responder, receives, session };
                    tcp.receive(now, segment, &mut inbox);
                }
                None => {
                    let mut inbox = Inbox { there: &there, responder, receives };
                    tcp.receive(now, segment, &mut inbox);
                }
            }
        };
        match frame.joint() {
            None => receive(&parsed.segment),
            Some(Joint { segment, .. }) => {
                parsed.segment.cut(segment.into()).for_each(|segment| receive(&segment));
            }
        }
    }
    drop(requester);
    Some(qp)
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

/// Notes the position behind a segment with PSH, if receives complete there.
fn note_push<H: Host>(tcp: &Connection, bytes: &mut Bytes<H>, segment: &Segment<'_>) {
    let Segment { header, payload } = segment;
    if payload.is_empty() || !header.flags.contains(Flags::PSH) || bytes.receives.are_filled() {
        return;
    }
    // CAST: segments are shorter than 2³² bytes.
    let end = header.seq.plus(payload.len() as u32);
    if let Some(at) = tcp.position(end) {
        bytes.receives.mark(at);
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
