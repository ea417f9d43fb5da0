//! Frames from the Ethernet: finds the worker of the adapter for each frame.

use vrnic_abi::qp::{Service, Type};
use vrnic_packet::Headers;
use vrnic_packet::ethernet::vlan_of;
use vrnic_roce::wire::Qpn;
use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_roce::wire::frame::{destination, is_roce};
use vrnic_tcp::wire::TooLong;
use vrnic_tcp::wire::frame::Path as TcpPath;

use super::arrival::{self, Arrival};
use super::flow::Flow;
use super::rules;
use crate::ethernet::{Class, Classified, Frame, Offered};
use crate::host::Host;
use crate::objects::Objects;
use crate::objects::core::Core;
use crate::objects::network::claims::Tuple;
use crate::stats::Counter;

/// Queues a frame for the workers of its destination QPs, or returns it. RDMA comes first, and then
/// the flow rules. Without a driver the adapter takes no frame, because its guest may have a
/// software device on its network card. Can be called from any thread.
pub(crate) fn offer<H: Host>(objects: &Objects<H>, frame: Frame, arrival: &Arrival<'_>) -> Offered {
    if !objects.core().is_enabled() {
        return Offered::Other(frame);
    }
    if !objects.flows.any() {
        return offer_rdma(objects, frame, arrival);
    }
    let copy = objects.flows.has_sniffers().then(|| frame.clone());
    match offer_rdma(objects, frame, arrival) {
        Offered::Other(frame) => {
            drop(copy);
            rules::take(objects, frame, arrival)
        }
        offered => {
            if let Some(copy) = copy {
                arrival.add_copies(rules::sniff(objects, &copy));
            }
            offered
        }
    }
}

/// Does the same as [`offer`] for a frame that the switch brings.
pub(crate) fn offer_last<H: Host>(objects: &Objects<H>, frame: Frame) -> Offered {
    offer(objects, frame, &Arrival::default())
}

/// Queues a frame of RoCE or of a connection for the worker of its QP, and returns any other frame.
/// A RoCE frame that no QP of the adapter can receive is dropped and counted. No frame to a group
/// of stations reaches a connection.
fn offer_rdma<H: Host>(objects: &Objects<H>, frame: Frame, arrival: &Arrival<'_>) -> Offered {
    let core = objects.core();
    let Some(headers) = Headers::of(frame.bytes()) else { return Offered::Other(frame) };
    let may_receive = |kind: Type| kind.is_datagram() || !frame.is_to_group();
    if !is_roce(frame.bytes(), &headers) {
        return offer_tcp(objects, frame, headers, arrival);
    }
    let to = destination(frame.bytes(), &headers);
    let worker = match to {
        Some(Qpn::MULTICAST) => Some(0),
        Some(qpn) => objects.worker_of(qpn.get().into(), may_receive),
        None => None,
    };
    let worker = worker.filter(|_| frame.longest() <= FRAME_MAX);
    arrival.record(core, to.map(|qpn| qpn.get().into()), &frame);
    put(core, worker, Classified { frame, class: Class::Roce(headers) })
}

/// Queues a frame for a worker. Counts a frame that is lost.
fn put<H: Host>(core: &Core<H>, worker: Option<usize>, classified: Classified) -> Offered {
    let Classified { frame, .. } = &classified;
    let count = frame.count();
    let offered = match worker.filter(|_| core.carries()) {
        Some(worker) if core.put_frame(worker, classified) => return Offered::Taken,
        Some(_) => Offered::Full,
        None => Offered::Taken,
    };
    core.stats().add(Counter::RxRoceDiscards, count as u64);
    offered
}

