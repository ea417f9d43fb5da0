//! Puts the bytes of a segment into receives.

use vrnic_packet::Nanos;
use vrnic_tcp::Connection;
use vrnic_tcp::wire::{Flags, Segment};

use super::inbox::Inbox;
use crate::datapath::there::There;
use crate::datapath::transport::tcp::iscsi;
use crate::host::Host;
use crate::objects::qp::Responder;
use crate::objects::qp::tcp::bytes::Bytes;

/// Passes a segment to TCP, and its bytes to the receives.
pub(in crate::datapath::transport::tcp) fn deliver<H: Host>(
    there: &There<'_, H>,
    responder: &mut Responder,
    tcp: &mut Connection,
    bytes: &mut Bytes<H>,
    now: Nanos,
    segment: &Segment<'_>,
) {
    note_push(tcp, bytes, segment);
    let Bytes { receives, session, .. } = bytes;
    match session {
        Some(session) => {
            tcp.receive(now, segment, &mut iscsi::Inbox { there, responder, receives, session });
        }
        None => tcp.receive(now, segment, &mut Inbox { there, responder, receives }),
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
