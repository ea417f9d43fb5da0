//! The consequences of an entry's result: completions, retries, failures.

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::Type;
use vrnic_abi::sq::{Flags, Opcode};

use super::work::{Step, Work};
use crate::datapath::refusal::Refusal;
use crate::datapath::send_queue::{Entry, Turn};
use crate::datapath::sgl::SgList;
use crate::datapath::transport::packet_counters;
use crate::datapath::transport::rules::{ReceiveWait, RefusedMessage, Rules};
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::completion::{Completion, CompletionKey, WrError};
use crate::objects::qp::{KeyWait, Keys};
use crate::requests::wqe::SendWqe;
use crate::stats::Counter;

/// Time in nanoseconds before a request without an answer is repeated, if the QP has no time-out.
const NO_TIMEOUT_RETRY_NS: u64 = 100_000_000;
/// Time in nanoseconds before a peer without a receive is checked again. It doubles each time.
const RNR_PAUSE_NS: u64 = 5_000;

impl<H: Host> Work<'_, H> {
    /// Handles the result of a step. Returns `None` if the next entry can be executed.
    #[inline]
    pub(super) fn finish(&mut self, entry: &mut Entry, step: Step) -> Option<Turn> {
        match step {
            Step::Done { event_due } => {
                let turn = self.complete(&entry.send, Ok(()));
                if let Some((there, _)) = self.there.as_ref().filter(|_| event_due) {
                    there.act(|| there.turn.fire(&there.qp.recv_cq));
                }
                turn
            }
            Step::Failed(error) => self.complete(&entry.send, Err(error)),
            Step::Partly(done) if entry.send.opcode == Opcode::Read && self.is_over() => {
                self.open_read(entry, done)
            }
            Step::Partly(done) => {
                entry.done = done;
                self.keep(entry);
                None
            }
            Step::Queued => self.open_read(entry, 0),
            Step::Behind => {
                self.keep(entry);
                Some(Turn::More)
            }
            Step::Held => {
                self.keep(entry);
                Some(Turn::Idle)
            }
            Step::Retry if self.qp.kind == Type::Uc => self.lost(entry),
            Step::Lost => self.lost(entry),
            Step::Retry => self.retry(entry),
            Step::NotReady(delay) => match self.rules {
                Some(rules) => self.no_receive(entry, rules),
                None => self.not_ready(entry, delay),
            },
            Step::Refused(denied) => self.refused(&entry.send, denied),
            Step::Readers(readers, ended) => {
                let keys = self.requester.keys.unwrap_or_default();
                self.requester.keys = Some(Keys { ended, wait: KeyWait::Due(readers), ..keys });
                self.keep(entry);
                Some(Turn::More)
            }
        }
    }

    /// Handles the refusal of a request that concerns a key: either only the send queue fails, or
    /// the QP fails and its peer is told, if both ports are up.
    #[cold]
    fn refused(&mut self, send: &SendWqe, denied: Denied) -> Option<Turn> {
        self.qp.fail_key();
        if !self.qp.reactive
            && self.rules.is_none()
            && let Some((there, _)) = &self.there
            && there.qp.receives()
            && self.here.core.carries()
            && there.turn.core.carries()
        {
            there.act(|| there.qp.failed(there.turn.core, Kind::QpFatal));
        }
        let (status, vendor_err) = (Status::MwBindErr, denied as u32);
        self.complete(send, Err(WrError { status, vendor_err }))
    }

    /// Handles a lost message of an unreliable connection, whose sender gets no error. An error of
    /// the sender's own memory must still be reported to it.
    #[cold]
    fn lost(&mut self, entry: &Entry) -> Option<Turn> {
        let raw = self.batch.entry(&entry.place);
        let own = (&self.here, self.qp.pdn);
        let checked = SgList::default().add_source(own, &entry.send, raw);
        if let Err(denied) = checked {
            return self.complete(&entry.send, Err(denied.into()));
        }
        if self.here.core.carries() {
            packet_counters::sent(&self.here, &entry.send, self.requester.config.mtu);
        }
        self.here.step(Counter::TxRoceDiscards);
        self.complete(&entry.send, Ok(()))
    }

    /// Handles a missing answer of the peer.
    fn retry(&mut self, entry: &Entry) -> Option<Turn> {
        match self.next_try() {
            Some(at) => self.wait(entry, at),
            None => self.complete(&entry.send, Err(Status::RetryExcErr.into())),
        }
    }

    /// Counts a request that was not answered. Returns the time of the next retry, or `None` if no
    /// retry is left.
    pub(super) fn next_try(&mut self) -> Option<u64> {
        let now = self.here.host().now();
        let config = self.requester.config;
        if config.timeout == 0 {
            return Some(now.saturating_add(NO_TIMEOUT_RETRY_NS));
        }
        self.here.step(Counter::LocalAckTimeoutErr);
        self.requester.retries = self.requester.retries.checked_sub(1)?;
        Some(now.saturating_add(4096 << config.timeout.min(31)))
    }

    /// Handles a peer without a receive. The pause that the peer asks for is over at `delay`.
    /// Before that, checks from time to time find a receive that is posted early, as credits would
    /// show.
    fn not_ready(&mut self, entry: &Entry, delay: u64) -> Option<Turn> {
        let now = self.here.host().now();
        let requester = &mut *self.requester;
        requester.rnr_pause =
            (requester.rnr_pause * 2).clamp(RNR_PAUSE_NS, delay.max(RNR_PAUSE_NS));
        if requester.rnr_until.is_none_or(|until| until <= now) {
            if let Some((there, _)) = &self.there {
                there.turn.step(Counter::OutOfBuffer);
                there.turn.step(Counter::SendRnrErr);
            }
            if requester.rnr_retries == 0 {
                return self.complete(&entry.send, Err(Status::RnrRetryExcErr.into()));
            }
            self.here.step(Counter::RnrNakRetryErr);
            if requester.rnr_retries < 7 {
                requester.rnr_retries -= 1;
            }
            requester.rnr_until = Some(now.saturating_add(delay));
        }
        let until = requester.rnr_until.unwrap_or(now);
        let pause = requester.rnr_pause;
        self.wait(entry, until.min(now.saturating_add(pause)))
    }

    /// Handles a peer without a receive by a protocol that has no RNR NAK.
    fn no_receive(&mut self, entry: &Entry, rules: &dyn Rules<H>) -> Option<Turn> {
        let ReceiveWait { limit, pause } = rules.receive_wait();
        let now = self.here.host().now();
        let requester = &mut *self.requester;
        if requester.rnr_until.is_none()
            && let Some((there, _)) = &self.there
        {
            there.turn.step(Counter::OutOfBuffer);
        }
        if now <= *requester.rnr_until.get_or_insert(now.saturating_add(limit)) {
            requester.rnr_pause = (requester.rnr_pause * 2).clamp(RNR_PAUSE_NS, pause);
            let pause = requester.rnr_pause;
            return self.wait(entry, now.saturating_add(pause));
        }
        let (there, responder) = self.there.as_mut()?;
        let (here, qp, send) = (&self.here, &**self.qp, &entry.send);
        let refusal = Refusal::NotReady;
        let refused = RefusedMessage { here, qp, there, responder, send, refusal };
        let status = rules.refused(refused);
        self.complete(send, Err(status.into()))
    }

    fn wait(&mut self, entry: &Entry, until: u64) -> Option<Turn> {
        self.keep(entry);
        self.requester.not_before = Some(until);
        Some(Turn::Wait(until))
    }

    /// Ends an entry with a status, and with a completion if one is due.
    #[inline]
    fn complete(&mut self, send: &SendWqe, result: Result<(), WrError>) -> Option<Turn> {
        if let Err(WrError { status, .. }) = result
            && status != Status::MwBindErr
        {
            // The state is set first, so that a program that sees the completion finds the QP in
            // error.
            self.qp.fail_send();
        }
        if !self.requester.open_reads.is_empty() {
            // Only successes are queued: a request behind a READ that fails is executed again after
            // the READ.
            self.requester.open_reads.push_done(self.completion(send), self.is_signaled(send));
            return None;
        }
        if result.is_err() || self.is_signaled(send) {
            let mut completion = self.completion(send);
            if let Err(WrError { status, vendor_err }) = result {
                (completion.status, completion.vendor_err) = (status, vendor_err);
                completion.byte_len = 0;
            }
            if let Some(turn) = self.write(&completion) {
                return Some(turn);
            }
        }
        result.is_err().then_some(Turn::Failed)
    }

    /// Returns whether the success of a work request is reported.
    #[inline]
    pub(super) fn is_signaled(&self, send: &SendWqe) -> bool {
        self.qp.signal_all || send.flags.contains(Flags::SIGNALED)
    }

    /// Returns the completion of a successful work request.
    #[inline]
    pub(super) fn completion(&self, send: &SendWqe) -> Completion {
        let reads = send.opcode.info().has_response();
        Completion {
            byte_len: if reads { u32::try_from(send.length).unwrap_or(u32::MAX) } else { 0 },
            key: self.requester.keys.and_then(|keys| keys.command).map(CompletionKey::Carried),
            ..Completion::of_send(self.qp.qpn, send.id(), send.completed(), Status::Success)
        }
    }

    /// Writes a completion.
    #[inline]
    pub(super) fn write(&self, completion: &Completion) -> Option<Turn> {
        if self.here.complete(&self.qp.send_cq, completion).is_ok() {
            return None;
        }
        self.qp.failed(self.here.core, Kind::QpFatal);
        Some(Turn::Failed)
    }
}
