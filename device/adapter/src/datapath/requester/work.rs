//! A turn of a connected QP: takes entries off its send queue and executes them.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use vrnic_abi::qp::Type;
use vrnic_roce::time::rnr_delay;
use vrnic_roce::wire::syndrome::RnrTimer;

use super::differences::Differences;
use super::paired::{RefusedMessage, Rules};
use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder::outcome;
use crate::datapath::send_queue::{BATCH, Entry, Taken, Turn, move_to, not_now, take};
use crate::datapath::transport::local::{Exchange, Stop};
use crate::datapath::transport::packet_counters;
use crate::datapath::transport::peers::Network;
use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::completion::{Completion, WrError};
use crate::objects::qp::{Ended, Qp, Readers, Requester, Responder};
use crate::requests::wqe::Malformed;
use crate::stats::Counter;
use crate::watch::Watcher;

/// The result of one step of an entry.
pub(super) enum Step {
    /// The entry is done. The peer's receive CQ may have an event due.
    Done {
        event_due: bool,
    },
    /// Bytes before this one have been moved.
    Partly(u64),
    /// A READ after others. It has been checked.
    Queued,
    Failed(WrError),
    Retry,
    /// The message is lost, without an error for its sender.
    Lost,
    NotReady(Duration),
    /// Pages of either side are absent, and have been requested.
    Absent,
    /// A request that concerns a key was refused.
    Refused(Denied),
    /// A key was invalidated. The entry continues when its present users have ended.
    Readers(Readers, Option<Ended>),
    /// The entry must wait until the READs before it have ended.
    Behind,
    /// The entry must wait until its direct transfer ends, which schedules the QP.
    Held,
}

/// A QP in its turn.
pub(super) struct Work<'a, H: Host> {
    pub(super) here: TurnContext<'a, H>,
    pub(super) qp: &'a Arc<Qp<H>>,
    pub(super) requester: &'a mut Requester<H>,
    pub(super) batch: &'a mut Batch,
    /// The peer and its receiving half, if the peer is connected to this QP.
    pub(super) there: Option<(PeerContext<'a, H>, MutexGuard<'a, Responder>)>,
    /// Number of bytes that it may still move.
    pub(super) budget: u64,
    /// The watcher, if it wants to see messages.
    pub(super) watch: Option<(Network<'a, H>, &'a dyn Watcher)>,
    /// The rules of iWARP, if the QP has a TCP connection.
    pub(super) rules: Option<&'a Rules>,
    /// Attributes in which the QP and its peer differ, although they must not.
    pub(super) differences: Option<Differences>,
    /// True if there is a watcher, or are such rules or differences, or the turn takes the slow
    /// path for another reason.
    pub(super) slow_path: bool,
}

/// The part of a message that is moved next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The first byte of the part.
    pub(super) from: u64,
    /// The maximum number of bytes of the part.
    pub(super) budget: u64,
}

/// The result of moving a part: the key that the message has invalidated, if any.
pub(super) type Moved = Result<Option<Ended>, Stop>;

/// The READs of the queue before an entry that are outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    Reads,
}

