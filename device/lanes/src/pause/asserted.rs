//! Pauses of the station behind a port: a class is paused while too many of the bytes that came by
//! the port are still in the switch.

use std::time::Duration;

use vrnic_packet::{Nanos, Rate};

use super::frame::duration;
use crate::class::{Class, PerClass};
use crate::config::Thresholds;

/// The time in PFC frames that pause a class: the longest one.
const TIME: u16 = u16::MAX;

/// What came of a class by a port and is still in the switch.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    bytes: u64,
    /// True if the station was paused, and not let go on.
    paused: bool,
    /// True if the station has to be told of a change.
    due: bool,
}

#[derive(Debug)]
pub(crate) struct Asserted {
    thresholds: PerClass<Option<Thresholds>>,
    held: PerClass<Held>,
    /// The time at which the station is told again, if it is paused.
    repeat_at: Option<Nanos>,
    period: Duration,
    /// The time after which a station that may not have got a frame is told again.
    retry: Duration,
    /// The time at which the station was told last.
    told_at: Nanos,
    any_due: bool,
}

impl Asserted {
    pub(crate) fn new(thresholds: PerClass<Option<Thresholds>>, link: Rate) -> Self {
        Self {
            held: PerClass::default(),
            repeat_at: None,
            // The pause of the frame before is not over yet.
            period: duration(TIME / 2, link),
            retry: link.time(least_headroom(&thresholds).into()),
            told_at: Nanos::default(),
            any_due: false,
            thresholds,
        }
    }

    /// Returns the bytes of a class that are in the switch.
    pub(crate) fn bytes(&self, class: Class) -> u64 {
        self.held[class].bytes
    }

    /// Counts a frame that has arrived. Returns false if there is no room for it, so that it must
    /// be dropped.
    pub(crate) fn arrived(&mut self, class: Class, bytes: u32) -> bool {
        let held = &mut self.held[class];
        let Some(Thresholds { xoff, headroom, .. }) = self.thresholds[class] else {
            held.bytes = held.bytes.saturating_add(bytes.into());
            return true;
        };
        let after = held.bytes.saturating_add(bytes.into());
        if after > u64::from(xoff) + u64::from(headroom) {
            // The station does not know that it is paused.
            if held.paused {
                self.repeat_by(self.told_at.plus(self.retry));
            }
            return false;
        }
        held.bytes = after;
        if after > u64::from(xoff) && !held.paused {
            (held.paused, held.due) = (true, true);
            self.any_due = true;
        }
        true
    }

    /// Counts a frame that has left the switch, or was dropped in it.
    pub(crate) fn left(&mut self, class: Class, bytes: u32) {
        let held = &mut self.held[class];
        held.bytes = held.bytes.saturating_sub(bytes.into());
        let Some(Thresholds { xon, .. }) = self.thresholds[class] else { return };
        if held.paused && held.bytes <= u64::from(xon) {
            (held.paused, held.due) = (false, true);
            self.any_due = true;
        }
    }

    /// Returns the times of the PFC frame that is due now, if one is.
    pub(crate) fn take_due(&mut self, now: Nanos) -> Option<PerClass<Option<u16>>> {
        let repeats = self.repeat_at.is_some_and(|at| at <= now);
        if !self.any_due && !repeats {
            return None;
        }
        let times = PerClass::from_fn(|class| {
            let Held { paused, due, .. } = self.held[class];
            if paused { Some(TIME) } else { due.then_some(0) }
        });
        let mut any = false;
        for class in Class::ALL {
            self.held[class].due = false;
            any |= self.held[class].paused;
        }
        self.any_due = false;
        self.told_at = now;
        self.repeat_at = any.then(|| now.plus(self.period));
        Some(times)
    }

    /// Records that the station was not told of a class in the frame of [`Self::take_due`].
    pub(crate) fn not_told(&mut self, now: Nanos, class: Class) {
        self.held[class].due = true;
        self.repeat_by(now.plus(self.retry));
    }

