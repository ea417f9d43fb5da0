//! Adds the engines' counts to the counters of the adapter, which have the names of other adapters.

use vrnic_roce::{requester, responder};

use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::stats::Counter;

/// Adds the counts of an engine of the sending half since the last call.
pub(super) fn of_requester<H: Host>(
    here: &TurnContext<'_, H>,
    counted: &mut requester::Counters,
    now: &requester::Counters,
) {
    if counted == now {
        return;
    }
    let before = std::mem::replace(counted, *now);
    for (counter, before, now) in [
        (Counter::LocalAckTimeoutErr, before.timeouts, now.timeouts),
        (Counter::PacketSeqErr, before.sequence_naks, now.sequence_naks),
        (Counter::ImpliedNakSeqErr, before.implied_naks, now.implied_naks),
        (Counter::RnrNakRetryErr, before.not_ready, now.not_ready),
        (Counter::RoceAdpRetrans, before.resent, now.resent),
        (Counter::RpCnpHandled, before.notified, now.notified),
    ] {
        here.add(counter, now.wrapping_sub(before));
    }
}

/// Adds the counts of an engine of the receiving half since the last call.
pub(super) fn of_responder<H: Host>(
    here: &TurnContext<'_, H>,
    counted: &mut responder::Counters,
    now: &responder::Counters,
) {
    if counted == now {
        return;
    }
    let before = std::mem::replace(counted, *now);
    for (counter, before, now) in [
        (Counter::OutOfSequence, before.early, now.early),
        (Counter::DuplicateRequest, before.duplicates, now.duplicates),
        (Counter::SendRnrErr, before.not_ready, now.not_ready),
        (Counter::OutOfBuffer, before.not_ready, now.not_ready),
    ] {
        here.add(counter, now.wrapping_sub(before));
    }
}
