//! Frames that come off the Ethernet: which worker of the adapter each is for.

use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_roce::wire::{Frame as RoceFrame, Qpn};

use crate::ethernet::Frame;
use crate::host::Host;
use crate::objects::Objects;
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
        Ok(None) => return Some(frame),
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
