//! A turn of a QP whose messages travel in a TCP connection: work requests, segments, completions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_iwarp::Stream;
use vrnic_iwarp::rdmap::work::Outcome;
use vrnic_iwarp::stream::close::{Happening, Order};
use vrnic_packet::Nanos;
use vrnic_tcp::connection::{End as TcpEnd, Event as TcpEvent, Transmit};
use vrnic_tcp::{Connection, Sink};

use super::memory::Reach;
use crate::datapath::constants::{LONGEST_PAUSE, NO_ROOM_PAUSE};
use crate::datapath::local_wr;
use crate::datapath::send_queue::Turn;
use crate::datapath::transport::ended;
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::taking::Next;
use crate::datapath::transport::tcp::joiner::Joiner;
use crate::datapath::transport::tcp::segments::send_all;
use crate::datapath::turn::{Allowance, TurnContext};
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::completion::WrError;
use crate::objects::core::Core;
use crate::objects::qp::outstanding::End;
use crate::objects::qp::tcp::link::{Counted, Link};
use crate::objects::qp::tcp::rdma::Rdma;
use crate::objects::qp::tcp::switched::Switched;
use crate::objects::qp::tcp::{Content, Tcp};
use crate::objects::qp::{Path, Qp, Requester};
use crate::slice::{Slice, cost};
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
    let Tcp { link, content: Content::Rdma(content) } = &mut *tcp else {
        requester.path = Path::Tcp(tcp);
        return Turn::Idle;
    };
    batch.clear();
    let slice = allowance.slice;
    let turn = Sending { network, qp, requester, link, content, slice }.run(batch);
    network.send_off(qp.qpn, link.outbox(), slice);
    link.leave_addresses();
    let turn = rest(network.core(), link, content, turn);
    content.dormant = content.pairing.is_paired() && turn == Turn::Idle;
    requester.path = Path::Tcp(tcp);
    turn
}

/// Lets a connection without work give its buffers back, and then wait for the time of a probe.
/// Returns what is left of the turn.
fn rest<H: Host>(core: &Core<H>, link: &mut Link<H>, content: &mut Rdma<H>, turn: Turn) -> Turn {
    let (ended, paired) = (link.has_ended(), content.pairing.is_paired());
    let mut idle = |link: &mut Link<H>, now| link.idle(now, |_| content.stream.shrink());
    match turn {
        Turn::Idle => {
            let now = (!paired && !ended).then(|| core.host().now());
            let next = idle(link, now).or_else(|| link.tcp().keepalive());
            next.map_or(Turn::Idle, Turn::Wait)
        }
        _ if ended => {
            let _at_once = idle(link, None);
            turn
        }
        _ => {
            link.busy();
            match (turn, link.tcp().keepalive()) {
                (Turn::Wait(at), Some(probe)) => Turn::Wait(at.min(probe)),
                (turn, _) => turn,
            }
        }
    }
}

/// The path of the next work requests.
pub(super) enum Way {
    /// Through TCP.
    Tcp,
    /// To the memory of the other end.
    Memory,
    /// It is decided after an event, or at this time.
    Later(Option<Nanos>),
}

/// TCP, the stream in it, and what it has carried before the stream.
struct Parts<'a> {
    tcp: &'a mut Connection,
    stream: &'a mut Stream,
    switched: &'a mut Switched,
}

/// A QP in its turn.
pub(super) struct Sending<'a, H: Host> {
    pub(super) network: Network<'a, H>,
    pub(super) qp: &'a Arc<Qp<H>>,
    pub(super) requester: &'a mut Requester<H>,
    pub(super) link: &'a mut Link<H>,
    pub(super) content: &'a mut Rdma<H>,
    pub(super) slice: &'a Slice<'a, H>,
}

