//! The slow path of an entry: rules of iWARP, differences between the two ends, rules for faults, a
//! watcher, and operations on keys.

use vrnic_abi::Key;
use vrnic_abi::cq::Status;
use vrnic_faults::Site;

use super::differences::Fault;
use super::work::{Before, Moved, Part, Step, Work};
use crate::datapath::constants::BLOCKS_PAUSE;
use crate::datapath::disorder::{BLOCK_LEN, MAX_BLOCKS};
use crate::datapath::injected;
use crate::datapath::local_wr::{self, Settled};
use crate::datapath::refusal::Refusal;
use crate::datapath::send_queue::Entry;
use crate::datapath::transport::local::{Exchange, Stop};
use crate::datapath::transport::local_watch;
use crate::datapath::transport::tcp::rdma::carries;
use crate::host::Host;
use crate::objects::qp::{KeyWait, Keys, Readers};

impl<H: Host> Work<'_, H> {
    /// Executes an entry, or a part of it, as [`Self::execute`] does, after checking what its
    /// protocol, a difference from the peer, and rules for faults mean for it.
    #[cold]
    pub(super) fn execute_slowly(&mut self, entry: &Entry, before: Before) -> Step {
        let send = &entry.send;
        if self.rules.is_some() && !carries(send) {
            return Step::Failed(Status::LocQpOpErr.into());
        }
        let fault = self.differences.and_then(|differences| {
            differences.fault(self.here.host(), self.qp, self.requester, send)
        });
        if send.opcode.info().is_about_own_key()
            && let Some(step) = self.about_keys(entry)
        {
            return step;
        }
        if !self.reaches_peer() || fault == Some(Fault::Lost) {
            return Step::Retry;
        }
        if entry.done == 0
            && self.here.looks_at(Site::Message)
            && injected::loses(&self.here, self.qp.qpn, send)
        {
            return Step::Retry;
        }
        let step = self.exchange_slowly(entry, before, fault);
        match (step, fault) {
            (Step::Partly(_) | Step::Done { .. }, Some(Fault::AnswerLost)) => Step::Retry,
            (Step::Partly(_) | Step::Done { .. }, Some(Fault::AnswerLength)) => {
                Step::Failed(Status::LocLenErr.into())
            }
            (Step::Done { .. }, _)
                if let Some(key) = send.ending_key(self.batch.entry(&entry.place)) =>
            {
                self.end_sink(key)
            }
            (step, _) => step,
        }
    }

    /// Executes a part of an entry that has this fault, if any, and shows it to the watcher and the
    /// trace. A rule may change the order of the bytes.
    fn exchange_slowly(&mut self, entry: &Entry, before: Before, fault: Option<Fault>) -> Step {
        let length = entry.send.length;
        let waited = self.requester.keys.is_some_and(|keys| keys.wait == KeyWait::Over);
        let part = Part {
            // All bytes were moved before the wait.
            from: if waited { length } else { entry.done },
            budget: fault.map_or(self.budget, |fault| fault.budget(self.budget)),
        };
        let (watch, again) = (self.watch, self.requester.rnr_until.is_some());
        let mut pauses = false;
        let step = self.exchange(entry, before, part, |exchange, responder| {
            let may_order = exchange.here.core.injection.may_order();
            if may_order {
                exchange.disorder = exchange.order(responder);
            }
            if exchange.disorder.is_some() && part.budget > 0 {
                // Blocks are whole, and few come at a time.
                exchange.to.set(length.min(part.from.saturating_add(BLOCK_LEN * MAX_BLOCKS)));
            }
            let moved = if fault == Some(Fault::Refused) {
                Err(exchange.refused_as_invalid())
            } else if !waited {
                exchange.run(responder)
            } else if responder.current.is_some() {
                exchange.arrive(responder).map(|()| None)
            } else {
                // The receive was flushed in the meantime.
                Err(Stop::Remote(Refusal::Unexpected))
            };
            pauses = may_order && has_more_blocks(exchange, part.from, &moved);
            if let Some((network, watcher)) = watch {
                match &moved {
                    Ok(None) if exchange.ends() => {
                        local_watch::executed(network, watcher, exchange, responder);
                    }
                    Err(stop) if before == Before::Nothing || !stop.is_failure() => {
                        local_watch::stopped(network, watcher, exchange, stop, again, responder);
                    }
                    _ => {}
                }
            }
            moved
        });
        if pauses {
            self.requester.not_before = Some(self.here.now().plus(BLOCKS_PAUSE));
        }
        step
    }

    /// Executes the part of a memory operation that precedes or replaces an exchange with the peer.
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

    /// Invalidates the key of the memory that a READ has filled.
    fn end_sink(&self, key: Key) -> Step {
        match local_wr::end_key(&self.here, self.qp, key) {
            Ok(()) => Step::Readers(Readers::Own, None),
            Err(denied) => Step::Refused(denied),
        }
    }
}

/// Passes the bytes of a message that were moved from `from` on to the trace, and ends the order of
/// a message that has ended. Returns whether the message goes on with further blocks.
fn has_more_blocks<H: Host>(exchange: &Exchange<'_, '_, H>, from: u64, moved: &Moved) -> bool {
    let Exchange { here, qp, send, .. } = *exchange;
    let ends = exchange.ends();
    if moved.is_ok() {
        let last = ends && matches!(moved, Ok(None));
        injected::copied(here, qp.qpn, send, from..exchange.to.get(), last);
    }
    if moved.as_ref().map_or_else(Stop::is_failure, |_| ends) {
        here.core.injection.end_order(qp.qpn, send);
        return false;
    }
    exchange.disorder.is_some() && !ends
}
