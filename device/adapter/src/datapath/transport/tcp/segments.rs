//! The segments of TCP connections, whether these carry messages or bytes: those that arrive, and
//! those that a turn sends.

use vrnic_packet::Nanos;
use vrnic_tcp::connection::Transmit;
use vrnic_tcp::wire::frame::Frame as TcpFrame;

use crate::datapath::constants::{MAX_FRAMES, NO_ROOM_PAUSE};
use crate::datapath::transport::ingress::tuple;
use crate::datapath::transport::peers::Network;
use crate::ethernet::{Heading, Parsed};
use crate::host::Host;
use crate::objects::qp::tcp::ends::Ends;
use crate::slice::{Slice, cost};
use crate::stats::Counter;

/// Returns the segment in a frame, or all of them as one if the frame is a joined one.
pub(super) fn parse(parsed: Parsed<'_>) -> Option<TcpFrame<'_>> {
    let Parsed { frame, headers } = parsed;
    let segment = match frame.joint() {
        None => TcpFrame::of(frame.bytes(), &headers),
        Some(_) => TcpFrame::of_joined(frame.bytes(), &headers),
    };
    segment.ok()?
}

/// Returns whether the segments of a frame are for a connection. Those with a foreign destination
/// MAC are counted.
pub(super) fn are_for<H: Host>(
    network: Network<'_, H>,
    ends: &Ends<H>,
    segment: &TcpFrame<'_>,
    count: usize,
) -> bool {
    if !ends.is_between(&tuple(&segment.path)) {
        return false;
    }
    let is_here = ends.is_at(segment.path.to);
    if !is_here {
        network.core().stats().add(Counter::RxRoceDiscards, count as u64);
    }
    is_here
}

/// Sends segments with this direction until `send` finds none, the slice is over, or the network
/// has no room. Returns the time of the next try if segments may be left.
pub(super) fn send_all<H: Host>(
    network: Network<'_, H>,
    heading: Heading,
    slice: &Slice<'_, H>,
    now: Nanos,
    mut send: impl FnMut() -> Option<Transmit>,
) -> Option<Nanos> {
    let room = network.fabric.room(network.core().mac(), heading);
    for nth in 0..MAX_FRAMES {
        if nth >= room {
            return Some(now.plus(NO_ROOM_PAUSE));
        }
        let sent = send()?;
        let stats = network.core().stats();
        stats.step(Counter::TxPkts);
        stats.add(Counter::TxBytes, sent.len as u64);
        slice.charge(cost::PACKET);
        if slice.is_over() {
            break;
        }
    }
    Some(now)
}
