//! The timeline of one queue pair, or of all: what the adapter has done for it, and when.
//!
//! While a QP of the function is traced, the hooks of rules for faults look at all that concerns
//! the function ([`vrnic_faults::Concern`]), and pass it here. So a trace costs nothing while there
//! is none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vrnic_abi::{Cqn, Eqn, Qpn};
use vrnic_abi::{cq, eq, sq};
use vrnic_faults::{Concern, Opcode, Rules};
use vrnic_packet::Nanos;
use vrnic_roce::Psn;

use crate::objects::completion::Completion;
use crate::objects::faults::notes::Requests;
use crate::requests::wqe::SendWqe;

/// The most records that wait to be taken. Further ones are lost, and counted.
const MAX_RECORDS: usize = 1 << 16;
/// The time after which a trace ends whose records are not taken.
const LEASE: Duration = Duration::from_secs(5);

/// A step of the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A doorbell of the QP was found rung.
    Doorbell,
    /// A turn of the QP begins.
    Turn {
        /// The worker that runs the turn.
        worker: usize,
    },
    /// A work request was read from its queue.
    Fetch {
        /// The index of the work request.
        index: u32,
        /// The number that the program has given to the work request.
        wr_id: u64,
        /// The operation of the work request.
        opcode: sq::Opcode,
        /// Bytes of its message.
        bytes: u64,
    },
    /// Bytes of a message were copied between memories.
    Copy {
        /// The index of the work request.
        index: u32,
        /// The first byte.
        from: u64,
        /// The byte after the last one.
        to: u64,
        /// True if that was the last part, so the peer has acknowledged the message.
        last: bool,
    },
    /// A packet leaves, or has arrived.
    Packet {
        /// True if it leaves.
        leaves: bool,
        /// The opcode of the packet; none if it cannot be parsed.
        opcode: Option<Opcode>,
        /// The sequence number of a packet of RoCE.
        psn: Option<u32>,
        /// The length of the packet in bytes, with all headers.
        bytes: usize,
    },
    /// An entry is written to a completion queue.
    Completion {
        /// The index of the work request.
        index: u32,
        /// The number that the program has given to the work request.
        wr_id: u64,
        /// The operation that has completed.
        opcode: cq::Opcode,
        /// The status of the completion.
        status: cq::Status,
        /// The completion queue.
        cqn: Cqn,
    },
    /// An event of the QP or of its completion queues is reported.
    Event {
        /// The kind of the event.
        kind: eq::Kind,
        /// The number of the object.
        id: u32,
        /// The event queue.
        eqn: Eqn,
        /// True if a rule for faults has taken it away, or holds it back.
        held: bool,
    },
    /// The interrupt of such an event is raised.
    Interrupt {
        /// The MSI-X vector.
        vector: u16,
        /// True if a rule for faults has taken it away, or holds it back.
        held: bool,
    },
}

impl Step {
    /// Returns the step in which a work request is read.
    pub(crate) const fn fetch(send: &SendWqe) -> Self {
        let SendWqe { index, wr_id, opcode, length: bytes, .. } = *send;
        Self::Fetch { index, wr_id, opcode, bytes }
    }

    /// Returns the step in which an entry is written to a CQ.
    pub(crate) const fn completion(completion: &Completion, cqn: u32) -> Self {
        let Completion { wqe_index: index, wr_id, opcode, status, .. } = *completion;
        Self::Completion { index, wr_id, opcode, status, cqn: Cqn::new(cqn) }
    }

    /// Returns the step in which a frame leaves or has arrived.
    pub(crate) fn packet(frame: &[u8], leaves: bool) -> Self {
        let (opcode, psn) = Opcode::of_frame(frame).unzip();
        let psn = psn.flatten().map(Psn::get);
        Self::Packet { leaves, opcode, psn, bytes: frame.len() }
    }
}

/// A step, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time, on the host's clock.
    pub at: Nanos,
    /// The QP. None for events of completion queues, and for interrupts.
    pub qpn: Option<Qpn>,
    /// What was done.
    pub step: Step,
}

/// Records that were taken.
#[derive(Debug, Default)]
pub struct Records {
    /// The records, in the order of their times.
    pub records: Vec<Record>,
    /// Number of records that were not taken in time, and are lost.
    pub lost: u64,
}

/// What is traced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Traced {
    /// A QP, and its completion queues.
    One { qpn: Qpn, cqns: [Cqn; 2] },
    /// All QPs.
    All,
}

impl Traced {
    /// Returns whether a QP is traced.
    fn has(&self, of: Qpn) -> bool {
        match self {
            Self::One { qpn, .. } => *qpn == of,
            Self::All => true,
        }
    }

    /// Returns whether the events of a completion queue are traced.
    fn has_cq(&self, number: u32) -> bool {
        match self {
            Self::One { cqns, .. } => cqns.iter().any(|cqn| cqn.get() == number),
            Self::All => true,
        }
    }

