//! The end of a connection: by the peer, by an error, or by the program.

use vrnic_abi::connection::{Ending, Stage};
use vrnic_abi::qp::State;
use vrnic_tcp::connection::{End as TcpEnd, Event as TcpEvent, State as TcpState};

use super::turn::ToeTurn;
use crate::datapath::send_queue::{Turn, drained};
use crate::host::Host;
use crate::objects::qp::break_promise;
use crate::objects::qp::outstanding::OUTSTANDING;
use crate::objects::qp::tcp::bytes::receives::StreamEnd;

impl<H: Host> ToeTurn<'_, H> {
    /// Handles the events of TCP.
    pub(super) fn exchange(&mut self) {
        while let Some(event) = self.link.tcp_mut().event() {
            match event {
                // Completions follow the position itself.
                TcpEvent::Acknowledged(_) => {}
                TcpEvent::PeerClosed => {
                    self.content.receives.end = StreamEnd::Due;
                    self.link.life_mut().peer_closed();
                    // The next turn tells the program.
                    self.qp.schedule(self.network.core());
                }
                TcpEvent::Closed => {
                    self.content.closed = true;
                    self.link.life_mut().closed();
                }
                TcpEvent::Ended(TcpEnd::Closed) => {}
                TcpEvent::Ended(end) => self.failed(end),
            }
        }
        let told = self.content.receives.end == StreamEnd::Told;
        if self.content.closed && told && self.complete().is_none() {
            self.link.life_mut().end(Ending::Graceful);
            self.qp.fail();
        }
    }

    /// Handles an end of TCP that is not graceful. A peer that has forgotten the connection before
    /// its own end was acknowledged answers with a reset, and nothing is lost.
    fn failed(&mut self, end: TcpEnd) {
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

    /// Closes the local direction behind the last byte of all sends that were posted. Sends that
    /// are posted later are flushed at the end.
    pub(super) fn close(&mut self) {
        let core = self.network.core();
        if self.qp.has_posted(core.host()) || self.requester.current.is_some() {
            return;
        }
        if self.content.session.as_mut().is_some_and(|session| !session.close()) {
            return;
        }
        self.content.sends.finish();
        self.link.tcp_mut().close();
        if self.link.outstanding().is_empty() {
            let _idle = drained(core, self.qp, self.requester);
        }
    }

    /// Ends the connection of a QP in the error state. If both directions are closed, TCP only
    /// answers late segments; otherwise the peer gets a reset.
    pub(super) fn finish(&mut self) -> Turn {
        let now = self.begin();
        if let Some(switch) = self.content.switch.take() {
            let ending = match self.link.life().ending() {
                Ending::None => Ending::Abortive,
                ending => ending,
            };
            break_promise(Some(switch), ending);
        }
        if self.link.life().ending() != Ending::Graceful {
            self.link.life_mut().end(Ending::Local);
            self.link.tcp_mut().abort();
        }
        let sent = self.transmit(now);
        while self.link.tcp_mut().event().is_some() {}
        // Sends that the peer has acknowledged were executed. The others are flushed.
        for _ in 0..OUTSTANDING {
            if self.complete().is_none() {
                break;
            }
        }
        if sent.is_none() && self.link.tcp().state() == TcpState::Closed {
            self.link.gone();
        }
        let over = self.link.life().stage() == Stage::Gone;
        let next = [sent, self.link.tcp().deadline()].into_iter().flatten().min();
        next.filter(|_| !over).map_or(Turn::Failed, Turn::FailedUntil)
    }
}