impl<H: Host> Work<'_, H> {
    /// Executes entries until the queue is empty or the turn is over. With `wait`, only continues
    /// outstanding READs.
    pub(super) fn run(&mut self, wait: Option<Turn>) -> Turn {
        if self.requester.open_reads.is_empty() { self.entries() } else { self.beside_reads(wait) }
    }

    /// Takes entries and executes them.
    #[inline]
    pub(super) fn entries(&mut self) -> Turn {
        let mut entry = Entry::EMPTY;
        for _ in 0..BATCH {
            match take(&self.here, self.qp, self.requester, self.batch, &mut entry) {
                Taken::Entry => {}
                Taken::Empty => return Turn::Idle,
                Taken::Later(until) => return Turn::Wait(until),
                Taken::Malformed(malformed) => return self.malformed(&malformed),
                Taken::Failed => return Turn::Failed,
            }
            let step = if self.requester.open_reads.is_empty() {
                self.execute(&entry, Before::Nothing)
            } else {
                self.execute_behind_reads(&entry)
            };
            if let Some(turn) = self.finish(&mut entry, step) {
                return turn;
            }
            if self.budget == 0 || self.here.slice.is_over() {
                break;
            }
            if let Some(turn) = not_now(self.here.core, self.qp, self.requester) {
                return turn;
            }
        }
        Turn::More
    }

    /// Reports an entry that cannot be parsed. While READs before it are outstanding, it is put
    /// back instead, and copied again in a later turn.
    #[cold]
    fn malformed(&mut self, malformed: &Malformed) -> Turn {
        let Malformed { id, opcode, status } = *malformed;
        if !self.requester.open_reads.is_empty() {
            move_to(self.qp, self.requester, id.index);
            self.batch.clear();
            return Turn::More;
        }
        let completion = Completion::of_send(self.qp.qpn, id, opcode, status);
        self.completer().end(&completion, true).unwrap_or(Turn::Failed)
    }

    /// Keeps an entry for the next turn.
    pub(super) fn keep(&mut self, entry: &Entry) {
        self.requester.keep(&entry.send, self.batch.entry(&entry.place), entry.done);
    }

    /// Executes an entry, or a part of it. An entry after READs that fails has no effect on the
    /// QPs: it is executed again when the READs have ended.
    #[inline]
    pub(super) fn execute(&mut self, entry: &Entry, before: Before) -> Step {
        let info = entry.send.opcode.info();
        if self.slow_path || info.is_about_own_key() || self.requester.keys.is_some() {
            return self.execute_slowly(entry, before);
        }
        let part = Part { from: entry.done, budget: self.budget };
        self.exchange(entry, before, part, |exchange, responder| exchange.run(responder))
    }

    /// Returns whether messages reach the peer.
    #[inline(always)]
    pub(super) fn reaches_peer(&self) -> bool {
        self.there.as_ref().is_some_and(|(there, _)| {
            self.here.core.carries() && there.turn.core.carries() && there.qp.receives()
        })
    }

    /// Executes a part of an entry on the peer by `moving` its bytes.
    #[inline(always)]
    pub(super) fn exchange(
        &mut self,
        entry: &Entry,
        before: Before,
        Part { from, budget }: Part,
        moving: impl FnOnce(&mut Exchange<'_, '_, H>, &mut MutexGuard<'_, Responder>) -> Moved,
    ) -> Step {
        if !self.reaches_peer() {
            return Step::Retry;
        }
        let Some((there, responder)) = &mut self.there else { return Step::Retry };
        let Entry { send, place, .. } = entry;
        let mut exchange = Exchange {
            here: &self.here,
            qp: self.qp,
            send,
            raw: self.batch.entry(place),
            there,
            from,
            to: Cell::new(send.length.min(from.saturating_add(budget))),
            message: self.requester.message(send.index),
            max_rd_atomic: self.requester.config.max_rd_atomic,
            keys: self.requester.keys.unwrap_or_default(),
            disorder: None,
        };
        let moved = moving(&mut exchange, responder);
        let to = exchange.to.get();
        self.budget = self.budget.saturating_sub(to - from);
        match moved {
            Ok(None) if to < send.length => Step::Partly(to),
            Ok(None) => {
                packet_counters::executed(&self.here, &there.turn, send, self.requester.config.mtu);
                Step::Done { event_due: std::mem::take(&mut responder.event_due) }
            }
            Ok(Some(ended)) => Step::Readers(Readers::Peer, Some(ended)),
            Err(stop) if before == Before::Reads && stop.is_failure() => Step::Behind,
            Err(stop) => stopped(&exchange, responder, self.rules, stop),
        }
    }
}

/// Converts the reason why an exchange stopped into the result for the entry and for the peer.
#[cold]
fn stopped<H: Host>(
    exchange: &Exchange<'_, '_, H>,
    responder: &mut Responder,
    rules: Option<&Rules>,
    stop: Stop,
) -> Step {
    let &Exchange { here, qp, send, there, .. } = exchange;
    let fails = stop.is_failure();
    let refusal = match stop {
        Stop::Local(error) => return Step::Failed(error),
        Stop::Absent => return Step::Absent,
        Stop::Remote(refusal) => refusal,
    };
    if let Some(rules) = rules.filter(|_| fails) {
        let refused = RefusedMessage { here, qp, there, responder, send, refusal };
        return Step::Failed(rules.refused(refused).into());
    }
    if refusal == Refusal::Unexpected {
        return Step::Retry;
    }
    if qp.kind == Type::Uc {
        // No QP answers. An error of the receiver itself must still be reported to the receiver.
        match refusal {
            Refusal::Operational | Refusal::Malformed => {
                there.act(|| outcome::fail(there, responder, refusal));
            }
            Refusal::NotReady => there.turn.step(Counter::OutOfBuffer),
            _ => {}
        }
        return Step::Lost;
    }
    if refusal == Refusal::NotReady {
        let delay = rnr_delay(RnrTimer::new(responder.min_rnr_timer));
        return Step::NotReady(delay);
    }
    there.act(|| outcome::fail(there, responder, refusal));
    Step::Failed(refusal.into())
}
