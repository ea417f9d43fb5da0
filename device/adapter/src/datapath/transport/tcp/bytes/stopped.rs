//! A connection whose send queue has stopped: a reactive QP after a refused command of iSCSI.

use vrnic_abi::qp::State;

use super::turn::ToeTurn;
use crate::datapath::send_queue::Turn;
use crate::host::Host;
use crate::objects::qp::outstanding::OUTSTANDING;

impl<H: Host> ToeTurn<'_, H> {
    /// Handles the failure of a work request or of the stream: only the send queue has stopped, or
    /// the connection ends.
    pub(super) fn stop_or_finish(&mut self) -> Turn {
        if self.qp.state() == State::Sqe { self.stopped() } else { self.finish() }
    }

    /// Runs a turn without new work requests. PDUs of the target, answers to R2Ts, and work
    /// requests before the refused one go on. Requests that are still in the send queue are flushed
    /// when all those have completed.
    pub(super) fn stopped(&mut self) -> Turn {
        let now = self.begin();
        self.receive(now);
        self.exchange();
        let mut more = std::mem::take(&mut self.content.receives.tired);
        more |= self.answer();
        let sent = self.transmit(now);
        self.exchange();
        // Each pass completes one request that has failed.
        for _ in 0..OUTSTANDING {
            if self.complete().is_none() {
                break;
            }
        }
        if self.qp.state() == State::Err {
            return self.finish();
        }
        if sent.is_none() && more {
            return Turn::More;
        }
        let (deadline, probe) = (self.link.tcp().deadline(), self.link.tcp().keepalive());
        let next = [sent, deadline, probe].into_iter().flatten().min();
        match (next, self.link.outstanding().is_empty()) {
            (Some(at), true) => Turn::FailedUntil(at),
            (None, true) => Turn::Failed,
            (Some(at), false) => Turn::Wait(at),
            (None, false) => Turn::Idle,
        }
    }
}