    /// Returns whether comments of captures are about a QP: the indices of work requests are those
    /// of one QP.
    fn is_only(&self, of: Qpn) -> bool {
        matches!(self, Self::One { .. }) && self.has(of)
    }
}

/// The subject of a comment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Noted<'a> {
    /// A frame.
    Frame {
        /// The bytes of the frame.
        bytes: &'a [u8],
        /// True if it leaves.
        leaves: bool,
    },
    /// A message that the QP has exchanged by a copy.
    Copy {
        /// The index of its work request.
        index: u32,
    },
    /// The same, of a work request of the peer.
    CopyOfPeer,
}

/// The trace of an adapter.
#[derive(Debug)]
pub(crate) struct Trace {
    rules: Arc<Rules>,
    concern: Arc<Concern>,
    /// The trace in progress, if there is one. This lock is taken before that of the rules.
    tracing: Mutex<Option<Tracing>>,
}

#[derive(Debug)]
struct Tracing {
    of: Traced,
    /// The time at which it ends unless records are taken.
    until: Nanos,
    records: VecDeque<Record>,
    lost: u64,
    /// The vector of the last event.
    vector: Option<u16>,
    /// The work requests to which packets belong.
    requests: Requests,
}

impl Trace {
    /// Returns the trace of a function, which looks where `concern` says.
    pub(crate) fn new(rules: &Arc<Rules>, concern: &Arc<Concern>) -> Self {
        let (rules, concern) = (Arc::clone(rules), Arc::clone(concern));
        Self { rules, concern, tracing: Mutex::default() }
    }

    /// Begins. Returns false if a trace has not ended.
    pub(crate) fn begin(&self, of: Traced, now: Nanos) -> bool {
        let mut trace = self.tracing.lock();
        if trace.as_ref().is_some_and(|tracing| now < tracing.until) {
            return false;
        }
        let (records, until) = (VecDeque::new(), now.plus(LEASE));
        let requests = Requests::default();
        *trace = Some(Tracing { of, until, records, lost: 0, vector: None, requests });
        self.rules.trace(&self.concern, true);
        true
    }

    /// Takes some records. Returns `None` if there is no trace.
    pub(crate) fn take(&self, limit: usize, now: Nanos) -> Option<Records> {
        let mut trace = self.tracing.lock();
        let tracing = trace.as_mut().filter(|tracing| now < tracing.until)?;
        tracing.until = now.plus(LEASE);
        let count = tracing.records.len().min(limit);
        let records = tracing.records.drain(..count).collect();
        Some(Records { records, lost: std::mem::take(&mut tracing.lost) })
    }

    pub(crate) fn end(&self) {
        let mut trace = self.tracing.lock();
        *trace = None;
        self.rules.trace(&self.concern, false);
    }

    /// Records a step of a QP, if that is traced.
    pub(crate) fn record(&self, at: Nanos, qpn: Qpn, step: Step) {
        self.with(at, |tracing| {
            if !tracing.of.has(qpn) {
                return;
            }
            match step {
                _ if !tracing.of.is_only(qpn) => {}
                Step::Doorbell => tracing.requests.ring(at),
                Step::Fetch { index, .. } => tracing.requests.fetch(at, index),
                _ => {}
            }
            tracing.push(Record { at, qpn: Some(qpn), step });
        })
    }

    /// Records the sequence number of a packet of a work request, before the packet leaves.
    pub(crate) fn packet(&self, at: Nanos, qpn: Qpn, index: u32, psn: Psn) {
        self.with(at, |tracing| {
            if tracing.of.is_only(qpn) {
                tracing.requests.send(index, psn);
            }
        })
    }

    /// Returns the comment of captures on a frame or a message of a QP, if that is traced.
    pub(crate) fn note(&self, at: Nanos, qpn: Qpn, of: &Noted<'_>) -> Option<String> {
        let mut note = None;
        self.with(at, |tracing| {
            if tracing.of.is_only(qpn) {
                note = Some(match *of {
                    Noted::Frame { bytes, leaves } => {
                        tracing.requests.of_packet(at, qpn, Opcode::of_frame(bytes), leaves)
                    }
                    Noted::Copy { index } => tracing.requests.of_copy(at, qpn, index),
                    Noted::CopyOfPeer => format!("QP {qpn}: request of the peer copied"),
                });
            }
        });
        note
    }

    /// Records an event of the QP or its completion queues. `vector` belongs to its event queue.
    pub(crate) fn event(&self, at: Nanos, step: Step, vector: u16) {
        self.with(at, |tracing| {
            let Step::Event { kind, id, .. } = step else { return };
            let qpn = kind.is_of_qp().then_some(Qpn::new(id));
            let of_cq = kind.is_of_cq() && tracing.of.has_cq(id);
            if of_cq || qpn.is_some_and(|qpn| tracing.of.has(qpn)) {
                tracing.vector = Some(vector);
                tracing.push(Record { at, qpn, step });
            }
        })
    }

