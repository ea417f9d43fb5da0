//! Frames from the Ethernet: finds the worker of the adapter for each frame.

use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_roce::wire::{Frame as RoceFrame, Qpn};
use vrnic_tcp::wire::TooLong;
use vrnic_tcp::wire::frame::Path as TcpPath;

use super::flow::Flow;
use crate::ethernet::Frame;
use crate::host::Host;
use crate::objects::Objects;
use crate::objects::claims::{Tuple, vlan_of};
use crate::stats::Counter;

/// Queues a RoCE frame for the worker of its destination QP, and returns any other frame. A frame
/// that no QP of the adapter can receive is dropped and counted. Without a driver the adapter takes
/// no frame, because its guest may have a software device on its network card. Can be called from
/// any thread.
pub fn offer<H: Host>(objects: &Objects<H>, frame: Frame) -> Option<Frame> {
    let core = objects.core();
    if !core.is_enabled() {
        return Some(frame);
    }
    let destination = match RoceFrame::parse(frame.bytes()) {
        Ok(None) => return offer_tcp(objects, frame),
        Ok(Some(parsed)) => parsed.destination(),
        Err(_broken) => None,
    };
    let worker = match destination {
        Some(Qpn::MULTICAST) => Some(0),
        Some(qpn) => objects.qp(qpn.get().into()).map(|qp| qp.worker),
        None => None,
    };
    let fits = frame.bytes().len() <= FRAME_MAX;
    let put = fits && worker.is_some_and(|worker| core.carries() && core.put_frame(worker, frame));
    if !put {
        core.stats().step(Counter::RxRoceDiscards);
    }
    None
}

/// Queues a frame of a TCP connection that the adapter has taken over for the worker of its QP, and
/// returns any other frame. Fragments that may belong to such a connection are dropped, because the
/// guest's kernel must not see the bytes.
fn offer_tcp<H: Host>(objects: &Objects<H>, frame: Frame) -> Option<Frame> {
    if !objects.claims.any() {
        return Some(frame);
    }
    let Some(flow) = Flow::of(frame.bytes()) else {
        tell_too_long(objects, &frame);
        return Some(frame);
    };
    let Flow { vlan, source: remote, destination: local, fragment } = flow;
    let core = objects.core();
    if fragment {
        if !objects.claims.has_between(vlan, local.ip(), remote.ip()) {
            return Some(frame);
        }
        core.stats().add(Counter::RxRoceDiscards, frame.count() as u64);
        return None;
    }
    let Some(qpn) = objects.claims.find(&Tuple { vlan, local, remote }) else {
        return Some(frame);
    };
    let worker = objects.qp(qpn).map(|qp| qp.worker);
    let (fits, count) = (frame.longest() <= FRAME_MAX, frame.count());
    if !(fits && worker.is_some_and(|worker| core.carries() && core.put_frame(worker, frame))) {
        core.stats().add(Counter::RxRoceDiscards, count as u64);
    }
    None
}

/// Queues a copy of a notice that a segment was too long for its path for the worker of the sending
/// QP. The guest's kernel also gets the notice, because it has routes of its own.
fn tell_too_long<H: Host>(objects: &Objects<H>, frame: &Frame) {
    let Some(notice) = TooLong::parse(frame.bytes()) else { return };
    let (core, tuple) = (objects.core(), tuple_of(&notice));
    let qp = objects.claims.find(&tuple).and_then(|qpn| objects.qp(qpn));
    if let Some(qp) = qp.filter(|_| frame.bytes().len() <= FRAME_MAX && core.carries()) {
        let _lost = core.put_frame(qp.worker, frame.clone());
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
    Flow::of(frame).is_some_and(|flow| {
        let Flow { vlan, source: local, destination: remote, fragment } = flow;
        if fragment {
            objects.claims.has_between(vlan, local.ip(), remote.ip())
        } else {
            objects.claims.find(&Tuple { vlan, local, remote }).is_some()
        }
    })
}

/// Returns the addresses of the connection of a received frame, as the receiver sees them.
pub(crate) fn tuple(path: &TcpPath) -> Tuple {
    let vlan = path.vlan.and_then(vlan_of);
    Tuple { vlan, local: path.destination, remote: path.source }
}
