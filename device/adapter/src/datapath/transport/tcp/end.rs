//! The end of a TCP connection of a QP, whatever it carries: by the peer, by an error, by the
//! driver, or by a time limit. The send queue may also stop without the connection.

use vrnic_abi::connection::Stage;
use vrnic_abi::qp::State;
use vrnic_tcp::connection::State as TcpState;

use super::turn::{Carrier, TcpTurn, Traffic};
use crate::datapath::send_queue::{Turn, drained};
use crate::host::Host;
use crate::objects::qp::outstanding::OUTSTANDING;

impl<H: Host, C> TcpTurn<'_, H, C>
where
    Self: Carrier<H>,
{
    /// Handles the failure of a work request or of the connection: only the send queue has stopped,
    /// or the connection ends.
    pub(super) fn failed(&mut self) -> Turn {
        if self.qp.state() == State::Sqe { self.stopped() } else { self.finish() }
    }

    /// Runs a turn without new work requests, of a reactive QP after a refused request that
    /// concerns a key. The connection continues: requests of the peer, and work requests before the
    /// refused one. Requests that are still in the send queue are flushed when all those have
    /// completed.
    pub(super) fn stopped(&mut self) -> Turn {
        let now = self.begin();
        self.receive(now);
        self.exchange();
        let mut pass = self.look(now);
        self.add(now, &mut pass);
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
        if sent.is_none() && (pass.more || self.waits_for_turn()) {
            return Turn::More;
        }
        let (deadline, probe) = (self.link.tcp().deadline(), self.link.tcp().keepalive());
        let next = [sent, deadline, probe, pass.at].into_iter().flatten().min();
        match (next, self.link.outstanding().is_empty()) {
            (Some(at), true) => Turn::FailedUntil(at),
            (None, true) => Turn::Failed,
            (Some(at), false) => Turn::Wait(at),
            (None, false) => Turn::Idle,
        }
    }

    /// Ends the connection of a QP in the error state, and completes its work requests. Requests
    /// that are still in the send queue are flushed afterwards, while TCP continues until both ends
    /// have closed.
    pub(super) fn finish(&mut self) -> Turn {
        let now = self.begin();
        let limit = self.cut(now);
        let sent = self.transmit(now);
        self.exchange();
        // Each pass completes one request that has failed.
        for _ in 0..OUTSTANDING {
            if self.report().is_none() || self.link.outstanding().is_empty() {
                break;
            }
        }
        if sent.is_none() && self.link.tcp().state() == TcpState::Closed {
            self.link.gone();
        }
        let over = self.link.life().stage() == Stage::Gone;
        let next = [sent, self.link.tcp().deadline(), limit].into_iter().flatten().min();
        match next.filter(|_| !over) {
            Some(at) if self.holds_requests() => Turn::Wait(at),
            Some(at) => Turn::FailedUntil(at),
            None => Turn::Failed,
        }
    }

    /// Returns whether the send queue has work requests that are not outstanding. The local
    /// direction is closed when there are none; requests that are posted later are flushed at the
    /// end.
    pub(super) fn has_more_requests(&self) -> bool {
        self.qp.has_posted(self.network.core().host()) || self.requester.current.is_some()
    }

    /// Reports that the send queue of a QP that closes its direction is drained, if it is.
    pub(super) fn report_drained(&mut self) {
        if self.link.outstanding().is_empty() {
            let _idle = drained(self.network.core(), self.qp, self.requester);
        }
    }
}
