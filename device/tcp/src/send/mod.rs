//! The sending direction: the choice of the next segment, acknowledgements, the peer's window.
//!
//! | module | contents |
//! | --- | --- |
//! | `numbers` | the numbers that people look at when a connection is slow |
//! | `records` | the scoreboard |
//! | `rtt` | the round trip time |
//! | `rack` | detection of losses |
//! | `recovery` | acknowledgements and loss recovery |
//! | `timers` | time-outs |

pub(crate) mod numbers;
mod rack;
mod records;
mod recovery;
mod rtt;
#[cfg(test)]
mod tests;
mod timers;

use std::sync::Arc;

use vrnic_packet::Nanos;

use self::rack::Rack;
use self::records::{Fate, Record, Records};
pub(crate) use self::recovery::Ack;
use self::recovery::Recovery;
use self::rtt::Rtt;
pub(crate) use self::timers::GiveUp;
use self::timers::Timers;
use crate::budget::Budget;
use crate::congestion::{self, Congestion};
use crate::context::{Context, Params};
use crate::receive::SCALE_MAX;
use crate::seq::{Origin, SeqNum, StreamPos};
use crate::stream::Source;

/// Bytes of the option "timestamps" with its padding.
const TIMESTAMPS_LEN: u16 = 12;
/// The least that a segment carries with its options, so that no context makes segments without
/// data. It is below what any TCP announces.
const MSS_MIN: u16 = 64;

/// A segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// `len` bytes of the record at index `at`, again.
    Again { at: usize, start: StreamPos, len: usize },
    /// `len` bytes that were never sent.
    New { start: StreamPos, len: usize },
    /// The end of the stream (FIN). `again` is the index of its record if it was sent before.
    Fin { start: StreamPos, again: Option<usize> },
    /// A segment that the peer must answer with its window.
    Probe,
}

/// Counters of the sending direction of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Segments with data.
    pub segments: u64,
    /// Segments with data that had been sent before.
    pub resent: u64,
    /// Recoveries that acknowledgements started.
    pub recoveries: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Tail loss probes (RFC 8985, 7), also in recoveries.
    pub tail_probes: u64,
    /// Zero-window probes.
    pub window_probes: u64,
    /// Duplicates that the peer reported (RFC 2883).
    pub duplicates: u64,
}

/// The sending direction of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    origin: Origin,
    /// The first byte that is not acknowledged, and the first byte that was never sent.
    pub(crate) una: StreamPos,
    pub(crate) next: StreamPos,
    /// The position after the last byte that the peer allows, and the segment that announced it.
    edge: StreamPos,
    edge_seq: SeqNum,
    edge_ack: SeqNum,
    scale: u8,
    pub(crate) max_window: u64,
    /// Maximum number of data bytes in a segment: `mss_max`, or less for a while if the path
    /// carries less.
    pub(crate) mss: usize,
    mss_max: usize,
    options: u16,
    sack: bool,
    records: Records,
    rtt: Rtt,
    rack: Rack,
    congestion: Box<dyn Congestion>,
    recovery: Option<Recovery>,
    /// Number of duplicate acknowledgements from a peer without SACK, each for a segment out of
    /// order.
    repeated: u64,
    /// The end of an unacknowledged tail loss probe, and whether it was a retransmission.
    tail: Option<(StreamPos, bool)>,
    /// True if the first segment was sent again because a recovery made no progress, and still does
    /// not.
    rescued: bool,
    timers: Timers,
    last_sent: Nanos,
    pub(crate) counters: SendCounters,
}