    /// Lets the station be told again at a time at the latest.
    fn repeat_by(&mut self, at: Nanos) {
        self.repeat_at = Some(self.repeat_at.map_or(at, |present| present.min(at)));
    }

    /// Returns the time at which a PFC frame is due.
    pub(crate) fn due_at(&self, now: Nanos) -> Option<Nanos> {
        if self.any_due { Some(now) } else { self.repeat_at }
    }
}

/// Returns the smallest headroom of all classes.
fn least_headroom(thresholds: &PerClass<Option<Thresholds>>) -> u32 {
    thresholds.iter().filter_map(|(_, it)| Some((*it)?.headroom)).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: Class = Class::ROCE;

    fn asserted() -> Asserted {
        let thresholds = Thresholds { xoff: 3000, xon: 1000, headroom: 2000 };
        let of = |class| (class == CLASS).then_some(thresholds);
        Asserted::new(PerClass::from_fn(of), Rate::nearest(10_000_000_000))
    }

    fn told(asserted: &mut Asserted, now: u64) -> Option<Option<u16>> {
        asserted.take_due(Nanos(now)).map(|times| times[CLASS])
    }

    #[test]
    fn a_station_is_paused_above_one_threshold_and_goes_on_at_the_other() {
        let mut asserted = asserted();
        assert!((0..3).all(|_| asserted.arrived(CLASS, 1000)));
        assert_eq!(told(&mut asserted, 0), None);
        assert!(asserted.arrived(CLASS, 1000));
        assert_eq!(asserted.due_at(Nanos(5)), Some(Nanos(5)));
        assert_eq!(told(&mut asserted, 5), Some(Some(0xffff)));
        assert_eq!(told(&mut asserted, 6), None, "once");
        assert!(asserted.arrived(CLASS, 1000) && !asserted.arrived(CLASS, 1));
        let again = asserted.due_at(Nanos(6)).expect("a time");
        assert!(again < Nanos(5).plus(duration(TIME, Rate::nearest(10_000_000_000))));
        assert_eq!(told(&mut asserted, again.0), Some(Some(0xffff)), "before the pause ends");
        (0..3).for_each(|_| asserted.left(CLASS, 1000));
        assert_eq!(told(&mut asserted, again.0), None);
        asserted.left(CLASS, 1000);
        assert_eq!(told(&mut asserted, again.0), Some(Some(0)));
        assert_eq!(asserted.due_at(again), None);
    }

    #[test]
    fn a_station_that_does_not_obey_or_was_not_told_is_told_again_soon() {
        let mut asserted = asserted();
        assert!((0..5).all(|_| asserted.arrived(CLASS, 1000)));
        assert_eq!(told(&mut asserted, 100), Some(Some(0xffff)));
        // A headroom takes 1.6 µs.
        for _ in 0..9 {
            assert!(!asserted.arrived(CLASS, 1000), "there is no room");
            assert_eq!(asserted.due_at(Nanos(0)), Some(Nanos(1700)));
        }
        assert_eq!(told(&mut asserted, 1699), None);
        assert_eq!(told(&mut asserted, 1700), Some(Some(0xffff)));
        asserted.not_told(Nanos(1700), CLASS);
        assert_eq!(told(&mut asserted, 3299), None);
        assert_eq!(told(&mut asserted, 3300), Some(Some(0xffff)));
        (0..5).for_each(|_| asserted.left(CLASS, 1000));
        assert_eq!(told(&mut asserted, 3400), Some(Some(0)));
        asserted.not_told(Nanos(3400), CLASS);
        assert_eq!(told(&mut asserted, 5000), Some(Some(0)));
        assert_eq!(asserted.due_at(Nanos(5000)), None);
    }

    #[test]
    fn classes_without_flow_control_are_never_paused() {
        let mut asserted = asserted();
        let class = Class::of_bits(1);
        assert!((0..9).all(|_| asserted.arrived(class, u32::MAX)));
        assert_eq!(told(&mut asserted, 0), None);
        asserted.left(class, u32::MAX);
        assert_eq!(asserted.bytes(class), 8 * u64::from(u32::MAX));
    }
}
