//! A turn of a connected QP: takes entries off its send queue and executes them.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use vrnic_abi::Key;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::Type;
use vrnic_faults::Site;
use vrnic_roce::time::rnr_delay;
use vrnic_roce::wire::syndrome::RnrTimer;

use super::differences::{Differences, Fault};
use super::paired::{RefusedMessage, Rules};
use crate::datapath::constants::BLOCKS_PAUSE;
use crate::datapath::disorder::{BLOCK_LEN, MAX_BLOCKS};
use crate::datapath::injected;
use crate::datapath::local_wr::{self, Settled};
use crate::datapath::refusal::Refusal;
use crate::datapath::responder::outcome;
use crate::datapath::send_queue::{BATCH, Entry, Taken, Turn, move_to, not_now, take};
use crate::datapath::there::There;
use crate::datapath::transport::local::{Exchange, Stop};
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::tcp::rdma::carries;
use crate::datapath::transport::{local_watch, packet_counters};
use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::completion::{Completion, WrError};
use crate::objects::qp::{Ended, KeyWait, Keys, Qp, Readers, Requester, Responder};
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
    /// A READ behind others. It has been checked.
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
    pub(super) there: Option<(There<'a, H>, MutexGuard<'a, Responder>)>,
    /// Number of bytes that it may still move.
    pub(super) budget: u64,
    /// The watcher, if it wants to see messages.
    pub(super) watch: Option<(Network<'a, H>, &'a dyn Watcher)>,
    /// The rules of iWARP, if the QP has a TCP connection.
    pub(super) rules: Option<&'a Rules>,
    /// Attributes in which the QP and its peer differ, although they must not.
    pub(super) differences: Option<Differences>,
    /// True if there are such rules or differences, so that each entry must be examined.
    pub(super) examines: bool,
}

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

    /// Executes an entry, or a part of it. An entry behind READs that fails has no effect on the
    /// QPs: it is executed again when the READs have ended.
    #[inline]
    pub(super) fn execute(&mut self, entry: &Entry, before: Before) -> Step {
        if self.examines {
            self.examine(entry, before)
        } else {
            self.run_entry(entry, before, None)
        }
    }

    /// Executes an entry after checking what its protocol, or a difference from the peer, means for
    /// it.
    #[inline(never)]
    fn examine(&mut self, entry: &Entry, before: Before) -> Step {
        if self.rules.is_some() && !carries(&entry.send) {
            return Step::Failed(Status::LocQpOpErr.into());
        }
        let fault = self.differences.and_then(|differences| {
            differences.fault(self.here.host(), self.qp, self.requester, &entry.send)
        });
        self.run_entry(entry, before, fault)
    }

    /// Executes an entry that has this fault, if any.
    #[inline(always)]
    fn run_entry(&mut self, entry: &Entry, before: Before, fault: Option<Fault>) -> Step {
        if entry.send.opcode.info().is_about_own_key()
            && let Some(step) = self.about_keys(entry)
        {
            return step;
        }
        let Some((there, responder)) = &mut self.there else { return Step::Retry };
        let up = self.here.core.carries() && there.turn.core.carries();
        if !up || !there.qp.receives() || fault == Some(Fault::Lost) {
            return Step::Retry;
        }
        let Entry { send, place, done } = entry;
        if *done == 0
            && self.here.core.injection.looks_at(Site::Message)
            && injected::loses(&self.here, self.qp.qpn, send)
        {
            return Step::Retry;
        }
        let keys = self.requester.keys.unwrap_or_default();
        let waited = keys.wait == KeyWait::Over;
        // All bytes were moved before the wait.
        let from = if waited { send.length } else { *done };
        let budget = fault.map_or(self.budget, |fault| fault.budget(self.budget));
        let mut exchange = Exchange {
            here: &self.here,
            qp: self.qp,
            send,
            raw: self.batch.entry(place),
            there,
            from,
            to: Cell::new(from),
            message: self.requester.message(send.index),
            max_rd_atomic: self.requester.config.max_rd_atomic,
            keys,
            disorder: None,
        };
        let may_order = self.here.core.injection.may_order();
        if may_order {
            exchange.disorder = exchange.order(responder);
        }
        // Blocks are whole, and few come at a time.
        let budget = match exchange.disorder {
            Some(_) if budget > 0 => BLOCK_LEN * MAX_BLOCKS,
            _ => budget,
        };
        let end = send.length.min(from.saturating_add(budget));
        self.budget = self.budget.saturating_sub(end - from);
        exchange.to.set(end);
        let moved = if fault == Some(Fault::Refused) {
            Err(exchange.refused_as_invalid())
        } else if !waited {
            exchange.run(responder)
        } else if responder.current.is_some() {
            exchange.arrive(responder).map(|()| None)
        } else {
            // It was flushed in the meantime.
            return Step::Retry;
        };
        let to = exchange.to.get();
        self.budget += end - to;
        if may_order {
            let has_moved = to == send.length;
            if moved.is_ok() {
                let last = has_moved && matches!(moved, Ok(None));
                injected::copied(&self.here, self.qp.qpn, send, from..to, last);
            }
            if moved.as_ref().map_or_else(Stop::is_failure, |_| has_moved) {
                self.here.core.injection.end_order(self.qp.qpn, send);
            } else if exchange.disorder.is_some() && !has_moved {
                self.requester.not_before = Some(self.here.now().plus(BLOCKS_PAUSE));
            }
        }
        match moved {
            Ok(None) if fault == Some(Fault::AnswerLost) => Step::Retry,
            Ok(None) if fault == Some(Fault::AnswerLength) => {
                Step::Failed(Status::LocLenErr.into())
            }
            Ok(None) if to < send.length => Step::Partly(to),
            Ok(None) => executed(&exchange, responder, self.watch, self.requester.config.mtu),
            Ok(Some(ended)) => Step::Readers(Readers::Peer, Some(ended)),
            Err(stop) if before == Before::Reads && stop.is_failure() => Step::Behind,
            Err(stop) => {
                if let Some((network, watcher)) = self.watch {
                    let again = self.requester.rnr_until.is_some();
                    local_watch::stopped(network, watcher, &exchange, &stop, again, responder);
                }
                stopped(&exchange, responder, self.rules, stop)
            }
        }
    }

    /// Executes the part of a memory operation that precedes or replaces an exchange with the peer.
    #[cold]
    fn about_keys(&mut self, entry: &Entry) -> Option<Step> {
        let Entry { send, place, .. } = entry;
        let raw = self.batch.entry(place);
        let keys = self.requester.keys.unwrap_or_default();
        if send.opcode.info().command && keys.command.is_none() {
            match local_wr::open_command(&self.here, self.qp, send, raw) {
                Ok(key) => self.requester.keys = Some(Keys { command: Some(key), ..keys }),
                Err(denied) => return Some(Step::Refused(denied)),
            }
        }
        let ends_sink = send.opcode.info().invalidate_sink;
        if ends_sink && self.rules.is_none() {
            return Some(Step::Failed(Status::LocQpOpErr.into()));
        }
        if !send.is_local() && !ends_sink {
            return None;
        }
        if keys.wait == KeyWait::Over {
            return Some(Step::Done { event_due: false });
        }
        if ends_sink {
            return None;
        }
        Some(match local_wr::run(&self.here, self.qp, send, raw) {
            Ok(Settled::Now) => Step::Done { event_due: false },
            Ok(Settled::AfterReaders) => Step::Readers(Readers::Own, None),
            Ok(Settled::Later) => Step::Held,
            Err(denied) => Step::Refused(denied),
        })
    }
}

/// Invalidates the key of the memory that a READ has filled.
#[cold]
fn end_sink<H: Host>(here: &TurnContext<'_, H>, qp: &Qp<H>, key: Key) -> Step {
    match local_wr::end_key(here, qp, key) {
        Ok(()) => Step::Readers(Readers::Own, None),
        Err(denied) => Step::Refused(denied),
    }
}

/// Ends an entry all of whose bytes have been moved.
#[inline(always)]
fn executed<H: Host>(
    exchange: &Exchange<'_, '_, H>,
    responder: &mut Responder,
    watch: Option<(Network<'_, H>, &dyn Watcher)>,
    mtu: u8,
) -> Step {
    let &Exchange { here, qp, send, raw, there, .. } = exchange;
    if let Some((network, watcher)) = watch {
        local_watch::executed(network, watcher, exchange, responder);
    }
    packet_counters::executed(here, &there.turn, send, mtu);
    if let Some(key) = send.ending_key(raw) {
        return end_sink(here, qp, key);
    }
    Step::Done { event_due: std::mem::take(&mut responder.event_due) }
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