/// Queues a frame of a TCP connection that the adapter has taken over for the worker of its QP, and
/// returns any other frame. Frames without known ports that may belong to such a connection, such
/// as fragments, are dropped, because the guest's kernel must not see the bytes.
fn offer_tcp<H: Host>(
    objects: &Objects<H>,
    frame: Frame,
    headers: Headers,
    arrival: &Arrival<'_>,
) -> Offered {
    // The guest's kernel ignores segments to groups (RFC 1122, 4.2.3.10).
    if !objects.claims.any() || frame.is_to_group() {
        return Offered::Other(frame);
    }
    let Some(flow) = Flow::of(frame.bytes(), &headers) else {
        offer_notice(objects, &frame, headers);
        return Offered::Other(frame);
    };
    let Flow { vlan, source: remote, destination: local, portless } = flow;
    let core = objects.core();
    if portless {
        if !objects.claims.has_between(vlan, local.ip(), remote.ip()) {
            return Offered::Other(frame);
        }
        arrival.record(core, None, &frame);
        core.stats().add(Counter::RxRoceDiscards, frame.count() as u64);
        return Offered::Taken;
    }
    let Some(qpn) = objects.claims.find(&Tuple { vlan, local, remote }) else {
        return Offered::Other(frame);
    };
    arrival.record(core, Some(qpn), &frame);
    let classified = Classified { frame, class: Class::Segment(qpn, headers) };
    // The kernel has agreed on the length of segments for a program, and not for RDMA.
    let is_long = classified.frame.longest() > FRAME_MAX;
    let worker = objects.worker_of(qpn, |kind| kind.info().service == Service::Bytes || !is_long);
    put(core, worker, classified)
}

/// Queues a copy of a notice that a segment was too long for its path for the worker of the sending
/// QP. The guest's kernel also gets the notice, because it has routes of its own.
fn offer_notice<H: Host>(objects: &Objects<H>, frame: &Frame, headers: Headers) {
    let Some(notice) = TooLong::of(frame.bytes(), &headers) else { return };
    let core = objects.core();
    let qp = objects.claims.find(&tuple_of(&notice)).and_then(|qpn| objects.qp(qpn));
    if let Some(qp) = qp.filter(|_| frame.bytes().len() <= FRAME_MAX && core.carries()) {
        let class = Class::TooLong(qp.qpn, headers);
        let _lost = core.put_frame(qp.worker(), Classified { frame: frame.clone(), class });
    }
}

/// Returns the addresses of the connection of a segment that was too long, as its sender sees them.
pub(crate) fn tuple_of(notice: &TooLong) -> Tuple {
    let vlan = notice.vlan.and_then(vlan_of);
    Tuple { vlan, local: notice.source, remote: notice.destination }
}

/// Returns whether a frame of the guest's network card belongs to a TCP connection that the adapter
/// has taken over. The guest's kernel still has a socket for it, whose segments must not be sent.
/// Can be called from any thread.
pub(crate) fn has_taken_over<H: Host>(objects: &Objects<H>, frame: &[u8]) -> bool {
    if !objects.claims.any() {
        return false;
    }
    Headers::of(frame).and_then(|headers| Flow::of(frame, &headers)).is_some_and(|flow| {
        let Flow { vlan, source: local, destination: remote, portless } = flow;
        if portless {
            objects.claims.has_between(vlan, local.ip(), remote.ip())
        } else {
            objects.claims.find(&Tuple { vlan, local, remote }).is_some()
        }
    })
}

/// Returns the comment of captures on a frame that the switch brings, if its QP is traced. Can be
/// called from any thread.
pub(crate) fn note<H: Host>(objects: &Objects<H>, frame: &Frame) -> Option<String> {
    let core = objects.core();
    if !core.injection.is_traced() {
        return None;
    }
    let headers = Headers::of(frame.bytes())?;
    let qpn = if is_roce(frame.bytes(), &headers) {
        destination(frame.bytes(), &headers)?.get().into()
    } else {
        let Flow { vlan, source: remote, destination: local, .. } =
            Flow::of(frame.bytes(), &headers)?;
        objects.claims.find(&Tuple { vlan, local, remote })?
    };
    arrival::note(core, Some(qpn), frame)
}

/// Returns the addresses of the connection of a received frame, as the receiver sees them.
pub(crate) fn tuple(path: &TcpPath) -> Tuple {
    let vlan = path.vlan.and_then(vlan_of);
    Tuple { vlan, local: path.destination, remote: path.source }
}
