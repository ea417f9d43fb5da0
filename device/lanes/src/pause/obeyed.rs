//! Pauses of classes by the station behind a port, and the watchdog for pauses that never end.

use std::time::Duration;

use vrnic_packet::Nanos;

use crate::config::Watchdog;

/// A pause of a class.
#[derive(Clone, Copy, Debug)]
struct Pause {
    since: Nanos,
    until: Nanos,
}

/// What the watchdog has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    Stuck,
    Recovered,
}

/// The pauses of one class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Obeyed {
    pause: Option<Pause>,
    /// The time of all pauses before the present one.
    total: Duration,
    /// The time of all pauses when a frame of the class left, or when it was first seen to have
    /// frames, if it has some.
    mark: Option<Duration>,
    /// The time at which the last pause is over, if the class is stuck.
    stuck: Option<Nanos>,
}

impl Obeyed {
    /// Obeys a PFC frame: pauses the class for a time, or lets it go on if the time is zero.
    pub(crate) fn obey(&mut self, now: Nanos, time: Duration) {
        self.settle(now);
        if let Some(over) = &mut self.stuck {
            let until = now.plus(time);
            *over = if time.is_zero() { (*over).min(now) } else { (*over).max(until) };
            return;
        }
        let since = self.pause.map_or(now, |pause| pause.since);
        let until = now.plus(time);
        if until > now {
            self.pause = Some(Pause { since, until });
        } else {
            self.end(now);
        }
    }

    /// Ends all pauses, because the link of the station that asked for them is down.
    pub(crate) fn forget(&mut self, now: Nanos) {
        self.settle(now);
        self.end(now);
        (self.mark, self.stuck) = (None, None);
    }

    /// Returns the time at which the class may send, or `None` if it may send now.
    pub(crate) fn waits_until(&mut self, now: Nanos) -> Option<Nanos> {
        self.settle(now);
        self.pause.map(|pause| pause.until)
    }

    /// Returns whether the class is stuck.
    pub(crate) const fn is_stuck(&self) -> bool {
        self.stuck.is_some()
    }

    /// Returns the time of all pauses.
    pub(crate) fn total(&self, now: Nanos) -> Duration {
        let present = self.pause.map_or(Duration::ZERO, |it| now.min(it.until).since(it.since));
        self.total + present
    }

    /// Records that a frame of the class has left.
    pub(crate) fn sent(&mut self, now: Nanos) {
        self.mark = Some(self.total(now));
    }

    /// Looks for pauses that last too long. `waits` is true if the class has frames.
    pub(crate) fn watch(&mut self, now: Nanos, dog: &Watchdog, waits: bool) -> Option<Finding> {
        if let Some(over) = self.stuck {
            let works = over.plus(dog.recovery) <= now;
            if works {
                self.stuck = None;
            }
            return works.then_some(Finding::Recovered);
        }
        self.settle(now);
        if !waits {
            self.mark = None;
            return None;
        }
        let total = self.total(now);
        let mark = *self.mark.get_or_insert(total);
        if total.saturating_sub(mark) < dog.after {
            return None;
        }
        self.mark = None;
        self.stuck = Some(self.pause.map_or(now, |pause| pause.until));
        self.end(now);
        Some(Finding::Stuck)
    }

    /// Returns the time at which [`Self::watch`] must be called again.
    pub(crate) fn watch_at(&self, dog: &Watchdog) -> Option<Nanos> {
        let stuck = self.stuck.map(|over| over.plus(dog.recovery));
        let at = self
            .mark
            .zip(self.pause)
            .map(|(mark, pause)| pause.since.plus((mark + dog.after).saturating_sub(self.total)));
        stuck.or(at)
    }

    /// Ends a pause whose time is over.
    fn settle(&mut self, now: Nanos) {
        if let Some(Pause { until, .. }) = self.pause.filter(|pause| pause.until <= now) {
            self.end(until);
        }
    }