impl<H: Host> Sending<'_, H> {
    fn run(&mut self, batch: &mut Batch) -> Turn {
        if self.qp.dead.load(Ordering::Acquire) {
            return Turn::Idle;
        }
        let turn = match self.qp.state() {
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
        let (counted, crc_errors) = (self.link.count(), self.content.count_crc_errors());
        if counted == Counted::default() && crc_errors == 0 {
            return;
        }
        let stats = self.network.core().stats();
        stats.add(Counter::TcpRetransSegs, counted.resent);
        stats.add(Counter::TcpTimeouts, counted.timeouts);
        stats.add(Counter::MpaCrcErrors, crc_errors);
    }

    /// Runs a turn of a QP that may send.
    fn work(&mut self, batch: &mut Batch) -> Turn {
        let now = self.begin();
        let limit = self.limit(now);
        let look = self.content.check_waits(now, || self.qp.waits_for(&self.qp.recv_cq));
        if self.report().is_some() {
            return self.failed();
        }
        let mut more = false;
        let (way, mut wait) = (self.way(now), None);
        if let Way::Later(at) = way {
            wait = at;
        }
        let taken = if matches!(way, Way::Tcp) { self.take(batch) } else { Some(Next::Done) };
        match taken {
            Some(Next::Done) => {}
            Some(Next::Later(until)) => wait = Some(until),
            Some(Next::More) => more = true,
            Some(Next::Readers(index)) => {
                self.network.core().wait_for_readers(self.slice);
                self.link.outstanding_mut().end(index.into(), End::Done);
                more = true;
            }
            None => return self.failed(),
        }
        let nudge = self.content.nudge(self.link.life().stage(), now);
        let sent = self.transmit(now);
        self.exchange();
        let before = self.content.stream.state();
        if self.report().is_some() {
            return self.failed();
        }
        if self.qp.state() == State::Sqd {
            self.close();
        }
        // In this case the stream has orders for TCP.
        more |= self.content.stream.state() != before;
        more |= self.content.stream.waits_for_turn();
        // A work request that waited for all before it may continue now.
        let held = self.qp.held.load(Ordering::Relaxed) || self.requester.not_before.is_some();
        let waits = self.requester.current.is_some() && matches!(way, Way::Tcp) && !held;
        more |= waits && self.link.outstanding().is_empty();
        if sent.is_none() && more {
            return Turn::More;
        }
        let deadline = self.link.tcp().deadline();
        let next = [sent, deadline, look, limit, nudge, wait];
        next.into_iter().flatten().min().map_or(Turn::Idle, Turn::Wait)
    }

    /// Handles expired timers. Returns the present time.
    pub(super) fn begin(&mut self) -> Nanos {
        let now = self.network.core().host().now();
        self.link.tcp_mut().timeout(now);
        self.content.fit_path(self.link.tcp());
        self.resume(now);
        self.hand_back();
        self.exchange();
        now
    }

    /// Completes work requests, and handles the events of the stream. Returns the result of the
    /// turn if the QP has failed. Completions come first, because they say more than the event.
    pub(super) fn report(&mut self) -> Option<Turn> {
        let turn = self.complete();
        if self.events() { Some(Turn::Failed) } else { turn }
    }

    /// Calls `work` with TCP, the stream and the memory.
    fn with<T>(&mut self, work: impl FnOnce(Parts<'_>, &mut Reach<'_, H>) -> T) -> T {
        let Rdma { stream, switched, moves, .. } = &mut *self.content;
        let (tcp, outstanding) = self.link.io();
        let mut responder = self.qp.responder.lock();
        let mut reach = Reach {
            asker: self.requester.asker(),
            moves,
            core: self.network.core(),
            qp: self.qp,
            responder: &mut responder,
            outstanding,
            slice: self.slice,
        };
        let done = work(Parts { tcp, stream, switched }, &mut reach);
        let event = std::mem::take(&mut responder.event_due);
        drop(responder);
        if event {
            self.slice.charge(cost::EVENT);
            self.qp.recv_cq.fire(&self.network.core().caller(self.slice.lane()));
        }
        done
    }

    /// Delivers bytes again that were held back.
    fn resume(&mut self, now: Nanos) {
        self.with(|Parts { tcp, stream, switched }, reach| {
            if !stream.resume(reach)
                || !switched.deliver_first(|first| stream.sink(reach).deliver(first))
            {
                return;
            }
            tcp.resume(now, &mut switched.owner(stream.sink(reach)));
            if switched.take_finished() {
                stream.happened(Happening::PeerFinished);
            }
        });
    }

    /// Exchanges positions, events and orders between TCP and the stream.
    pub(super) fn exchange(&mut self) {
        let mut ended = None;
        self.with(|Parts { tcp, stream, switched }, reach| {
            let [acknowledged, sent] = [tcp.acknowledged(), tcp.sent()].map(|at| switched.sent(at));
            stream.progress(reach, acknowledged, sent);
            while let Some(event) = tcp.event() {
                if let TcpEvent::Ended(end) = event {
                    ended = Some(end);
                }
                match event {
                    TcpEvent::Acknowledged(_) | TcpEvent::Ended(TcpEnd::Closed) => {}
                    TcpEvent::PeerClosed if !switched.finish() => {}
                    TcpEvent::PeerClosed => stream.happened(Happening::PeerFinished),
                    TcpEvent::Closed => stream.happened(Happening::Closed),
                    TcpEvent::Ended(TcpEnd::TimedOut) => stream.happened(Happening::Lost),
                    TcpEvent::Ended(_) => stream.happened(Happening::PeerReset),
                }
            }
            while let Some(order) = stream.next_order() {
                match order {
                    Order::Finish => tcp.close(),
                    // Each turn begins with this.
                    Order::Resume => {}
                    Order::Reset => tcp.abort(),
                }
            }
        });
        self.content.watch_acknowledgements(self.link.tcp());
        if let Some(end) = ended {
            self.link.life_mut().tcp_ended(end);
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
        if std::mem::take(&mut self.content.moves.reads) && next.is_none() {
            let pause = network.core().host().moves_for();
            return Some(now.plus(pause.clamp(NO_ROOM_PAUSE, LONGEST_PAUSE)));
        }
        next
    }

    /// Adds the next segment to a frame.
    fn segment(&mut self, now: Nanos, joiner: &mut Joiner) -> Option<Transmit> {
        let most = usize::from(self.link.ends().mss);
        if !joiner.has_room(most) {
            self.link.queue(|path, id| joiner.finish(path, id));
        }
        let into = joiner.space(most);
        let sent = self.with(|Parts { tcp, stream, switched }, reach| {
            stream.fill(reach);
            tcp.transmit(now, &mut switched.owner(stream.source(reach)), into)
        })?;
        self.link.queue(|path, id| joiner.add(&sent, path, id));
        Some(sent)
    }

    /// Completes work requests that have ended, in order. Returns the result of the turn if one of
    /// them has failed.
    fn complete(&mut self) -> Option<Turn> {
        let mut readers = false;
        while let Some(done) = self.content.stream.next_completion() {
            let mut end = end_of(done.outcome);
            let read = self.link.outstanding().find(done.id);
            if end == End::Done
                && let Some(key) = read.and_then(|(posted, raw)| posted.send.ending_key(raw))
            {
                let here = TurnContext::new(self.network.core(), self.qp, self.slice);
                match local_wr::end_key(&here, self.qp, key) {
                    Ok(()) => readers = true,
                    Err(denied) => end = End::Refused(denied),
                }
            }
            self.link.outstanding_mut().end(done.id, end);
        }
        if readers {
            self.network.core().wait_for_readers(self.slice);
        }
        let here = TurnContext::new(self.network.core(), self.qp, self.slice);
        ended::complete(&here, self.qp, self.link.outstanding_mut())
    }
}

fn end_of(outcome: Outcome) -> End {
    error_of(outcome).map_or(End::Done, End::Failed)
}

/// Returns the error of a work request, or `None` if it was executed.
pub(super) fn error_of(outcome: Outcome) -> Option<WrError> {
    let status = match outcome {
        Outcome::Success => return None,
        Outcome::Local => return Some(Denied::Memory.into()),
        Outcome::Flushed => Status::WrFlushErr,
        Outcome::BadResponse => Status::BadRespErr,
        Outcome::RemoteAccess => Status::RemAccessErr,
        Outcome::RnrRetryExceeded => Status::RnrRetryExcErr,
        Outcome::RemoteInvalidRequest => Status::RemInvReqErr,
        Outcome::RemoteOperational => Status::RemOpErr,
        Outcome::Fatal => Status::FatalErr,
    };
    Some(status.into())
}
