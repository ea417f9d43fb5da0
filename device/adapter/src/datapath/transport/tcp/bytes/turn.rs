//! A turn of a QP whose TCP connection carries bytes, which go to receives.

use vrnic_abi::connection::Ending;
use vrnic_abi::qp::State;
use vrnic_packet::Nanos;
use vrnic_tcp::Connection;
use vrnic_tcp::connection::{End as TcpEnd, Event as TcpEvent};

use super::inbox::Inbox;
use crate::datapath::peer_context::PeerContext;
use crate::datapath::send_queue::Turn;
use crate::datapath::transport::ended;
use crate::datapath::transport::taking::{Protocol, Queue};
use crate::datapath::transport::tcp::turn::{Carrier, Pass, TcpTurn, Traffic};
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::objects::qp::tcp::bytes::Toe;
use crate::objects::qp::tcp::bytes::receives::StreamEnd;
use crate::objects::qp::tcp::bytes::sends::Sends;
use crate::requests::wqe::SendWqe;

/// The mode of a connection whose bytes go to receives, in a turn of its QP.
pub(in crate::datapath::transport::tcp) trait Mode<H: Host>:
    Traffic<H>
{
    /// Makes a work request, whose WQE is `raw`, outstanding, and appends its bytes.
    fn post(&mut self, here: &TurnContext<'_, H>, send: &SendWqe, raw: &[u8]);

    /// Ends the work requests whose bytes the peer has acknowledged.
    fn acknowledge(&mut self);

    /// Takes no more work requests. Returns false if something must be sent before.
    fn stop(&mut self) -> bool;

    /// Returns whether no more work requests are taken.
    fn has_stopped(&self) -> bool;

    /// Adds what is sent besides the work requests. Returns whether there is more.
    fn answer(&mut self) -> bool {
        false
    }

    /// Ends a transition to messages, if there is one.
    fn break_off(&mut self, _ending: Ending) {}
}

/// A QP in its turn, whose connection carries bytes in the mode `M`.
pub(in crate::datapath::transport::tcp) type ToeTurn<'a, H, M> = TcpTurn<'a, H, Toe<M>>;

impl<H: Host, M> Protocol<H> for ToeTurn<'_, H, M>
where
    Self: Mode<H>,
{
    fn admits(&mut self) -> bool {
        let sends = matches!(self.qp.state(), State::Rts | State::Sqd) && !self.has_stopped();
        sends && !self.link.outstanding().has_failed() && self.link.has_room(Sends::MAX_BYTES)
    }

    fn queue(&mut self) -> Queue<'_, H> {
        let outstanding = self.link.outstanding_mut();
        Queue { qp: self.qp, requester: self.requester, outstanding }
    }

    fn start(&mut self, here: &TurnContext<'_, H>, send: &SendWqe, raw: &[u8]) -> bool {
        self.post(here, send, raw);
        true
    }
}

impl<H: Host, M> Carrier<H> for ToeTurn<'_, H, M>
where
    Self: Mode<H>,
{
    fn exchange(&mut self) {
        let ended = self.link.life().ending() != Ending::None;
        while let Some(event) = self.link.tcp_mut().event() {
            match event {
                _ if ended => {}
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
                TcpEvent::Ended(end) => self.lost(end),
            }
        }
        let told = self.content.receives.end == StreamEnd::Told;
        if self.content.closed && told && !ended && self.report().is_none() {
            self.link.life_mut().end(Ending::Graceful);
            self.qp.fail();
        }
    }

    fn look(&mut self, _now: Nanos) -> Pass {
        let more = std::mem::take(&mut self.content.receives.tired);
        Pass { takes: true, more, at: None }
    }

    fn admit(&mut self, _now: Nanos, _pass: &mut Pass) -> bool {
        self.qp.state() != State::Err
    }

    fn add(&mut self, _now: Nanos, pass: &mut Pass) {
        pass.more |= self.answer();
        if self.qp.state() == State::Sqd {
            self.close();
        }
    }

    fn report(&mut self) -> Option<Turn> {
        self.acknowledge();
        let here = TurnContext::new(self.network.core(), self.qp, self.slice);
        ended::complete(&here, self.qp, self.link.outstanding_mut())
    }

    fn settle(&mut self, pass: &mut Pass) -> bool {
        if self.report().is_some() || self.qp.state() == State::Err {
            return false;
        }
        // There may be room for more work requests now.
        pass.more |= self.qp.has_posted(self.network.core().host())
            && self.link.outstanding().is_empty()
            && pass.at.is_none()
            && !self.has_stopped();
        true
    }

    /// If both directions are closed, TCP only answers late segments; otherwise the peer gets a
    /// reset. Sends that the peer has acknowledged were executed. The others are flushed.
    fn cut(&mut self, _now: Nanos) -> Option<Nanos> {
        let ending = self.link.life().ending();
        let reason = if ending == Ending::None { Ending::Abortive } else { ending };
        self.break_off(reason);
        if ending != Ending::Graceful {
            self.link.life_mut().end(Ending::Local);
            self.link.tcp_mut().abort();
        }
        None
    }
}

impl<H: Host, M> ToeTurn<'_, H, M> {
    /// Calls `work` with the receives, the mode and TCP.
    pub(in crate::datapath::transport::tcp) fn with_inbox<T>(
        &mut self,
        work: impl FnOnce(Inbox<'_, '_, H>, &mut M, &mut Connection) -> T,
    ) -> T {
        let there = PeerContext::new(self.network.core(), self.qp, self.slice);
        let mut responder = self.qp.responder.lock();
        let Toe { receives, mode, .. } = &mut *self.content;
        let inbox = Inbox { there: &there, responder: &mut responder, receives };
        let done = work(inbox, mode, self.link.tcp_mut());
        if std::mem::take(&mut responder.event_due) {
            there.turn.fire(&self.qp.recv_cq);
        }
        done
    }
}
