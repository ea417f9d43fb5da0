//! A connection whose send queue has stopped: a reactive QP after a refused request that concerns a
//! key.

use vrnic_abi::qp::State;

use super::turn::Sending;
use crate::datapath::send_queue::Turn;
use crate::host::Host;
use crate::objects::qp::outstanding::OUTSTANDING;

impl<H: Host> Sending<'_, H> {
    /// Handles the failure of a work request or of the stream: only the send queue has stopped, or
    /// the connection ends.
    pub(super) fn failed(&mut self) -> Turn {
        if self.qp.state() == State::Sqe { self.stopped() } else { self.finish() }
    }

    /// Runs a turn without new work requests. The stream goes on: requests of the peer, and work
    /// requests before the refused one. Requests that are still in the send queue are flushed when
    /// all those have completed.
    pub(super) fn stopped(&mut self) -> Turn {
        let now = self.begin();
        let (limit, look) = (
            self.limit(now),
            self.content.check_waits(now, || self.qp.waits_for(&self.qp.recv_cq)),
        );
        let sent = self.transmit(now);
        self.exchange();
        // Each pass completes one request that has failed.
        for _ in 0..OUTSTANDING {
            if self.report().is_none() {
                break;
            }
        }
        if self.qp.state() == State::Err {
            return self.finish();
        }
        if sent.is_none() && self.content.stream.waits_for_turn() {
            return Turn::More;
        }
        let (deadline, probe) = (self.link.tcp().deadline(), self.link.tcp().keepalive());
        let next = [sent, deadline, probe, limit, look].into_iter().flatten().min();
        match (next, self.link.outstanding().is_empty()) {
            (Some(at), true) => Turn::FailedUntil(at),
            (None, true) => Turn::Failed,
            (Some(at), false) => Turn::Wait(at),
            (None, false) => Turn::Idle,
        }
    }
}
