//! Differences of XRC targets (IBTA annex A14): each message names its SRQ. The keys of the message
//! must be in the PD of this SRQ, its receives are taken, and completions go to its CQ.
//!
//! The SRQ may belong to another context than the target, and may be destroyed at any time.

use vrnic_abi::Srqn;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::Type;

use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::host::Host;
use crate::objects::completion::Completion;
use crate::objects::cq::Cq;
use crate::objects::qp::Responder;

/// Selects the SRQ with this number for the message in progress.
///
/// # Errors
/// [`Refusal::Invalid`] if the target's domain has no such SRQ, or if the SRQ with which the
/// message began has been destroyed.
pub(crate) fn choose<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    srqn: Srqn,
) -> Result<(), Refusal> {
    if responder.xrc.as_ref().is_some_and(|srq| srq.srqn == srqn && !srq.is_dead()) {
        return Ok(());
    }
    if responder.current.is_some() {
        return Err(Refusal::Invalid);
    }
    let found = there.qp.srqs.get(srqn);
    let in_domain = found.filter(|srq| {
        let is_chosen = srq.xrc.as_ref().is_some_and(|xrc| xrc.xrcdn == there.qp.xrcdn);
        is_chosen && srq.domain == there.qp.domain && !srq.is_dead()
    });
    responder.xrc = in_domain;
    responder.xrc.as_ref().map(|_| ()).ok_or(Refusal::Invalid)
}

/// Returns the CQ of the receives of a QP: for a target that of the SRQ of the message in progress.
#[inline]
pub(crate) fn receive_cq<'r, H: Host>(
    there: &'r PeerContext<'_, H>,
    responder: &'r Responder,
) -> &'r Cq {
    let shared = responder.xrc.as_ref().filter(|_| there.qp.kind == Type::XrcTgt);
    let xrc = shared.and_then(|srq| srq.xrc.as_ref());
    xrc.map_or(&*there.qp.recv_cq, |xrc| &*xrc.cq)
}

/// Writes the completion of a receive to the CQ of its SRQ, and reports its event. If the SRQ is
/// gone, the receive is not reported.
///
/// # Errors
/// Returns an error if the CQ has no room. The target has failed then.
pub(crate) fn complete<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &Responder,
    completion: &Completion,
) -> Result<(), Refusal> {
    let Some((srq, xrc)) = responder.xrc.as_ref().and_then(|srq| Some((srq, srq.xrc.as_ref()?)))
    else {
        return Ok(());
    };
    let completion = Completion { srqn: srq.srqn, ..*completion };
    let written = srq.while_alive(|| there.turn.complete(&xrc.cq, &completion));
    if let Some(Err(_overflow)) = written {
        there.qp.failed(there.turn.core, Kind::QpFatal);
        return Err(Refusal::Operational);
    }
    Ok(())
}
