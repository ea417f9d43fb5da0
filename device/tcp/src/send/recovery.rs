//! Acknowledgements, the losses that they show, and loss recovery.

use arrayvec::ArrayVec;
use vrnic_packet::Nanos;

use super::Sender;
use super::records::{Fate, Record};
use crate::clock::Clock;
use crate::congestion::Acknowledged;
use crate::seq::StreamPos;
use crate::wire::SackBlock;

/// Number of duplicate acknowledgements that indicate a loss, without SACK (RFC 5681, 3.2).
const REPEATED: u64 = 3;

/// An acknowledgement of bytes that were sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack<'a> {
    pub(crate) now: Nanos,
    /// The first byte that the peer expects; not before the first unacknowledged byte.
    pub(crate) at: StreamPos,
    /// The blocks that the peer has received, or has received twice.
    pub(crate) blocks: &'a [SackBlock],
    /// The clock of timestamps, and the timestamp that the segment echoes.
    pub(crate) echo: Option<(&'a Clock, u32)>,
    /// True if the segment has no data and does not change the window.
    pub(crate) bare: bool,
}

/// A recovery. It lasts until all bytes that were sent before it are acknowledged.
#[derive(Debug)]
pub(super) enum Recovery {
    /// A fast recovery, after a loss that acknowledgements have shown.
    Fast(Fast),
    /// A recovery after a time-out.
    Timeout { point: StreamPos },
}

/// Proportional rate reduction (RFC 6937).
#[derive(Debug)]
pub(super) struct Fast {
    point: StreamPos,
    /// Number of bytes in flight at its start.
    flight: u64,
    delivered: u64,
    pub(super) out: u64,
    pub(super) window: u64,
}

/// The changes that an acknowledgement has made.
#[derive(Default)]
struct News {
    bytes: u64,
    records: u64,
    trip: Option<std::time::Duration>,
    duplicate: Option<StreamPos>,
}

impl Sender {
    /// Processes an acknowledgement.
    pub(crate) fn acknowledge(&mut self, ack: &Ack<'_>) {
        let flight = self.pipe();
        let advanced = ack.at > self.una;
        self.una = self.una.max(ack.at);
        let mut news = News::default();
        let mut resent = false;
        while let Some(record) = self.records.take_acknowledged(self.una) {
            resent |= record.resent;
            if record.fate != Fate::Sacked {
                self.delivered(ack, &record, &mut news);
            }
        }
        // Segments after a retransmitted one were delayed by it, so they are no measurement.
        news.trip = news.trip.filter(|_| !resent);
        if self.sack {
            self.selective(ack, &mut news);
        } else {
            self.cumulative(ack, advanced, &news);
        }
        if let Some(trip) = news.trip {
            self.rtt.sample(ack.now, trip);
        }
        if advanced {
            self.rtt.restart();
            (self.timers.retries, self.timers.waiting) = (0, Some(ack.now));
        }
        self.timers.answered(ack.now);
        self.rescued &= !advanced && news.bytes == 0;
        self.detect(ack.now);
        self.end_tail_probe(ack, flight, &news);
        self.recover(ack.now, flight, news.bytes);
        if self.records.is_empty() {
            self.timers.idle();
        } else {
            if advanced {
                self.timers.retransmit = Some(ack.now.plus(self.rtt.timeout()));
            }
            self.arm_tail(ack.now);
        }
    }

    fn delivered(&mut self, ack: &Ack<'_>, record: &Record, news: &mut News) {
        let original =
            ack.echo.is_some_and(|(clock, echo)| clock.echoes_earlier(echo, record.sent));
        news.bytes += record.len();
        news.records += 1;
        let trip = self.rack.delivered(ack.now, record, &self.rtt, original);
        news.trip = trip.or(news.trip);
    }

    /// Marks the segments that the peer has out of order (RFC 2018; RFC 6675, 3). Blocks outside of
    /// the unacknowledged bytes have no effect, or report duplicates (RFC 2883).
    fn selective(&mut self, ack: &Ack<'_>, news: &mut News) {
        let (origin, una, next) = (self.origin, self.una, self.next);
        let range = |block: &SackBlock| {
            let start = origin.position(block.start, una)?;
            let end = origin.position(block.end, una)?;
            (start < end && end <= next).then_some((start, end))
        };
        let first = ack.blocks.first().and_then(range);
        let second = ack.blocks.get(1).and_then(range);
        news.duplicate = first
            .filter(|(start, end)| {
                let inside = second.is_some_and(|(from, to)| from <= *start && *end <= to);
                *end <= una || inside
            })
            .map(|(_, end)| end);
        // In ascending order: the peer names the newest block first, and one acknowledgement may
        // report several new ones, which then have not overtaken each other.
        let mut blocks: ArrayVec<_, 4> = ack.blocks.iter().filter_map(range).take(4).collect();
        blocks.sort_unstable();
        for (start, end) in blocks.into_iter().filter(|(start, _)| *start >= una) {
            let within = self.records.within(start, end);
            let mut at = self.records.skip_sacked(within.start);
            while at < within.end {
                let Some(record) = self.records.get(at) else { break };
                self.records.visit();
                self.records.set(at, Fate::Sacked);
                self.delivered(ack, &record, news);
                at = self.records.skip_sacked(at + 1);
            }
        }
        if news.duplicate.is_some() {
            self.counters.duplicates += 1;
            self.rack.duplicate(self.una, self.next);
        }
    }

