//! The end of a connection that carries bytes: by the peer, by an error, or by the program.

use vrnic_abi::connection::{Ending, Stage};
use vrnic_abi::qp::State;
use vrnic_tcp::connection::End as TcpEnd;

use super::turn::{Mode, ToeTurn};
use crate::host::Host;

impl<H: Host, M> ToeTurn<'_, H, M>
where
    Self: Mode<H>,
{
    /// Handles an end of TCP that is not graceful. A peer that has forgotten the connection before
    /// its own end was acknowledged answers with a reset, and nothing is lost.
    pub(super) fn lost(&mut self, end: TcpEnd) {
        let closing = self.qp.state() == State::Sqd;
        let is_drained = self.link.outstanding().is_empty();
        let life = self.link.life_mut();
        let closed = closing && life.stage() == Stage::Closing && is_drained;
        if end == TcpEnd::Reset && !closed {
            life.end(Ending::Reset);
        }
        if closing && !(closed && end == TcpEnd::Reset) {
            life.closed_badly();
        }
        life.tcp_ended(end);
        life.end(Ending::Abortive);
        self.qp.fail();
    }

    /// Closes the local direction after the last byte of all sends that were posted. Sends that
    /// are posted later are flushed at the end.
    pub(super) fn close(&mut self) {
        if self.has_more_requests() || !self.stop() {
            return;
        }
        self.link.tcp_mut().close();
        self.report_drained();
    }
}
