//! Frames that come off the Ethernet: which worker of the adapter each is for.

use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_roce::wire::{Frame as RoceFrame, Qpn};
use vrnic_tcp::wire::frame::{Frame as TcpFrame, Path as TcpPath};

use crate::ethernet::Frame;
use crate::host::Host;
use crate::objects::Objects;
use crate::objects::claims::Tuple;
use crate::stats::Counter;

/// Leaves a frame for the worker of the QP that it is for, if it is RoCE; else returns it. A frame
/// that no QP of the adapter can take is dropped and counted. Without a driver the adapter takes
/// none: its guest may have a software device on its network card. Callable from any thread.
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

/// Leaves a frame of a TCP connection that the adapter has taken over for the worker of its QP;
/// else returns it.
fn offer_tcp<H: Host>(objects: &Objects<H>, frame: Frame) -> Option<Frame> {
    if !objects.claims.any() {
        return Some(frame);
    }
    let Ok(Some(parsed)) = TcpFrame::parse(frame.bytes()) else { return Some(frame) };
    let Some(qpn) = objects.claims.find(&tuple(&parsed.path)) else { return Some(frame) };
    let core = objects.core();
    let worker = objects.qp(qpn).map(|qp| qp.worker);
    let fits = frame.bytes().len() <= FRAME_MAX;
    if !(fits && worker.is_some_and(|worker| core.carries() && core.put_frame(worker, frame))) {
        core.stats().step(Counter::RxRoceDiscards);
    }
    None
}

/// Returns the addresses of the connection of a frame that has arrived, as the receiver sees them.
pub(crate) fn tuple(path: &TcpPath) -> Tuple {
    let vlan = path.vlan.map(|tag| tag & 0x0fff);
    Tuple { vlan, local: path.destination, remote: path.source }
}