    /// Counts duplicate acknowledgements of a peer without SACK (RFC 5681, 3.2; RFC 6582, 3.2).
    fn cumulative(&mut self, ack: &Ack<'_>, advanced: bool, news: &News) {
        let fast = matches!(self.recovery, Some(Recovery::Fast(_)));
        if !advanced && ack.bare && !self.records.is_empty() {
            self.repeated += 1;
            if self.repeated == REPEATED && self.recovery.is_none() {
                self.records.set(0, Fate::Lost);
            }
        } else if advanced && fast {
            // The acknowledgement covers the retransmitted segment and others after it.
            self.repeated = self.repeated.saturating_sub(news.records.saturating_sub(1));
            let head =
                self.records.first().filter(|head| head.fate == Fate::Flying && !head.resent);
            if head.is_some() && !self.is_recovered() {
                self.records.set(0, Fate::Lost);
            }
        } else if advanced {
            self.repeated = 0;
        }
        self.repeated = self.repeated.min(self.records.len() as u64);
    }

    fn detect(&mut self, now: Nanos) {
        if self.sack {
            let recovering = self.recovery.is_some();
            self.timers.reorder = self.rack.detect(now, &mut self.records, &self.rtt, recovering);
        }
    }

    /// Handles the end of the reordering window.
    pub(super) fn reordered(&mut self, now: Nanos) {
        let flight = self.pipe();
        self.detect(now);
        self.recover(now, flight, 0);
        self.arm_tail(now);
    }

    /// Ends a tail loss probe when it is acknowledged. If no duplicate is reported, the probe has
    /// repaired a loss (RFC 8985, 7.4.2).
    fn end_tail_probe(&mut self, ack: &Ack<'_>, flight: u64, news: &News) {
        let Some((end, again)) = self.tail.filter(|(end, _)| self.una >= *end) else { return };
        let duplicate = news.duplicate == Some(end);
        if !again || duplicate {
            self.tail = None;
        } else if self.una > end {
            self.tail = None;
            // The last segments do not show how many the path can carry.
            self.congestion.reduce(flight.max(self.congestion.window()));
        } else if ack.bare && ack.blocks.is_empty() && news.bytes == 0 {
            self.tail = None;
        }
    }

    fn is_recovered(&self) -> bool {
        match &self.recovery {
            Some(Recovery::Fast(Fast { point, .. }) | Recovery::Timeout { point }) => {
                self.una >= *point
            }
            None => true,
        }
    }

    /// Starts and ends recoveries, and lets the window grow outside of them.
    fn recover(&mut self, now: Nanos, flight: u64, delivered: u64) {
        if self.recovery.is_some() && self.is_recovered() {
            self.recovery = None;
            self.repeated = 0;
            self.rack.recovered();
        }
        if self.recovery.is_none() && self.records.lost() > 0 {
            self.counters.recoveries += 1;
            self.congestion.reduce(flight);
            let fast =
                Fast { point: self.next, flight: flight.max(1), delivered: 0, out: 0, window: 0 };
            self.recovery = Some(Recovery::Fast(fast));
            (self.timers.tail, self.tail) = (None, None);
        }
        let pipe = self.pipe();
        let (mss, threshold) = (self.mss as u64, self.congestion.threshold());
        if let Some(Recovery::Fast(fast)) = &mut self.recovery {
            fast.reduce(pipe, threshold, delivered, mss);
        } else if delivered > 0 {
            let window = self.congestion.window();
            let slow_start = window < threshold;
            // A window that is not fully used does not grow (RFC 7661).
            if flight.saturating_add(mss) >= window || (slow_start && flight >= window / 2) {
                let rtt = self.rtt.smoothed().unwrap_or_default();
                self.congestion.acknowledged(Acknowledged { now, bytes: delivered, rtt });
            }
        }
    }
}

impl Fast {
    /// Reduces the window in proportion to the delivered bytes (RFC 6937, 3.1).
    fn reduce(&mut self, pipe: u64, threshold: u64, delivered: u64, mss: u64) {
        self.delivered = self.delivered.saturating_add(delivered);
        let more = if pipe > threshold {
            let share = self.delivered.saturating_mul(threshold).div_ceil(self.flight);
            share.saturating_sub(self.out)
        } else {
            let limit = self.delivered.saturating_sub(self.out).max(delivered).saturating_add(mss);
            limit.min(threshold - pipe)
        };
        let first = if self.out == 0 { mss } else { 0 };
        self.window = pipe.saturating_add(more.max(first));
    }
}
