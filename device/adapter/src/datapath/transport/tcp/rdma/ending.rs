//! The end of a connection: by the peer, by an error, by the driver, or by a time limit.

use vrnic_abi::connection::{Ending, Stage};
use vrnic_abi::eq::Kind;
use vrnic_iwarp::stream::close::{Happening, State as StreamState};
use vrnic_iwarp::stream::{Event, Want};
use vrnic_iwarp::wire::terminate::Cause;
use vrnic_packet::Nanos;
use vrnic_tcp::connection::State as TcpState;

use super::turn::Sending;
use crate::datapath::send_queue::{Turn, drained};
use crate::host::Host;
use crate::objects::qp::outstanding::OUTSTANDING;
use crate::objects::qp::tcp::rdma::Pairing;
use crate::stats::Counter;

impl<H: Host> Sending<'_, H> {
    /// Ends the connection if it has not opened, closed or ended in time. Returns the time limit.
    pub(super) fn limit(&mut self, now: Nanos) -> Option<Nanos> {
        let limit = self.content.limit(self.link, self.qp.state(), now)?;
        if limit <= now {
            self.link.life_mut().end(Ending::TimedOut);
            self.content.stream.happened(Happening::TimeOut);
            self.exchange();
        }
        Some(limit)
    }

    /// Closes the connection when all posted requests have been taken. Requests that are posted
    /// later are flushed at the end.
    pub(super) fn close(&mut self) {
        let core = self.network.core();
        if self.qp.has_posted(core.host()) || self.requester.current.is_some() {
            return;
        }
        self.content.leaves = true;
        self.content.stream.disconnect(Want::Graceful);
        self.part();
        if self.link.outstanding().is_empty() {
            let _idle = drained(core, self.qp, self.requester);
        }
    }

    /// Ends the stream: sends its Terminate, FIN or reset, and completes its work requests, whose
    /// memory TCP may read until then. Requests that are still in the send queue are flushed
    /// afterwards, while TCP continues until both ends have closed.
    pub(super) fn finish(&mut self) -> Turn {
        let now = self.begin();
        if let Some(cause) = self.qp.responder.lock().stream.refused.take() {
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
        let sent = self.transmit(now);
        self.exchange();
        // Each pass completes one request that has failed.
        for _ in 0..OUTSTANDING {
            if self.report().is_none() || self.link.outstanding().is_empty() {
                break;
            }
        }
        if sent.is_none() && self.link.tcp().state() == TcpState::Closed {
            self.link.gone();
        }
        let over = self.link.life().stage() == Stage::Gone;
        let deadline = self.link.tcp().deadline();
        let next = [sent, deadline, limit].into_iter().flatten().min().filter(|_| !over);
        match next {
            Some(at) if self.link.outstanding().is_empty() => Turn::FailedUntil(at),
            Some(at) => Turn::Wait(at),
            None => Turn::Failed,
        }
    }

    /// Handles the events of the stream. Returns whether the QP has failed.
    pub(super) fn events(&mut self) -> bool {
        let core = self.network.core();
        let mut failed = false;
        while let Some(event) = self.content.stream.next_event() {
            self.link.life_mut().follow(&event, self.content.stream.state());
            match event {
                Event::Established(_) => continue,
                Event::TerminateSent(_) => {
                    core.stats().step(Counter::TxTerminates);
                    self.qp.failed(core, Kind::QpFatal);
                }
                Event::TerminateReceived(_) => {
                    core.stats().step(Counter::RxTerminates);
                    self.qp.failed(core, Kind::QpFatal);
                }
                Event::StartFailed(_)
                | Event::GracefulDisconnect
                | Event::AbortiveDisconnect
                | Event::Closed
                | Event::BadClose => {
                    self.qp.fail();
                }
            }
            failed = true;
        }
        failed
    }
}
