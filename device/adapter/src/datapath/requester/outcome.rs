//! The consequences of an entry's result: completions, retries, failures.

use std::sync::Arc;
use std::time::Duration;

use vrnic_abi::Key;
use vrnic_abi::admin::QpFlags;
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::Type;
use vrnic_abi::sq::Opcode;
use vrnic_packet::Nanos;
use vrnic_roce::time::AckTimeout;

use super::paired::{RefusedMessage, Rules};
use super::work::{Step, Work};
use crate::datapath::complete::Completer;
use crate::datapath::refusal::Refusal;
use crate::datapath::send_queue::{Entry, Turn};
use crate::datapath::sgl::SgList;
use crate::datapath::transport::packet_counters;
use crate::datapath::xrc;
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::completion::WrError;
use crate::objects::qp::{KeyWait, Keys, Peer};
use crate::requests::wqe::SendWqe;
use crate::stats::Counter;

/// Time before a request without an answer is repeated, if the QP has no time-out.
const NO_TIMEOUT_RETRY: Duration = Duration::from_millis(100);
/// Time before a peer without a receive is checked again. It doubles each time.
const RNR_PAUSE: Duration = Duration::from_micros(5);

impl<'t, H: Host> Work<'t, H> {
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
            Step::Absent => {
                let until = self.requester.pages_until(self.here.host().now());
                self.wait(entry, until)
            }
            Step::Partly(done) => {
                entry.done = done;
                self.requester.rnr_pause = Duration::ZERO;
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
            Step::NotReady(delay) => match (self.no_entry(entry), self.rules) {
                (Some(turn), _) => Some(turn),
                (None, Some(rules)) => self.no_receive(entry, rules),
                (None, None) => self.not_ready(entry, delay),
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
    /// the QP fails and its peer is notified, if both ports are up.
    #[cold]
    fn refused(&mut self, send: &SendWqe, denied: Denied) -> Option<Turn> {
        self.qp.fail_key();
        if !self.qp.has(QpFlags::REACTIVE)
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
        let checked = SgList::default().add_source(&self.here, self.qp.user(), &entry.send, raw);
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
    pub(super) fn next_try(&mut self) -> Option<Nanos> {
        let now = self.here.host().now();
        let config = self.requester.config;
        let Some(timeout) = AckTimeout::new(config.timeout).duration() else {
            return Some(now.plus(NO_TIMEOUT_RETRY));
        };
        self.here.step(Counter::LocalAckTimeoutErr);
        self.requester.retries = self.requester.retries.checked_sub(1)?;
        Some(now.plus(timeout))
    }

    /// Handles a peer without a receive. The pause that the peer asks for is over at `delay`.
    /// Before that, checks from time to time find a receive that is posted early, as credits would
    /// show.
    fn not_ready(&mut self, entry: &Entry, delay: Duration) -> Option<Turn> {
        let now = self.here.host().now();
        let requester = &mut *self.requester;
        requester.rnr_pause = (requester.rnr_pause * 2).clamp(RNR_PAUSE, delay.max(RNR_PAUSE));
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
            requester.rnr_until = Some(now.plus(delay));
        }
        let until = requester.rnr_until.unwrap_or(now);
        let pause = requester.rnr_pause;
        self.wait(entry, until.min(now.plus(pause)))
    }

    /// Handles a peer whose CQ holds entries back: the message waits, without a time limit, until
    /// the peer schedules this QP. Returns `None` if the peer has no receive instead.
    fn no_entry(&mut self, entry: &Entry) -> Option<Turn> {
        let (there, responder) = self.there.as_ref()?;
        let cq = xrc::receive_cq(there, responder);
        if !there.qp.holding || !cq.holds() {
            return None;
        }
        let sender = Peer { core: Arc::clone(self.here.core), qp: Arc::clone(self.qp) };
        let waits = there.qp.hold_off(cq, &sender);
        self.keep(entry);
        Some(if waits { Turn::Idle } else { Turn::More })
    }

    /// Handles a peer without a receive by a protocol that has no RNR NAK.
    fn no_receive(&mut self, entry: &Entry, rules: &Rules) -> Option<Turn> {
        let now = self.here.host().now();
        let requester = &mut *self.requester;
        if requester.rnr_until.is_none()
            && let Some((there, _)) = &self.there
        {
            there.turn.step(Counter::OutOfBuffer);
        }
        if now <= *requester.rnr_until.get_or_insert(now.plus(Rules::RECEIVE_TIMEOUT)) {
            let pause = requester.rnr_pause * 2;
            requester.rnr_pause = pause.clamp(RNR_PAUSE, Rules::MAX_PAUSE);
            let pause = requester.rnr_pause;
            return self.wait(entry, now.plus(pause));
        }
        let (there, responder) = self.there.as_mut()?;
        let (here, qp, send) = (&self.here, &**self.qp, &entry.send);
        let refusal = Refusal::NotReady;
        let refused = RefusedMessage { here, qp, there, responder, send, refusal };
        let status = rules.refused(refused);
        self.complete(send, Err(status.into()))
    }

    fn wait(&mut self, entry: &Entry, until: Nanos) -> Option<Turn> {
        self.keep(entry);
        self.requester.not_before = Some(until);
        Some(Turn::Wait(until))
    }

    /// Ends an entry with a status. A success after READs that are outstanding is reported after
    /// these.
    #[inline]
    fn complete(&mut self, send: &SendWqe, result: Result<(), WrError>) -> Option<Turn> {
        let (completer, opcode, command) = (self.completer(), send.completed(), self.command());
        if self.requester.open_reads.is_empty() {
            return completer.finish(send, opcode, command, result);
        }
        // Only successes are queued: a request after a READ that fails is executed again after the
        // READ.
        let completion = completer.completion(send, opcode, command, result);
        let signaled = completer.is_signaled(send);
        self.requester.open_reads.push_done(completion, signaled);
        None
    }

    /// Returns the key of the command in progress, if the work request is one.
    pub(super) fn command(&self) -> Option<Key> {
        self.requester.keys.and_then(|keys| keys.command)
    }

    /// Returns what completes its work requests.
    #[inline]
    pub(super) const fn completer(&self) -> Completer<'_, 't, H> {
        Completer { here: &self.here, qp: self.qp }
    }
}
