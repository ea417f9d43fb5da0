//! A turn of a QP with a TCP connection, whatever that carries: work requests, segments,
//! completions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_packet::Nanos;
use vrnic_tcp::connection::Transmit;

use super::joiner::Joiner;
use super::segments::send_all;
use crate::datapath::send_queue::Turn;
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::taking::{Next, Protocol, take_all};
use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::qp::outstanding::End;
use crate::objects::qp::tcp::link::Link;
use crate::objects::qp::{Qp, Requester};
use crate::slice::Slice;

/// A QP in its turn. Its connection carries `C`.
pub(super) struct TcpTurn<'a, H: Host, C> {
    pub(super) network: Network<'a, H>,
    pub(super) qp: &'a Arc<Qp<H>>,
    pub(super) requester: &'a mut Requester<H>,
    pub(super) link: &'a mut Link<H>,
    pub(super) content: &'a mut C,
    pub(super) slice: &'a Slice<'a, H>,
}

/// The progress of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pass {
    /// True if work requests travel in the connection.
    pub(super) takes: bool,
    /// True if there is more work at once.
    pub(super) more: bool,
    /// The time of the next work, if it is known.
    pub(super) at: Option<Nanos>,
}

/// The bytes that the connection of a QP in its turn carries, in both directions.
pub(super) trait Traffic<H: Host> {
    /// Continues with bytes that were held back.
    fn receive(&mut self, now: Nanos);

    /// Returns the next segment, whose data is in `into`.
    fn fill(&mut self, now: Nanos, into: &mut [u8]) -> Option<Transmit>;

    /// Gives buffers back, as [`Link::idle`] does.
    fn idle(&mut self, now: Option<Nanos>) -> Option<Nanos>;

    /// Runs the turn if something else is about to use the connection. Returns its result.
    fn switch(&mut self, _batch: &mut Batch) -> Option<Turn> {
        None
    }
}

/// The parts of a turn that depend on what these bytes are.
pub(super) trait Carrier<H: Host>: Protocol<H> + Traffic<H> {
    /// Handles the events of TCP.
    fn exchange(&mut self);

    /// Returns what is due besides the work of TCP.
    fn look(&mut self, now: Nanos) -> Pass;

    /// Decides whether work requests travel in the connection. Returns false if the QP has failed.
    fn admit(&mut self, now: Nanos, pass: &mut Pass) -> bool;

    /// Adds what is sent besides the work requests.
    fn add(&mut self, now: Nanos, pass: &mut Pass);

    /// Completes work requests that have ended, in order. Returns the result of the turn if the QP
    /// has failed.
    fn report(&mut self) -> Option<Turn>;

    /// Completes what has ended when segments have been sent. Returns false if the QP has failed.
    fn settle(&mut self, pass: &mut Pass) -> bool;

    /// Ends what the connection carries, because the QP is in the error state. Returns the time by
    /// which TCP must end, too.
    fn cut(&mut self, now: Nanos) -> Option<Nanos>;

    /// Returns whether another turn must follow when the time of the poll is over.
    fn waits_for_turn(&self) -> bool {
        false
    }

    /// Returns whether TCP may still read the memory of work requests, although the QP has failed.
    fn holds_requests(&self) -> bool {
        false
    }

    /// Returns the time of the next try if bytes to send are on their way from the memory.
    fn read_again(&mut self, _now: Nanos) -> Option<Nanos> {
        None
    }
}

