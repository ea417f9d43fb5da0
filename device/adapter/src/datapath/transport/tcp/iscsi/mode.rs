//! The iSCSI mode of a connection whose bytes go to receives.

use vrnic_abi::eq::Kind;
use vrnic_packet::Nanos;
use vrnic_tcp::connection::Transmit;

use super::answer::{Unreadable, answer};
use super::inbox::Inbox;
use super::post::post;
use super::source::Outbound;
use crate::datapath::transport::tcp::bytes::{Mode, ToeTurn};
use crate::datapath::transport::tcp::turn::Traffic;
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::objects::qp::outstanding::End;
use crate::objects::qp::tcp::iscsi::Session;
use crate::requests::wqe::SendWqe;

impl<H: Host> Traffic<H> for ToeTurn<'_, H, Session> {
    fn receive(&mut self, now: Nanos) {
        self.with_inbox(|inbox, session, tcp| {
            let mut inbox = Inbox::new(inbox, session);
            if inbox.go_on() && inbox.receives.held {
                inbox.receives.held = false;
                tcp.resume(now, &mut inbox);
            }
            inbox.tell_end();
        });
    }

    fn fill(&mut self, now: Nanos, into: &mut [u8]) -> Option<Transmit> {
        let (core, qp, slice) = (self.network.core(), self.qp, self.slice);
        let (tcp, outstanding) = self.link.io();
        let outgoing = &self.content.mode.outgoing;
        tcp.transmit(now, &mut Outbound { core, qp, outgoing, outstanding, slice }, into)
    }

    fn idle(&mut self, now: Option<Nanos>) -> Option<Nanos> {
        self.link.idle(now, || ())
    }
}

impl<H: Host> Mode<H> for ToeTurn<'_, H, Session> {
    fn post(&mut self, here: &TurnContext<'_, H>, send: &SendWqe, raw: &[u8]) {
        let posted = post(here, self.qp, &mut self.content.mode, send, raw);
        self.link.outstanding_mut().post(posted, raw);
    }

    /// Adds the answers to R2Ts. If their data cannot be read, the QP fails.
    fn answer(&mut self) -> bool {
        // PDUs that the target has acknowledged make room.
        self.acknowledge();
        let here = TurnContext::new(self.network.core(), self.qp, self.slice);
        let una = self.link.tcp().acknowledged();
        answer(&here, self.qp, &mut self.content.mode, una).unwrap_or_else(|Unreadable| {
            self.qp.failed(self.network.core(), Kind::QpFatal);
            false
        })
    }

    fn acknowledge(&mut self) {
        let una = self.link.tcp().acknowledged();
        let outstanding = self.link.outstanding_mut();
        let outgoing = &mut self.content.mode.outgoing;
        outgoing.drop_acknowledged(una, |index| outstanding.end(index.into(), End::Done));
    }

    fn stop(&mut self) -> bool {
        self.content.mode.close()
    }

    fn has_stopped(&self) -> bool {
        self.content.mode.is_closed()
    }
}
