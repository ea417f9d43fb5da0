//! A turn of a QP whose TCP connection carries bytes: work requests, segments, completions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_packet::Nanos;
use vrnic_tcp::StreamPos;
use vrnic_tcp::connection::Transmit;

use super::hand_over::hand_over;
use super::inbox::Inbox;
use super::source::Outbound;
use crate::datapath::send_queue::Turn;
use crate::datapath::there::There;
use crate::datapath::transport::ended;
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::taking::Next;
use crate::datapath::transport::tcp::iscsi;
use crate::datapath::transport::tcp::joiner::Joiner;
use crate::datapath::transport::tcp::segments::send_all;
use crate::datapath::turn::{Allowance, TurnContext};
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::qp::outstanding::End;
use crate::objects::qp::tcp::bytes::Bytes;
use crate::objects::qp::tcp::link::{Counted, Link};
use crate::objects::qp::tcp::{Content, Tcp};
use crate::objects::qp::{Path, Qp, Requester};
use crate::slice::Slice;
use crate::stats::Counter;

/// Sends and completes work of a QP, up to the limits of `allowance`.
pub(crate) fn run<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    allowance: &Allowance<'_, H>,
) -> Turn {
    let Path::Tcp(mut tcp) = std::mem::take(&mut requester.path) else { return Turn::Idle };
    let Tcp { link, content: Content::Bytes(content) } = &mut *tcp else {
        requester.path = Path::Tcp(tcp);
        return Turn::Idle;
    };
    batch.clear();
    let slice = allowance.slice;
    let end = ToeTurn { network, qp, requester, link, content, slice }.run(batch);
    network.send_off(qp.qpn, link.outbox(), slice);
    link.leave_addresses();
    if let Some(switch) = content.take_ready() {
        requester.path = hand_over(network, qp, tcp, *switch);
        return Turn::Failed;
    }
    let end = rest(network.core().host().now(), link, content, end);
    requester.path = Path::Tcp(tcp);
    end
}

/// Lets a connection without work give its buffers back, and then wait for the time of a probe.
/// Returns what is left of the turn.
fn rest<H: Host>(now: Nanos, link: &mut Link<H>, content: &mut Bytes<H>, turn: Turn) -> Turn {
    let ended = link.has_ended();
    let next = link.tcp().keepalive();
    let mut idle = |link: &mut Link<H>, now| {
        link.idle(now, |outstanding| {
            if outstanding.is_empty() {
                content.sends.shrink();
            }
        })
    };
    match turn {
        Turn::Idle => {
            let now = (!ended).then_some(now);
            idle(link, now).or(next).map_or(Turn::Idle, Turn::Wait)
        }
        _ if ended => {
            let _at_once = idle(link, None);
            turn
        }
        _ => {
            link.busy();
            match (turn, next) {
                (Turn::Wait(at), Some(probe)) => Turn::Wait(at.min(probe)),
                (turn, _) => turn,
            }
        }
    }
}

/// A QP in its turn.
pub(super) struct ToeTurn<'a, H: Host> {
    pub(super) network: Network<'a, H>,
    pub(super) qp: &'a Arc<Qp<H>>,
    pub(super) requester: &'a mut Requester<H>,
    pub(super) link: &'a mut Link<H>,
    pub(super) content: &'a mut Bytes<H>,
    pub(super) slice: &'a Slice<'a, H>,
}

