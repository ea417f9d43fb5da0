//! Differences of XRC targets (IBTA annex A14): each message names the SRQ that it is for. That
//! one's PD is the one of the message's keys, its receives are taken, and they complete to its CQ.
//!
//! The SRQ may belong to another context than the target, and end at any time.

use vrnic_abi::Srqn;
use vrnic_abi::eq::Kind;

use crate::datapath::refusal::Refusal;
use crate::datapath::there::There;
use crate::host::Host;
use crate::objects::completion::Completion;
use crate::objects::qp::Responder;

/// Makes the SRQ with this number the one that the message in progress is for.
///
/// # Errors
/// [`Refusal::Invalid`] when there is none in the target's domain, or the one that the message
/// began with has gone.
pub(crate) fn choose<H: Host>(
    there: &There<'_, H>,
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
        srq.xrc.as_ref().is_some_and(|xrc| xrc.xrcdn == there.qp.xrcdn) && !srq.is_dead()
    });
    responder.xrc = in_domain;
    responder.xrc.as_ref().map(|_| ()).ok_or(Refusal::Invalid)
}

/// Writes the completion of a receive to the CQ of its SRQ, and fires its event. Nobody learns of
/// one whose SRQ is gone.
///
/// # Errors
/// When that CQ takes no entry any more; the target has failed then.
pub(crate) fn complete<H: Host>(
    there: &There<'_, H>,
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
