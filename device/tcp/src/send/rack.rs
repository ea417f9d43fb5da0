//! Time-based loss detection: RACK (RFC 8985, 6).

use std::time::Duration;

use vrnic_packet::Nanos;

use super::records::{Fate, Record, Records};
use super::rtt::Rtt;
use crate::seq::StreamPos;

/// Number of segments that the peer has out of order, from which on the window for reordering is
/// zero (RFC 8985, 6.2).
const DUPLICATES: usize = 3;
/// Number of recoveries after which an enlarged reordering window is reset.
const PERSIST: u8 = 16;

/// The state of RACK.
#[derive(Debug, Default)]
pub(crate) struct Rack {
    /// The delivered segment that was sent last: its time of sending and its end.
    newest: Option<(Nanos, StreamPos)>,
    rtt: Duration,
    /// The highest end of a delivered segment.
    forward: StreamPos,
    reordering: bool,
    /// The reordering window, in quarters of the minimum round trip time.
    quarters: u32,
    persist: u8,
    /// Reports of duplicates before this position belong to a round trip that has been counted.
    round: StreamPos,
    /// The last search for lost segments.
    search: Option<Search>,
}

/// A search for lost segments, whose result is the same until something changes.
#[derive(Clone, Copy, Debug)]
struct Search {
    newest: (Nanos, StreamPos),
    wait: Duration,
    /// [`Records::version`].
    version: u64,
    /// The first time at which a segment has to be marked.
    first: Option<Nanos>,
    /// The last such time.
    last: Option<Nanos>,
}

impl Rack {
    /// Records that a segment has been delivered. `original` is true if the acknowledgement was for
    /// an earlier transmission than the last one. Returns the round trip time if it is a valid
    /// measurement.
    pub(crate) fn delivered(
        &mut self,
        now: Nanos,
        record: &Record,
        rtt: &Rtt,
        original: bool,
    ) -> Option<Duration> {
        if !record.resent && record.end < self.forward {
            self.reordering = true;
        }
        self.forward = self.forward.max(record.end);
        let trip = now.since(record.sent);
        if record.resent && (original || rtt.shortest().is_some_and(|shortest| trip < shortest)) {
            return None;
        }
        if self.newest.is_none_or(|newest| newest <= (record.sent, record.end)) {
            self.newest = Some((record.sent, record.end));
            self.rtt = trip;
        }
        (!record.resent).then_some(trip)
    }

    /// Records a reported duplicate: a segment was sent again although it was not lost.
    pub(crate) fn duplicate(&mut self, una: StreamPos, next: StreamPos) {
        if una >= self.round {
            self.round = next;
            self.quarters = self.quarters.saturating_add(1).min(u32::from(PERSIST));
            self.persist = PERSIST;
            self.reordering = true;
        }
    }

