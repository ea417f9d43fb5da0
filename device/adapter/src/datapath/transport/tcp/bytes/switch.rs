//! A turn of a QP whose connection is about to carry RDMA messages for another QP.

use vrnic_abi::qp::State;
use vrnic_packet::Nanos;

use super::inbox::WINDOW;
use super::turn::ToeTurn;
use crate::datapath::send_queue::Turn;
use crate::datapath::transport::taking::Next;
use crate::datapath::transport::tcp::turn::{Carrier, Traffic};
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::qp::Peer;
use crate::objects::qp::tcp::bytes::Plain;
use crate::objects::qp::tcp::bytes::receives::StreamEnd;
use crate::objects::qp::tcp::bytes::switch::Progress;

impl<H: Host> ToeTurn<'_, H, Plain<H>> {
    /// Runs a turn in which the bytes of sends still leave, and bytes that arrive are held back.
    pub(super) fn before_messages(&mut self, batch: &mut Batch) -> Turn {
        let now = self.begin();
        let returned = self.return_receives(now);
        self.exchange();
        // No direction may be closed during a transition.
        let over = self.content.receives.end != StreamEnd::Open || self.qp.state() != State::Rts;
        if over {
            self.qp.fail();
            return self.finish();
        }
        let mut wait = None;
        match self.take(batch) {
            Some(Next::Done) => {}
            Some(Next::Later(until)) => wait = Some(until),
            Some(Next::More | Next::Readers(_)) => wait = Some(now),
            None => return self.finish(),
        }
        let sent = self.transmit(now);
        self.exchange();
        if self.report().is_some() || self.qp.state() == State::Err {
            return self.finish();
        }
        if !returned {
            return Turn::More;
        }
        let look = self.check_receive(now);
        let next = [sent, self.link.tcp().deadline(), wait, look];
        next.into_iter().flatten().min().map_or(Turn::Idle, Turn::Wait)
    }

    /// Completes the receives that are posted, with the bytes that they have. Returns whether all
    /// of them are complete.
    fn return_receives(&mut self, now: Nanos) -> bool {
        if self.progress() == Some(Progress::Filling) {
            if !self.link.tcp_mut().forget_placed() {
                self.receive(now);
                return false;
            }
            self.content.receives.stopped = true;
            self.set_progress(Progress::Returning);
            let early = u32::try_from(self.content.receives.early().len()).unwrap_or(u32::MAX);
            self.link.tcp_mut().set_window(WINDOW.saturating_sub(early));
        }
        if self.progress() != Some(Progress::Returning) {
            return true;
        }
        let all = self.with_inbox(|mut inbox, _, _| inbox.give_back());
        if all {
            self.set_progress(Progress::Waiting);
        }
        all
    }

    fn progress(&self) -> Option<Progress> {
        self.content.mode.switch.as_ref().map(|switch| switch.progress)
    }

    fn set_progress(&mut self, progress: Progress) {
        if let Some(switch) = &mut self.content.mode.switch {
            switch.progress = progress;
        }
    }

    /// Lets the other QP have the connection if it has a receive, and the peer has acknowledged all
    /// bytes. Returns the time of the next check.
    fn check_receive(&mut self, now: Nanos) -> Option<Nanos> {
        let host = self.network.core().host();
        let quiet = self.link.outstanding().is_empty()
            && self.requester.current.is_none()
            && !self.qp.has_posted(host)
            && self.link.tcp().acknowledged() == self.link.tcp().sent();
        let switch = self.content.mode.switch.as_mut()?;
        let Some(to) = switch.to() else {
            // The program has destroyed it.
            self.qp.fail();
            return Some(now);
        };
        if quiet && has_receive(&to, host) {
            switch.progress = Progress::Ready;
        }
        Some(switch.next_look(now))
    }
}

/// Returns whether a QP has a receive for its first message.
fn has_receive<H: Host>(of: &Peer<H>, host: &H) -> bool {
    let ci = of.qp.responder.lock().ci;
    match of.qp.rq {
        Some(_) => host.bar_load32(of.qp.doorbell.rq_pi()) != ci,
        // The program posts the receives of an SRQ for all of its QPs.
        None => true,
    }
}
