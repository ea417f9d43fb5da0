//! A turn of a QP whose TCP connection carries bytes.

use vrnic_abi::connection::Ending;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_packet::Nanos;
use vrnic_tcp::StreamPos;
use vrnic_tcp::connection::{End as TcpEnd, Event as TcpEvent, Transmit};

use super::inbox::Inbox;
use super::source::Outbound;
use crate::datapath::send_queue::Turn;
use crate::datapath::there::There;
use crate::datapath::transport::ended;
use crate::datapath::transport::tcp::iscsi;
use crate::datapath::transport::tcp::turn::{Carrier, Pass, TcpTurn};
use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::qp::break_promise;
use crate::objects::qp::outstanding::End;
use crate::objects::qp::tcp::bytes::Bytes;
use crate::objects::qp::tcp::bytes::receives::StreamEnd;

/// A QP in its turn, whose connection carries bytes.
pub(super) type BytesTurn<'a, H> = TcpTurn<'a, H, Bytes<H>>;

impl<H: Host> Carrier<H> for BytesTurn<'_, H> {
    /// Puts bytes that were held back into receives, and offers the peer as many bytes as the
    /// receives can take.
    fn receive(&mut self, now: Nanos) {
        let there = There::new(self.network.core(), self.qp, self.slice);
        let mut responder = self.qp.responder.lock();
        let Bytes { receives, session, .. } = &mut *self.content;
        let tcp = self.link.tcp_mut();
        if let Some(session) = session {
            let mut inbox =
                iscsi::Inbox { there: &there, responder: &mut responder, receives, session };
            if inbox.go_on() && inbox.receives.held {
                inbox.receives.held = false;
                tcp.resume(now, &mut inbox);
            }
            inbox.tell_end();
            if std::mem::take(&mut responder.event_due) {
                there.turn.fire(&self.qp.recv_cq);
            }
            return;
        }
        let mut inbox = Inbox { there: &there, responder: &mut responder, receives };
        if inbox.deliver_early() && inbox.receives.held {
            inbox.receives.held = false;
            tcp.resume(now, &mut inbox);
        }
        inbox.release(tcp);
        inbox.tell_end();
        let early = u32::try_from(inbox.receives.early().len()).unwrap_or(u32::MAX);
        tcp.set_window(inbox.window().saturating_sub(early));
        if std::mem::take(&mut responder.event_due) {
            there.turn.fire(&self.qp.recv_cq);
        }
    }

    /// Handles the events of TCP.
    fn exchange(&mut self) {
        if self.link.life().ending() != Ending::None {
            while self.link.tcp_mut().event().is_some() {}
            return;
        }
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
                TcpEvent::Ended(end) => self.lost(end),
            }
        }
        let told = self.content.receives.end == StreamEnd::Told;
        if self.content.closed && told && self.report().is_none() {
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

    fn fill(&mut self, now: Nanos, into: &mut [u8]) -> Option<Transmit> {
        let (core, qp, slice) = (self.network.core(), self.qp, self.slice);
        let (tcp, outstanding) = self.link.io();
        let Bytes { sends, session, .. } = &*self.content;
        match session {
            Some(session) => {
                let outgoing = &session.outgoing;
                let mut source = iscsi::Outbound { core, qp, outgoing, outstanding, slice };
                tcp.transmit(now, &mut source, into)
            }
            None => {
                let mut source = Outbound { core, qp, sends, outstanding, slice };
                tcp.transmit(now, &mut source, into)
            }
        }
    }

    /// Completes work requests that have ended, in order. Returns the result of the turn if one of
    /// them has failed.
    fn report(&mut self) -> Option<Turn> {
        let una = self.free_acknowledged();
        while let Some(index) = self.content.sends.pop_acknowledged(una) {
            self.link.outstanding_mut().end(index.into(), End::Done);
        }
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
            && !self.content.sends.is_over();
        true
    }

    /// If both directions are closed, TCP only answers late segments; otherwise the peer gets a
    /// reset. Sends that the peer has acknowledged were executed. The others are flushed.
    fn cut(&mut self, _now: Nanos) -> Option<Nanos> {
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
        None
    }

    fn idle(&mut self, now: Option<Nanos>) -> Option<Nanos> {
        self.link.idle(now, |outstanding| {
            if outstanding.is_empty() {
                self.content.sends.shrink();
            }
        })
    }

    fn switch(&mut self, batch: &mut Batch) -> Option<Turn> {
        self.content.switch.is_some().then(|| self.before_messages(batch))
    }
}

impl<H: Host> BytesTurn<'_, H> {
    /// Adds the answers to R2Ts to what is sent, in the iSCSI mode. Returns whether there are more.
    /// If their data cannot be read, the QP fails.
    fn answer(&mut self) -> bool {
        self.free_acknowledged();
        let una = self.link.tcp().acknowledged();
        let Some(session) = &mut self.content.session else { return false };
        let here = TurnContext::new(self.network.core(), self.qp, self.slice);
        iscsi::answer(&here, self.qp, session, una).unwrap_or_else(|iscsi::Unreadable| {
            self.qp.failed(self.network.core(), Kind::QpFatal);
            false
        })
    }

    /// Frees the PDUs that the target has acknowledged, and so makes room for further answers.
    /// Returns the position of the first byte that is not acknowledged.
    fn free_acknowledged(&mut self) -> StreamPos {
        let una = self.link.tcp().acknowledged();
        let outstanding = self.link.outstanding_mut();
        if let Some(session) = &mut self.content.session {
            session
                .outgoing
                .drop_acknowledged(una, |index| outstanding.end(index.into(), End::Done));
        }
        una
    }
}