impl<H: Host, C> TcpTurn<'_, H, C>
where
    Self: Carrier<H>,
{
    /// Sends and completes work, and says when the next turn is due.
    pub(super) fn run(mut self, batch: &mut Batch) -> Turn {
        let turn = self.advance(batch);
        self.network.send_off(self.qp.qpn, self.link.outbox(), self.slice);
        self.link.leave_addresses();
        self.rest(turn)
    }

    fn advance(&mut self, batch: &mut Batch) -> Turn {
        if self.qp.dead.load(Ordering::Acquire) {
            return Turn::Idle;
        }
        let turn = match self.qp.state() {
            State::Rts | State::Sqd => self.switch(batch).unwrap_or_else(|| self.work(batch)),
            State::Sqe => self.stopped(),
            State::Err => self.finish(),
            _ => return Turn::Idle,
        };
        if self.link.life_mut().take_change() {
            self.network.core().report(Kind::ConnectionChanged, self.qp.qpn);
        }
        self.link.count(self.network.core().stats());
        turn
    }

    /// Lets a connection without work give its buffers back, and then wait for the time of a probe.
    /// Returns what is left of the turn.
    fn rest(&mut self, turn: Turn) -> Turn {
        let ended = self.link.has_ended();
        match turn {
            Turn::Idle => {
                let now = (!ended).then(|| self.network.core().host().now());
                let next = self.idle(now).or_else(|| self.link.tcp().keepalive());
                next.map_or(Turn::Idle, Turn::Wait)
            }
            _ if ended => {
                let _at_once = self.idle(None);
                turn
            }
            _ => {
                self.link.busy();
                match (turn, self.link.tcp().keepalive()) {
                    (Turn::Wait(at), Some(probe)) => Turn::Wait(at.min(probe)),
                    (turn, _) => turn,
                }
            }
        }
    }

    /// Runs a turn of a QP that may send.
    fn work(&mut self, batch: &mut Batch) -> Turn {
        let now = self.begin();
        self.receive(now);
        self.exchange();
        let mut pass = self.look(now);
        if !self.admit(now, &mut pass) {
            return self.failed();
        }
        if pass.takes {
            match self.take(batch) {
                Some(Next::Done) => {}
                Some(Next::Later(until)) => pass.wait_until(Some(until)),
                Some(Next::More) => pass.more = true,
                Some(Next::Readers(index)) => {
                    self.network.core().wait_for_readers(self.slice);
                    self.link.outstanding_mut().end(index.into(), End::Done);
                    pass.more = true;
                }
                None => return self.failed(),
            }
        }
        self.add(now, &mut pass);
        let sent = self.transmit(now);
        self.exchange();
        if !self.settle(&mut pass) {
            return self.failed();
        }
        if sent.is_none() && (pass.more || self.waits_for_turn()) {
            return Turn::More;
        }
        let next = [sent, self.link.tcp().deadline(), pass.at];
        next.into_iter().flatten().min().map_or(Turn::Idle, Turn::Wait)
    }

    /// Handles expired timers of TCP. Returns the present time.
    pub(super) fn begin(&mut self) -> Nanos {
        let now = self.network.core().host().now();
        self.link.tcp_mut().timeout(now);
        now
    }

    /// Takes as many work requests as there is room for. Returns `None` if the QP has failed.
    pub(super) fn take(&mut self, batch: &mut Batch) -> Option<Next> {
        let (network, qp, slice) = (self.network, self.qp, self.slice);
        take_all(self, &TurnContext::new(network.core(), qp, slice), batch)
    }

    /// Sends segments. Returns the time of the next try if the network has no room, or if bytes to
    /// send are on their way from the memory.
    pub(super) fn transmit(&mut self, now: Nanos) -> Option<Nanos> {
        let joins = self.network.joins() && self.link.ends().path.vlan.is_none();
        self.link.mark_used();
        let mut joiner = Joiner::new(joins);
        let (network, heading, slice) = (self.network, self.link.ends().heading(), self.slice);
        let next = send_all(network, heading, slice, now, || self.segment(now, &mut joiner));
        self.link.queue(|path, id| joiner.finish(path, id));
        let again = self.read_again(now);
        next.or(again)
    }

    /// Adds the next segment to a frame.
    fn segment(&mut self, now: Nanos, joiner: &mut Joiner) -> Option<Transmit> {
        let most = usize::from(self.link.ends().mss);
        if !joiner.has_room(most) {
            self.link.queue(|path, id| joiner.finish(path, id));
        }
        let sent = self.fill(now, joiner.space(most))?;
        self.link.queue(|path, id| joiner.add(&sent, path, id));
        Some(sent)
    }
}

impl Pass {
    /// Lets the next turn begin at a time, unless it begins earlier.
    pub(super) fn wait_until(&mut self, at: Option<Nanos>) {
        self.at = self.at.into_iter().chain(at).min();
    }
}
