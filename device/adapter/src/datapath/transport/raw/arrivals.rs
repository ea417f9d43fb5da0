//! The receive of a frame.

use vrnic_abi::Qpn;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::Type;
use vrnic_packet::offload;
use vrnic_packet::segments::cut::each_of;

use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder::{outcome, receives};
use crate::datapath::sgl::SgList;
use crate::datapath::transport::peers::Network;
use crate::ethernet::Frame;
use crate::host::Host;
use crate::objects::completion::Completion;
use crate::objects::qp::Responder;
use crate::slice::Slice;
use crate::stats::Counter;

/// The reason for which a frame was not received.
enum NotReceived {
    /// There is no receive, or it is too short. The frame is dropped, and the receive stays posted.
    Dropped,
    /// The receive or its memory is faulty. The QP fails.
    Receiver(Refusal),
}

impl From<Refusal> for NotReceived {
    fn from(refusal: Refusal) -> Self {
        Self::Receiver(refusal)
    }
}

/// Puts a frame, or each frame that was joined to it, into the next receive of a QP. Counts the
/// frames that are lost.
pub(crate) fn arrive<H: Host>(
    network: Network<'_, H>,
    frame: &Frame,
    qpn: Qpn,
    slice: &Slice<'_, H>,
) {
    let (core, mut received) = (network.core(), 0);
    let qp = network.own.qp(qpn);
    // The number may have been given to a QP of another type since the frame was queued.
    let qp = qp.filter(|qp| qp.kind == Type::RawPacket && core.carries() && qp.receives());
    if let Some(qp) = qp {
        let there = PeerContext::new(core, &qp, slice);
        let mut responder = qp.responder.lock();
        let _counted = each_of(frame.clone(), |frame| {
            received += u64::from(bring(&there, &mut responder, &frame));
        });
        if std::mem::take(&mut responder.event_due) {
            there.turn.fire(&qp.recv_cq);
        }
    }
    let lost = (frame.count() as u64).saturating_sub(received);
    if lost > 0 {
        core.stats().add(Counter::RxRawDiscards, lost);
    }
}

/// Puts a frame into the next receive. Returns whether it was received.
fn bring<H: Host>(there: &PeerContext<'_, H>, responder: &mut Responder, frame: &Frame) -> bool {
    // The QP may have failed, or may have been reset, before the lock was acquired.
    if !there.qp.receives() {
        return false;
    }
    let outcome = place(there, responder, frame.bytes());
    let outcome = outcome.and_then(|()| Ok(complete(there, responder, frame.bytes())?));
    match outcome {
        Ok(()) => {
            there.turn.step(Counter::RxPkts);
            there.turn.add(Counter::RxBytes, frame.bytes().len() as u64);
            true
        }
        Err(NotReceived::Dropped) => false,
        Err(NotReceived::Receiver(refusal)) => {
            outcome::fail(there, responder, refusal);
            false
        }
    }
}

/// Copies a frame to the next receive, which becomes the current one.
fn place<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    bytes: &[u8],
) -> Result<(), NotReceived> {
    if responder.current.is_none() {
        responder.current = receives::next(there, responder)?;
    }
    let recv = responder.current.as_ref().ok_or(NotReceived::Dropped)?;
    let segments = recv.segments.as_ref().ok_or(Refusal::Malformed)?;
    let length = bytes.len() as u64;
    if segments.total() < length {
        return Err(NotReceived::Dropped);
    }
    let mut target = SgList::default();
    target
        .add_filled(&there.turn, recv.user, segments, &responder.raw, length)
        .map_err(|_| Refusal::Operational)?;
    target.write::<H>(&there.turn.memory, 0, bytes).map_err(|_| Refusal::Operational)?;
    there.turn.moved(length);
    Ok(())
}

/// Completes the receive that a frame has filled.
///
/// # Errors
/// Returns an error if there is none, or if the CQ has no room. The QP has failed then.
fn complete<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    bytes: &[u8],
) -> Result<(), Refusal> {
    let recv = responder.current.take().ok_or(Refusal::NotReady)?;
    let completion = Completion {
        // CAST: a frame is short.
        byte_len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        checksums: offload::are_right(bytes),
        ..Completion::of_receive(there.qp.qpn, &recv, Status::Success)
    };
    outcome::complete(there, responder, &completion)
}