    /// Records that a recovery has ended.
    pub(crate) fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.quarters = 0;
        }
    }

    /// Returns the reordering window.
    fn window(&self, rtt: &Rtt, sacked: usize, recovering: bool) -> Duration {
        if !self.reordering && (recovering || sacked >= DUPLICATES) {
            return Duration::ZERO;
        }
        let window = rtt.shortest().unwrap_or_default() * (self.quarters + 1) / 4;
        window.min(rtt.smoothed().unwrap_or(window))
    }

    /// Marks segments as lost that were sent long enough before a delivered one. Returns the time
    /// at which more of them may have to be marked.
    pub(crate) fn detect(
        &mut self,
        now: Nanos,
        records: &mut Records,
        rtt: &Rtt,
        recovering: bool,
    ) -> Option<Nanos> {
        let (newest, wait) =
            (self.newest?, self.rtt + self.window(rtt, records.sacked(), recovering));
        let unchanged = self.search.filter(|search| {
            let same =
                (search.newest, search.wait, search.version) == (newest, wait, records.version());
            same && search.first.is_none_or(|first| now < first)
        });
        if let Some(search) = unchanged {
            return search.last;
        }
        let (mut first, mut last): (Option<Nanos>, Option<Nanos>) = (None, None);
        let mut flying = records.len() - records.lost() - records.sacked();
        let mut next = 0;
        while flying > 0 {
            let at = records.skip_sacked(next);
            let Some(record) = records.get(at) else { break };
            records.visit();
            next = at + 1;
            if record.fate != Fate::Flying {
                continue;
            }
            flying -= 1;
            if (record.sent, record.end) >= newest {
                // Without retransmissions, the times of sending are in ascending order.
                if !record.resent && record.sent > newest.0 {
                    break;
                }
                continue;
            }
            let due = record.sent.plus(wait);
            if due <= now {
                records.set(at, Fate::Lost);
            } else {
                first = Some(first.map_or(due, |first| first.min(due)));
                last = Some(last.map_or(due, |last| last.max(due)));
            }
        }
        let version = records.version();
        self.search = Some(Search { newest, wait, version, first, last });
        last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Scoreboard {
        now: Nanos,
        rtt: Rtt,
        rack: Rack,
        records: Records,
        end: StreamPos,
    }

    impl Scoreboard {
        fn deliver(&mut self, record: &Record) {
            let trip = self.rack.delivered(self.now, record, &self.rtt, false);
            if let Some(trip) = trip {
                self.rtt.sample(self.now, trip);
            }
        }

        /// Makes a change of this kind at an index, some nanoseconds after the one before.
        fn step(&mut self, kind: u8, at: u16, pause: u16) {
            self.now = Nanos(self.now.0 + u64::from(pause));
            let at = usize::from(at) % self.records.len().max(1);
            match kind {
                0..=3 => {
                    let start = self.end;
                    self.end = start.plus(1000);
                    let (sent, fate) = (self.now, Fate::Flying);
                    let (resent, fin) = (false, false);
                    let record = Record { start, end: self.end, sent, fate, resent, fin, run: 0 };
                    self.records.push(record);
                }
                4..=6 => {
                    let record = self.records.get(at).filter(|r| r.fate != Fate::Sacked);
                    if let Some(record) = record {
                        self.records.set(at, Fate::Sacked);
                        self.deliver(&record);
                    }
                }
                7..=9 => {
                    if let Some(at) = self.records.first_lost() {
                        self.records.split(at, 600);
                        self.records.resend(at, self.now);
                    }
                }
                10 => {
                    let end = self.records.first().map_or(self.end, |record| record.end);
                    if let Some(record) = self.records.take_acknowledged(end)
                        && record.fate != Fate::Sacked
                    {
                        self.deliver(&record);
                    }
                }
                11 if at == 0 => self.records.set_all(Fate::Sacked, Fate::Lost),
                _ => {}
            }
        }

        /// Returns the fates and the time that a search among all records finds.
        fn plain(&self, recovering: bool) -> (Vec<Fate>, Option<Nanos>) {
            let mut fates: Vec<_> = self.records.iter().map(|record| record.fate).collect();
            let Some(newest) = self.rack.newest else { return (fates, None) };
            let window = self.rack.window(&self.rtt, self.records.sacked(), recovering);
            let (wait, mut last) = (self.rack.rtt + window, None);
            for (record, fate) in self.records.iter().zip(&mut fates) {
                let due = record.sent.plus(wait);
                if *fate == Fate::Flying && (record.sent, record.end) < newest {
                    if due <= self.now {
                        *fate = Fate::Lost;
                    } else {
                        last = last.max(Some(due));
                    }
                }
            }
            (fates, last)
        }
    }

    proptest! {
        #[test]
        fn a_search_finds_what_a_scan_of_all_records_finds(
            steps in proptest::collection::vec((0_u8..14, any::<u16>(), 1_u16..2000), 1..400),
        ) {
            let mut it = Scoreboard {
                now: Nanos(0),
                rtt: Rtt::new(None, Duration::from_millis(1)),
                rack: Rack::default(),
                records: Records::new(2048),
                end: StreamPos(0),
            };
            for (kind, at, pause) in steps {
                it.step(kind, at, pause);
                let recovering = it.records.lost() > 0;
                let expected = it.plain(recovering);
                let last = it.rack.detect(it.now, &mut it.records, &it.rtt, recovering);
                let fates = it.records.iter().map(|record| record.fate).collect();
                prop_assert_eq!((fates, last), expected);
                let lost = it.records.iter().position(|record| record.fate == Fate::Lost);
                prop_assert_eq!(it.records.first_lost(), lost);
                it.records.check();
            }
        }
    }
}
