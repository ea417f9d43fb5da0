//! Delivers a frame to a QP, in the poll of the QP's worker.

use std::sync::Arc;

use vrnic_roce::Discard;
use vrnic_roce::wire::{Body, Frame as RoceFrame, Qpn};

use super::requests::Received;
use super::{answers, datagrams, requests};
use crate::datapath::transport::peers::Network;
use crate::ethernet::Parsed;
use crate::host::Host;
use crate::objects::qp::Qp;
use crate::slice::Slice;
use crate::stats::Counter;

/// Passes a frame to its destination QP. Returns the QP if it needs a turn.
pub(crate) fn arrive<H: Host>(
    network: Network<'_, H>,
    arrived: Parsed<'_>,
    slice: &Slice<'_, H>,
) -> Option<Arc<Qp<H>>> {
    deliver(network, arrived, slice).unwrap_or_else(|discard| {
        network.core().stats().step(match discard {
            Discard::Icrc => Counter::RxIcrcEncapsulated,
            _ => Counter::RxRoceDiscards,
        });
        None
    })
}

fn deliver<H: Host>(
    network: Network<'_, H>,
    arrived: Parsed<'_>,
    slice: &Slice<'_, H>,
) -> Result<Option<Arc<Qp<H>>>, Discard> {
    let Parsed { frame, headers } = arrived;
    let parsed = RoceFrame::of(frame.bytes(), &headers)?.ok_or(Discard::Truncated)?;
    let packet = parsed.packet()?;
    let core = network.core();
    if !core.carries() {
        return Err(Discard::State);
    }
    if packet.payload.len() as u64 > core.mtu_bytes() {
        return Err(Discard::PayloadLength);
    }
    if packet.head.destination == Qpn::MULTICAST {
        datagrams::receive_by_group(network, &Received { arrived, parsed, packet }, slice)?;
        return Ok(None);
    }
    let qp = network.own.qp(packet.head.destination.get().into()).ok_or(Discard::State)?;
    let received = Received { arrived, parsed, packet };
    match received.packet.body {
        Body::Datagram(_) => {
            datagrams::receive(network, &qp, &received, slice)?;
            return Ok(None);
        }
        Body::Request(_) => requests::receive(network, &qp, &received, slice)?,
        Body::Response(_) | Body::Congestion => answers::receive(network, &qp, &received, slice)?,
    }
    Ok(Some(qp))
}