impl<H: Host> ToeTurn<'_, H> {
    fn run(&mut self, batch: &mut Batch) -> Turn {
        if self.qp.dead.load(Ordering::Acquire) {
            return Turn::Idle;
        }
        let turn = match self.qp.state() {
            State::Rts | State::Sqd if self.content.switch.is_some() => self.switch(batch),
            State::Rts | State::Sqd => self.work(batch),
            State::Sqe => self.stopped(),
            State::Err => self.finish(),
            _ => return Turn::Idle,
        };
        if self.link.life_mut().take_change() {
            self.network.core().report(Kind::ConnectionChanged, self.qp.qpn);
        }
        self.count();
        turn
    }

    /// Adds the counts of the turn to the counters of the adapter.
    fn count(&mut self) {
        let counted = self.link.count();
        if counted == Counted::default() {
            return;
        }
        let stats = self.network.core().stats();
        stats.add(Counter::TcpRetransSegs, counted.resent);
        stats.add(Counter::TcpTimeouts, counted.timeouts);
    }

    /// Runs a turn of a QP that has not failed.
    fn work(&mut self, batch: &mut Batch) -> Turn {
        let now = self.begin();
        self.receive(now);
        self.exchange();
        if self.qp.state() == State::Err {
            return self.finish();
        }
        let (mut more, mut wait) = (std::mem::take(&mut self.content.receives.tired), None);
        match self.take(batch) {
            Some(Next::Done) => {}
            Some(Next::Later(until)) => wait = Some(until),
            // No operation on a key is offered.
            Some(Next::More | Next::Readers(_)) => more = true,
            None => return self.stop_or_finish(),
        }
        more |= self.answer();
        if self.qp.state() == State::Sqd {
            self.close();
        }
        let sent = self.transmit(now);
        self.exchange();
        if self.complete().is_some() || self.qp.state() == State::Err {
            return self.stop_or_finish();
        }
        // There may be room for more work requests now.
        more |= self.qp.has_posted(self.network.core().host())
            && self.link.outstanding().is_empty()
            && wait.is_none()
            && !self.content.sends.is_over();
        if sent.is_none() && more {
            return Turn::More;
        }
        let next = [sent, self.link.tcp().deadline(), wait];
        next.into_iter().flatten().min().map_or(Turn::Idle, Turn::Wait)
    }

    /// Adds the answers to R2Ts to what is sent, in the iSCSI mode. Returns whether there are more.
    /// If their data cannot be read, the QP fails.
    pub(super) fn answer(&mut self) -> bool {
        self.free_acknowledged();
        let una = self.link.tcp().acknowledged();
        let Some(session) = &mut self.content.session else { return false };
        let here = TurnContext::new(self.network.core(), self.qp, self.slice);
        iscsi::answer(&here, self.qp, session, una).unwrap_or_else(|iscsi::Unreadable| {
            self.qp.failed(self.network.core(), Kind::QpFatal);
            false
        })
    }

    /// Handles expired timers. Returns the present time.
    pub(super) fn begin(&mut self) -> Nanos {
        let now = self.network.core().host().now();
        self.link.tcp_mut().timeout(now);
        now
    }

    /// Puts bytes that were held back into receives, and offers the peer as many bytes as the
    /// receives can take.
    pub(super) fn receive(&mut self, now: Nanos) {
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

    /// Sends segments. Returns the time of the next try if the network has no room.
    pub(super) fn transmit(&mut self, now: Nanos) -> Option<Nanos> {
        let joins = self.network.joins() && self.link.ends().path.vlan.is_none();
        self.link.mark_used();
        let mut joiner = Joiner::new(joins);
        let (network, to, slice) = (self.network, self.link.ends().next_hop(), self.slice);
        let next = send_all(network, to, slice, now, || self.segment(now, &mut joiner));
        self.link.queue(|path, id| joiner.finish(path, id));
        next
    }

    /// Adds the next segment to a frame.
    fn segment(&mut self, now: Nanos, joiner: &mut Joiner) -> Option<Transmit> {
        let most = usize::from(self.link.ends().mss);
        let Bytes { sends, session, .. } = &mut *self.content;
        if !joiner.has_room(most) {
            self.link.queue(|path, id| joiner.finish(path, id));
        }
        let (tcp, outstanding) = self.link.io();
        let core = self.network.core();
        let (qp, slice, space) = (self.qp, self.slice, joiner.space(most));
        let sent = match session {
            Some(session) => {
                let outgoing = &session.outgoing;
                let mut source = iscsi::Outbound { core, qp, outgoing, outstanding, slice };
                tcp.transmit(now, &mut source, space)?
            }
            None => {
                let mut source = Outbound { core, qp, sends, outstanding, slice };
                tcp.transmit(now, &mut source, space)?
            }
        };
        self.link.queue(|path, id| joiner.add(&sent, path, id));
        Some(sent)
    }

    /// Completes work requests that have ended, in order. Returns the result of the turn if one of
    /// them has failed.
    pub(super) fn complete(&mut self) -> Option<Turn> {
        let una = self.free_acknowledged();
        while let Some(index) = self.content.sends.pop_acknowledged(una) {
            self.link.outstanding_mut().end(index.into(), End::Done);
        }
        let here = TurnContext::new(self.network.core(), self.qp, self.slice);
        ended::complete(&here, self.qp, self.link.outstanding_mut())
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