impl Sender {
    pub(crate) fn new(now: Nanos, context: &Context, params: &Params) -> Self {
        let options = if context.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 };
        let mss = context.mss.max(MSS_MIN) - options;
        Self {
            origin: Origin(context.send_next),
            una: StreamPos(0),
            next: StreamPos(0),
            edge: StreamPos(context.send_window.into()),
            edge_seq: context.receive_next,
            edge_ack: context.send_next,
            scale: context.send_scale.min(SCALE_MAX),
            max_window: context.max_send_window.max(context.send_window).into(),
            mss: mss.into(),
            mss_max: mss.into(),
            options,
            sack: context.sack,
            records: Records::new(params.segments),
            rtt: Rtt::new(context.round_trip, params.min_rto),
            rack: Rack::default(),
            congestion: congestion::controller(params.congestion, mss.into()),
            recovery: None,
            repeated: 0,
            tail: None,
            rescued: false,
            timers: Timers::new(params.user_timeout),
            last_sent: now,
            counters: SendCounters::default(),
        }
    }

    /// Takes the memory of the scoreboard from a budget from now on.
    pub(crate) fn use_budget(&mut self, budget: &Arc<Budget>) {
        self.records.use_budget(budget);
    }

    /// Returns the number of bytes that are taken from the budget.
    pub(crate) const fn charged(&self) -> usize {
        self.records.charged()
    }

    /// Gives memory back that is not in use.
    pub(crate) fn shrink(&mut self) {
        self.records.shrink();
    }

    /// Returns the number of a position.
    pub(crate) fn number(&self, at: StreamPos) -> SeqNum {
        self.origin.number(at)
    }

    /// Returns whether a number belongs to a byte that was sent and is not acknowledged.
    pub(crate) fn is_under_way(&self, number: SeqNum) -> bool {
        let at = self.origin.position(number, self.una);
        at.is_some_and(|at| self.una <= at && at < self.next)
    }

    /// Returns the number of acknowledgements that seem to have been held back by the peer.
    pub(crate) const fn acknowledgements_delayed(&self) -> u32 {
        self.rtt.delayed()
    }

    /// Limits the size of segments to what the path carries, for ten minutes. After that the path
    /// may have changed.
    pub(crate) fn limit_mss(&mut self, now: Nanos, mss: u16) {
        let limit = usize::from(mss.max(MSS_MIN) - self.options);
        if limit < self.mss_max && limit <= self.mss {
            self.mss = limit;
            self.timers.shortened(now);
        }
    }

    /// Returns the number of bytes that are assumed to be in flight.
    fn pipe(&self) -> u64 {
        self.records.flying().saturating_sub(self.repeated.saturating_mul(self.mss as u64))
    }

    /// Returns the maximum number of bytes in flight.
    fn window(&self) -> u64 {
        match &self.recovery {
            Some(Recovery::Fast(fast)) if self.congestion.window() < u64::MAX => fast.window,
            _ => self.congestion.window(),
        }
    }

    fn may_fly(&self, len: u64) -> bool {
        let pipe = self.pipe();
        pipe == 0 || pipe.saturating_add(len) <= self.window()
    }

    /// Updates the window from an acceptable segment (RFC 9293, 3.10.7.4).
    pub(crate) fn update_window(
        &mut self,
        at: StreamPos,
        seq: SeqNum,
        ack: SeqNum,
        field: u16,
    ) -> bool {
        let newer = match seq.ahead_of(self.edge_seq) {
            0 => ack.ahead_of(self.edge_ack) >= 0,
            ahead => ahead > 0,
        };
        if !newer {
            return false;
        }
        let window = u64::from(field) << self.scale;
        let before = self.edge;
        self.edge = at.plus(window);
        (self.edge_seq, self.edge_ack) = (seq, ack);
        self.max_window = self.max_window.max(window);
        before != self.edge
    }

    /// Chooses the next segment, of at most `limit` bytes. `fin` asks for the end of the stream.
    pub(crate) fn plan(
        &mut self,
        now: Nanos,
        source: &impl Source,
        limit: usize,
        fin: bool,
    ) -> Option<Plan> {
        let limit = limit.min(self.mss).max(1);
        if let Some(at) = self.records.first_lost() {
            let plan = self.again(at, source, limit);
            let len = if let Plan::Again { len, .. } = plan { len as u64 } else { 1 };
            return self.may_fly(len).then_some(plan);
        }
        let tail = std::mem::take(&mut self.timers.tail_due);
        if let Some(plan) = self.fresh(now, source, limit, fin, tail) {
            self.tail = tail.then(|| (self.next.plus(plan.len()), false)).or(self.tail);
            self.counters.tail_probes += u64::from(tail);
            return Some(plan);
        }
        let last = self.records.len().checked_sub(1);
        if let Some(at) = last.filter(|_| tail) {
            self.tail = Some((self.next, true));
            self.counters.tail_probes += 1;
            return Some(self.again(at, source, limit));
        }
        std::mem::take(&mut self.timers.probe_due).then_some(Plan::Probe)
    }

    /// Sends a record again. A record that has become too long for the path is split.
    fn again(&mut self, at: usize, source: &impl Source, limit: usize) -> Plan {
        let record = self.records.get(at);
        let (start, len) = record.map_or((self.una, 0), |record| (record.start, record.len()));
        if record.is_some_and(|record| record.fin) {
            return Plan::Fin { start, again: Some(at) };
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len <= limit {
            return Plan::Again { at, start, len };
        }
        let len = source.cut(start, limit).clamp(1, limit);
        self.records.split(at, len as u64);
        Plan::Again { at, start, len }
    }

    /// Chooses bytes that were never sent. A tail loss probe ignores the congestion window.
    fn fresh(
        &mut self,
        now: Nanos,
        source: &impl Source,
        limit: usize,
        fin: bool,
        probe: bool,
    ) -> Option<Plan> {
        let left = usize::try_from(source.end().since(self.next)).unwrap_or(usize::MAX);
        if (left == 0 && !fin) || !self.records.make_room() {
            return None;
        }
        let start = self.next;
        let limit = limit.min(left);
        let whole = if left == 0 { 1 } else { source.cut(start, limit).clamp(1, limit) };
        let len = self.fit(now, whole)?;
        let len = if len == whole { len } else { source.cut(start, len).clamp(1, len) };
        if !probe && !self.may_fly(len as u64) {
            return None;
        }
        self.timers.unblocked(&mut self.rtt);
        if self.records.is_empty() && now.since(self.last_sent) > self.rtt.timeout() {
            self.congestion.restart();
        }
        Some(if left == 0 { Plan::Fin { start, again: None } } else { Plan::New { start, len } })
    }

    /// Returns how many of `whole` bytes the peer's window allows now. Avoids small segments (RFC
    /// 9293, 3.8.6.2.1).
    fn fit(&mut self, now: Nanos, whole: usize) -> Option<usize> {
        let room = self.edge.since(self.next);
        if whole as u64 <= room {
            return Some(whole);
        }
        let usable = room >= timers::WINDOW_MIN;
        if usable && (room >= self.max_window / 2 || self.timers.override_due) {
            // CAST: it is less than `whole`.
            return Some(room as usize);
        }
        if self.records.is_empty() {
            self.timers.blocked(now, room, &self.rtt);
        }
        None
    }

    /// Records that a planned segment is sent.
    pub(crate) fn sent(&mut self, now: Nanos, plan: Plan) {
        let (len, again, fin) = match plan {
            Plan::Probe => {
                self.counters.window_probes += 1;
                return;
            }
            Plan::Again { at, len, .. } => (len as u64, Some(at), false),
            Plan::New { len, .. } => (len as u64, None, false),
            Plan::Fin { again, .. } => (1, again, true),
        };
        self.counters.segments += 1;
        self.last_sent = now;
        if let Some(Recovery::Fast(fast)) = &mut self.recovery {
            fast.out += len;
        }
        if let Some(at) = again {
            self.counters.resent += 1;
            self.records.resend(at, now);
        } else {
            let (start, end) = (self.next, self.next.plus(len));
            let fate = Fate::Flying;
            self.records.push(Record { start, end, sent: now, fate, resent: false, fin, run: 0 });
            self.next = end;
        }
        let first = again == Some(0);
        self.timers.sent(now, first, &self.rtt);
        self.arm_tail(now);
    }

    /// Checks the invariants, for tests.
    pub(crate) fn check(&self) {
        let flying: u64 =
            self.records.iter().filter(|r| r.fate == Fate::Flying).map(Record::len).sum();
        assert_eq!(flying, self.records.flying());
        assert!(self.una <= self.next);
        let mut at = self.una;
        for record in self.records.iter() {
            assert!(record.start == at && record.end > at, "a gap in the scoreboard");
            at = record.end;
        }
        assert_eq!(at, self.next);
        self.records.check();
    }
}

impl Plan {
    /// Returns the number of positions that the segment takes.
    const fn len(self) -> u64 {
        match self {
            Self::Again { len, .. } | Self::New { len, .. } => len as u64,
            Self::Fin { .. } => 1,
            Self::Probe => 0,
        }
    }
}