    /// Records an interrupt, if the last event has raised it.
    pub(crate) fn interrupt(&self, at: Nanos, vector: u16, held: bool) {
        self.with(at, |tracing| {
            if tracing.vector == Some(vector) {
                tracing.push(Record { at, qpn: None, step: Step::Interrupt { vector, held } });
            }
        })
    }

    /// Passes the trace to a function, if there is one. Ends one that is over.
    fn with(&self, now: Nanos, work: impl FnOnce(&mut Tracing)) {
        if !self.concern.is_traced() {
            return;
        }
        let mut trace = self.tracing.lock();
        match trace.as_mut().filter(|tracing| now < tracing.until) {
            Some(tracing) => work(tracing),
            None => {
                *trace = None;
                self.rules.trace(&self.concern, false);
            }
        }
    }
}

impl Tracing {
    fn push(&mut self, record: Record) {
        if self.records.len() < MAX_RECORDS {
            self.records.push_back(record);
        } else {
            self.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QPN: Qpn = Qpn::new(5);

    fn begun() -> Trace {
        begun_of(Traced::One { qpn: QPN, cqns: [Cqn::new(1), Cqn::new(2)] })
    }

    fn begun_of(of: Traced) -> Trace {
        let rules: Arc<Rules> = Arc::default();
        let trace = Trace::new(&rules, &rules.concern("f"));
        assert!(trace.begin(of, Nanos(0)) && !trace.begin(of, Nanos(1)));
        trace
    }

    #[test]
    fn only_what_concerns_the_queue_pair_is_recorded() {
        let trace = begun();
        trace.record(Nanos(1), Qpn::new(6), Step::Doorbell);
        trace.record(Nanos(2), QPN, Step::Doorbell);
        let event = |kind, id| Step::Event { kind, id, eqn: Eqn::new(1), held: false };
        for (step, vector) in [
            (event(eq::Kind::Completion, 3), 7),
            (event(eq::Kind::Completion, 2), 8),
            (event(eq::Kind::QpFatal, 2), 9),
            (event(eq::Kind::PortUp, 5), 9),
        ] {
            trace.event(Nanos(3), step, vector);
        }
        [7, 8, 9].into_iter().for_each(|vector| trace.interrupt(Nanos(4), vector, true));
        let steps: Vec<_> = trace.take(9, Nanos(5)).expect("a trace").records;
        let steps: Vec<_> = steps.into_iter().map(|record| record.step).collect();
        let interrupt = Step::Interrupt { vector: 8, held: true };
        assert_eq!(steps, [Step::Doorbell, event(eq::Kind::Completion, 2), interrupt]);
    }

    #[test]
    fn a_trace_of_all_queue_pairs_says_whose_each_step_is() {
        let trace = begun_of(Traced::All);
        let other = Qpn::new(6);
        trace.record(Nanos(1), QPN, Step::Doorbell);
        trace.record(Nanos(2), other, Step::Doorbell);
        let kind = eq::Kind::Completion;
        trace.event(Nanos(3), Step::Event { kind, id: 9, eqn: Eqn::new(1), held: false }, 7);
        let records = trace.take(9, Nanos(4)).expect("a trace").records;
        let qpns: Vec<_> = records.iter().map(|record| record.qpn).collect();
        assert_eq!(qpns, [Some(QPN), Some(other), None]);
        let frame = Noted::Frame { bytes: &[], leaves: true };
        assert_eq!(trace.note(Nanos(4), QPN, &frame), None);
    }

    /// Shows: faults: the timeline of a queue pair has bounded memory
    #[test]
    fn memory_is_bounded_and_what_is_lost_is_counted() {
        let trace = begun();
        for _ in 0..MAX_RECORDS + 3 {
            trace.record(Nanos(1), QPN, Step::Doorbell);
        }
        let take = |limit| trace.take(limit, Nanos(2)).map(|it| (it.records.len(), it.lost));
        assert_eq!(take(10), Some((10, 3)));
        assert_eq!(take(usize::MAX), Some((MAX_RECORDS - 10, 0)));
    }

    #[test]
    fn a_trace_ends_when_nobody_takes_its_records() {
        let trace = begun();
        let seconds = |seconds: u64| Nanos(seconds * 1_000_000_000);
        assert!(trace.take(1, seconds(4)).is_some());
        trace.record(seconds(8), QPN, Step::Doorbell);
        assert!(trace.concern.is_traced());
        trace.record(seconds(9), QPN, Step::Doorbell);
        assert!(!trace.concern.is_traced());
        assert!(trace.take(1, seconds(8)).is_none());
    }
}