    fn end(&mut self, at: Nanos) {
        if let Some(pause) = self.pause.take() {
            self.total += at.since(pause.since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;
    const DOG: Watchdog =
        Watchdog { after: Duration::from_millis(10), recovery: Duration::from_millis(20) };

    fn at(millis: u64) -> Nanos {
        Nanos(millis * MILLI)
    }

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn pauses_end_by_their_time_or_by_a_frame_and_are_summed_up() {
        let mut obeyed = Obeyed::default();
        obeyed.obey(at(1), millis(3));
        assert_eq!(obeyed.waits_until(at(2)), Some(at(4)));
        obeyed.obey(at(3), millis(3));
        assert_eq!((obeyed.waits_until(at(5)), obeyed.total(at(5))), (Some(at(6)), millis(4)));
        assert_eq!((obeyed.waits_until(at(9)), obeyed.total(at(9))), (None, millis(5)));
        obeyed.obey(at(10), millis(9));
        obeyed.obey(at(12), Duration::ZERO);
        assert_eq!((obeyed.waits_until(at(12)), obeyed.total(at(20))), (None, millis(7)));
    }

    #[test]
    fn a_pause_that_never_ends_is_not_obeyed_any_more() {
        let mut obeyed = Obeyed::default();
        for time in 0..10 {
            obeyed.obey(at(time), millis(3));
            assert_eq!(obeyed.watch(at(time), &DOG, true), None);
        }
        assert_eq!(obeyed.watch_at(&DOG), Some(at(10)));
        obeyed.obey(at(10), millis(3));
        assert_eq!(obeyed.watch(at(10), &DOG, true), Some(Finding::Stuck));
        assert!(obeyed.is_stuck() && obeyed.waits_until(at(10)).is_none());
        obeyed.obey(at(15), millis(30));
        assert_eq!(obeyed.waits_until(at(15)), None);
        assert_eq!(obeyed.watch(at(64), &DOG, true), None, "the pause ends at 45");
        assert_eq!(obeyed.watch_at(&DOG), Some(at(65)));
        assert_eq!(obeyed.watch(at(65), &DOG, true), Some(Finding::Recovered));
        obeyed.obey(at(66), millis(3));
        assert_eq!(obeyed.waits_until(at(66)), Some(at(69)));
    }

    #[test]
    fn a_station_that_lets_the_class_go_on_or_has_no_link_ends_its_pauses() {
        let stuck = || {
            let mut obeyed = Obeyed::default();
            obeyed.obey(at(0), millis(100));
            assert_eq!(obeyed.watch(at(0), &DOG, true), None);
            assert_eq!(obeyed.watch(at(10), &DOG, true), Some(Finding::Stuck));
            obeyed
        };
        let mut obeyed = stuck();
        obeyed.obey(at(15), Duration::ZERO);
        assert_eq!(obeyed.watch(at(34), &DOG, true), None);
        assert_eq!(obeyed.watch(at(35), &DOG, true), Some(Finding::Recovered));
        let mut obeyed = stuck();
        obeyed.forget(at(11));
        assert!(!obeyed.is_stuck());
        obeyed.obey(at(12), millis(5));
        obeyed.forget(at(14));
        assert_eq!((obeyed.waits_until(at(14)), obeyed.total(at(20))), (None, millis(12)));
    }

    #[test]
    fn a_class_that_sends_now_and_then_or_has_nothing_to_send_is_not_stuck() {
        let mut obeyed = Obeyed::default();
        for time in 0..100 {
            obeyed.obey(at(time), if time % 9 == 0 { Duration::ZERO } else { millis(3) });
            if time % 9 == 0 {
                obeyed.sent(at(time));
            }
            assert_eq!(obeyed.watch(at(time), &DOG, true), None);
        }
        for time in 100..200 {
            obeyed.obey(at(time), millis(3));
            assert_eq!(obeyed.watch(at(time), &DOG, false), None);
        }
    }
}
