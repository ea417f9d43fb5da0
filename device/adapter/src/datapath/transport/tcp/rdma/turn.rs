//! A turn of a QP whose TCP connection carries messages.

use std::sync::atomic::Ordering;

use vrnic_abi::connection::Ending;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_iwarp::Stream;
use vrnic_iwarp::rdmap::work::Outcome;
use vrnic_iwarp::stream::Want;
use vrnic_iwarp::stream::close::{Happening, Order, State as StreamState};
use vrnic_iwarp::wire::terminate::Cause;
use vrnic_packet::Nanos;
use vrnic_tcp::connection::{End as TcpEnd, Event as TcpEvent, Transmit};
use vrnic_tcp::{Connection, Sink};

use super::memory::Reach;
use crate::datapath::constants::{LONGEST_PAUSE, NO_ROOM_PAUSE};
use crate::datapath::local_wr;
use crate::datapath::send_queue::Turn;
use crate::datapath::transport::ended;
use crate::datapath::transport::tcp::turn::{Carrier, Pass, TcpTurn, Traffic};
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::completion::WrError;
use crate::objects::qp::outstanding::End;
use crate::objects::qp::tcp::rdma::{Pairing, Rdma};
use crate::objects::qp::tcp::switched::Switched;
use crate::slice::cost;
use crate::stats::Counter;

/// The path of the next work requests.
pub(super) enum Way {
    /// Through TCP.
    Tcp,
    /// To the memory of the other end.
    Memory,
    /// The path is decided after an event, or at this time.
    Later(Option<Nanos>),
}

/// TCP, the stream in it, and what it has carried before the stream.
struct Parts<'a> {
    tcp: &'a mut Connection,
    stream: &'a mut Stream,
    switched: &'a mut Switched,
}

/// A QP in its turn, whose connection carries messages.
pub(super) type RdmaTurn<'a, H> = TcpTurn<'a, H, Rdma<H>>;

impl<H: Host> Traffic<H> for RdmaTurn<'_, H> {
    fn receive(&mut self, now: Nanos) {
        self.content.fit_path(self.link.tcp());
        self.resume(now);
        self.hand_back();
    }

    fn fill(&mut self, now: Nanos, into: &mut [u8]) -> Option<Transmit> {
        self.with(|Parts { tcp, stream, switched }, reach| {
            stream.fill(reach);
            tcp.transmit(now, &mut switched.owner(stream.source(reach)), into)
        })
    }

    fn idle(&mut self, now: Option<Nanos>) -> Option<Nanos> {
        // While messages are copied, TCP has no work.
        let now = now.filter(|_| !self.content.pairing.is_paired());
        self.link.idle(now, || self.content.stream.shrink())
    }
}

impl<H: Host> Carrier<H> for RdmaTurn<'_, H> {
    /// Exchanges positions, events and orders between TCP and the stream.
    fn exchange(&mut self) {
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
        let crc_errors = self.content.count_crc_errors();
        if crc_errors > 0 {
            self.network.core().stats().add(Counter::MpaCrcErrors, crc_errors);
        }
        if let Some(end) = ended {
            self.link.life_mut().tcp_ended(end);
        }
    }

    fn look(&mut self, now: Nanos) -> Pass {
        let mut pass = Pass { at: self.limit(now), ..Pass::default() };
        pass.wait_until(self.content.check_waits(now, || self.qp.waits_for(&self.qp.recv_cq)));
        pass
    }

    fn admit(&mut self, now: Nanos, pass: &mut Pass) -> bool {
        if self.report().is_some() {
            return false;
        }
        match self.way(now) {
            Way::Tcp => pass.takes = true,
            Way::Memory => {}
            Way::Later(at) => pass.wait_until(at),
        }
        true
    }

    fn add(&mut self, now: Nanos, pass: &mut Pass) {
        pass.wait_until(self.content.nudge(self.link.life().stage(), now));
    }

    /// Completions come before the events of the stream, because they say more.
    fn report(&mut self) -> Option<Turn> {
        let turn = self.complete();
        if self.events() { Some(Turn::Failed) } else { turn }
    }

    fn settle(&mut self, pass: &mut Pass) -> bool {
        let before = self.content.stream.state();
        if self.report().is_some() {
            return false;
        }
        if self.qp.state() == State::Sqd {
            self.close();
        }
        // In this case the stream has orders for TCP.
        pass.more |= self.content.stream.state() != before;
        // A work request that waited for all before it may continue now.
        let held = self.qp.held.load(Ordering::Relaxed) || self.requester.not_before.is_some();
        let waits = self.requester.current.is_some() && pass.takes && !held;
        pass.more |= waits && self.link.outstanding().is_empty();
        true
    }

    /// Sends the stream's Terminate, FIN or reset. TCP may read the memory of work requests until
    /// then.
    fn cut(&mut self, now: Nanos) -> Option<Nanos> {
        self.receive(now);
        self.exchange();
        if let Some(cause) = self.qp.responder.lock().rdma.refused.take() {
            self.content.stream.refuse(cause);
        } else if self.qp.has_given_up() {
            self.content.stream.refuse(Cause::LocalCatastrophic);
        }
        // The peer reports through the connection why it has refused a message.
        let is_reported = matches!(self.content.pairing, Pairing::Refused);
        let runs = !is_reported
            && matches!(self.content.stream.state(), StreamState::Starting | StreamState::Rts);
        if runs || self.link.life().ending() == Ending::Local {
            self.content.stream.disconnect(Want::Abortive);
        }
        let limit = self.limit(now);
        self.exchange();
        limit
    }

    fn waits_for_turn(&self) -> bool {
        self.content.stream.waits_for_turn()
    }

    fn holds_requests(&self) -> bool {
        !self.link.outstanding().is_empty()
    }

    fn read_again(&mut self, now: Nanos) -> Option<Nanos> {
        let pause = || self.network.core().host().moves_for();
        std::mem::take(&mut self.content.moves.reads)
            .then(|| now.plus(pause().clamp(NO_ROOM_PAUSE, LONGEST_PAUSE)))
    }
}

impl<H: Host> RdmaTurn<'_, H> {
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

    /// Completes work requests that have ended, in order. Returns the result of the turn if one of
    /// them has failed.
    fn complete(&mut self) -> Option<Turn> {
        let mut readers = false;
        while let Some(done) = self.content.stream.next_completion() {
            let mut end = error_of(done.outcome).map_or(End::Done, End::Failed);
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
