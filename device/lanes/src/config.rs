//! What an operator sets for a port, and its checks.
//!
//! A configuration is checked as a whole: a [`Conflict`] says which class contradicts itself, and
//! how.

use std::time::Duration;

use thiserror::Error;
use vrnic_packet::Rate;

use crate::class::{Class, PerClass};

/// Probabilities are in millionths.
pub const CERTAIN: u32 = 1_000_000;
/// The largest frame that a port may be configured for, as headroom or limit.
pub const FRAME_MAX: u32 = 64 << 10;
/// The most bytes that the frames of a port may have together.
pub const BUDGET_MAX: u32 = 256 << 20;
/// The lowest speed of a link in bits per second. A PFC frame pauses for at most 3.4 s there.
pub const LINK_MIN: u64 = 10_000_000;
/// The longest time after which a watchdog must act.
pub const WATCHDOG_MAX: Duration = Duration::from_mins(1);

/// The turns of a class among those that have frames (IEEE 802.1Qaz).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The frames of the class leave before those of all lower classes of this kind, and before all
    /// classes that have a share.
    Strict,
    /// The class has this share in percent of what is left.
    Share(u8),
}

/// The depth of a queue at which frames are marked (random early detection, RED). A frame whose
/// sender does not react to marks is dropped in place of being marked (RFC 3168, section 5). In a
/// class with flow control, it stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Red {
    /// No frame is marked up to this number of bytes.
    pub min: u32,
    /// Every frame is marked above this number of bytes.
    pub max: u32,
    /// The probability of a mark at `max` bytes, in millionths. Below, it grows in proportion.
    pub probability: u32,
}

/// The bytes of a class that came by a port and are still in the switch, at which the station
/// behind the port is paused and goes on (PFC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// The station is paused above this number.
    pub xoff: u32,
    /// The station goes on at this number or below.
    pub xon: u32,
    /// The bytes above `xoff` for frames that are under way when the station is paused. Further
    /// ones are dropped.
    pub headroom: u32,
}

/// A guard against stations that pause a class for ever (a pause storm).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchdog {
    /// A class with frames is stuck if its pauses since its last frame left have this duration
    /// together: its frames are dropped, and its pauses are not obeyed any more.
    pub after: Duration,
    /// The class works again when the last pause has been over for this long.
    pub recovery: Duration,
}

/// What is set for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// The turns of the class.
    pub service: Service,
    /// The most bytes of memory that wait in the queue of the class. If the class has a flow
    /// control, nothing is lost while the limit has room for `xoff` and `headroom` of each port
    /// that frames come by.
    pub limit: u32,
    /// The marks of its frames, if they are marked.
    pub ecn: Option<Red>,
    /// The flow control of the class. A class without it drops what does not fit.
    pub pfc: Option<Thresholds>,
}

/// What is set for a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The rate at which frames leave, if there is a limit. A frame counts from its Ethernet header
    /// to its end, without preamble and checksum, as `tc` counts it.
    pub rate: Option<Rate>,
    /// The bytes that may leave at once after a pause.
    pub burst: u32,
    /// The speed of the link, by which the times in PFC frames are counted.
    pub link: Rate,
    /// The most bytes of memory that wait in all queues together. The limits of classes with flow
    /// control are kept free for them.
    pub budget: u32,
    /// What is set for each class.
    pub classes: PerClass<ClassConfig>,
    /// The guard against pause storms, if there is one.
    pub watchdog: Option<Watchdog>,
    /// The seed of the random numbers that decide on marks.
    pub seed: u64,
}

impl Default for Config {
    /// Returns the usual configuration of data centres: classes 6 and 7 are strict, class 3 (RoCE)
    /// has half of the rest, a flow control of its own, and marks by the thresholds of the DCQCN
    /// paper (Zhu et al., SIGCOMM 2015, figure 14: 5 KB, 200 KB, 1 %).
    fn default() -> Self {
        let shares = [28, 5, 5, 50, 5, 5];
        Self {
            rate: None,
            burst: 16 << 10,
            link: Rate::nearest(10_000_000_000),
            budget: 8 << 20,
            classes: PerClass::from_fn(|class| {
                let share = shares.get(usize::from(class.number()));
                let is_roce = class == Class::ROCE;
                ClassConfig {
                    service: share.map_or(Service::Strict, |share| Service::Share(*share)),
                    limit: if is_roce { 4 << 20 } else { 1 << 20 },
                    ecn: is_roce.then_some(Red {
                        min: 5_000,
                        max: 200_000,
                        probability: CERTAIN / 100,
                    }),
                    pfc: is_roce.then_some(Thresholds {
                        xoff: 256 << 10,
                        xon: 192 << 10,
                        headroom: 128 << 10,
                    }),
                }
            }),
            watchdog: Some(Watchdog {
                after: Duration::from_millis(200),
                recovery: Duration::from_millis(400),
            }),
            seed: 1,
        }
    }
}

/// The reason for which a configuration is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Conflict {
    /// The shares exceed the whole.
    #[error("the shares of the classes are {0} % together; they must not exceed 100 %")]
    Shares(u32),
    /// A class would never have its turn.
    #[error("class {0} has a share of 0 %; give it at least 1 %, or make it strict")]
    NoShare(u8),
    /// A queue has no room for a frame, or more than the port has.
    #[error(
        "class {0} has a limit of {1} bytes; it must be from 64 KiB to the budget of {2} bytes"
    )]
    Limit(u8, u32, u32),
    /// The budget is out of its bounds.
    #[error("the budget is {0} bytes; it must be from 64 KiB to 256 MiB")]
    Budget(u32),
    /// Classes with flow control leave no room for others.
    #[error(
        "the limits of classes with flow control are {0} bytes together; the budget of {1} bytes must have 64 KiB more"
    )]
    Reserved(u64, u32),
    /// A PFC frame would pause for too long.
    #[error("the link has {0} bits per second; it must have 10M at least")]
    Link(Rate),
    /// The bucket of the rate is out of its bounds.
    #[error("the burst is {0} bytes; it must not exceed the budget of {1} bytes")]
    Burst(u32, u32),
    /// The thresholds of marks are in the wrong order, or cannot be reached.
    #[error(
        "class {0} marks frames from {1} to {2} bytes; give a smaller number first, and none above the limit of {3} bytes"
    )]
    Marks(u8, u32, u32, u32),
    /// A probability is none.
    #[error(
        "class {0} marks frames with a probability of {1} millionths; it must be from 1 to 1000000"
    )]
    Probability(u8, u32),
    /// A station that was paused would never go on, or not be paused.
    #[error(
        "class {0} pauses above {1} bytes (xoff) and goes on at {2} bytes (xon); xon must be below xoff, and xoff above 0"
    )]
    Pauses(u8, u32, u32),
    /// There is no room for frames that are under way.
    #[error(
        "class {0} has a headroom of {1} bytes; it must have room for one frame (64 KiB) at least"
    )]
    Headroom(u8, u32),
    /// The queue drops frames before the flow control starts.
    #[error(
        "class {0} pauses above {1} bytes and has a headroom of {2} bytes; together they must not exceed the limit of {3} bytes"
    )]
    PausesTooLate(u8, u32, u32, u32),
    /// The watchdog would act at once, or never.
    #[error("the watchdog's times are {0:?} and {1:?}; both must be from 1 ms to 1 min")]
    Watchdog(Duration, Duration),
}

impl Config {
    /// Checks the configuration as a whole.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), Conflict> {
        if !(FRAME_MAX..=BUDGET_MAX).contains(&self.budget) {
            return Err(Conflict::Budget(self.budget));
        }
        if self.link.bits_per_second() < LINK_MIN {
            return Err(Conflict::Link(self.link));
        }
        if self.burst > self.budget {
            return Err(Conflict::Burst(self.burst, self.budget));
        }
        let mut sum = 0;
        for (class, config) in self.classes.iter() {
            match config.service {
                Service::Strict => {}
                Service::Share(0) => return Err(Conflict::NoShare(class.number())),
                Service::Share(share) => sum += u32::from(share),
            }
            config.check(class.number(), self.budget)?;
        }
        if sum > 100 {
            return Err(Conflict::Shares(sum));
        }
        let reserved = self.reserved();
        if reserved + u64::from(FRAME_MAX) > u64::from(self.budget) {
            return Err(Conflict::Reserved(reserved, self.budget));
        }
        let times = Duration::from_millis(1)..=WATCHDOG_MAX;
        match self.watchdog {
            Some(Watchdog { after, recovery })
                if !times.contains(&after) || !times.contains(&recovery) =>
            {
                Err(Conflict::Watchdog(after, recovery))
            }
            _ => Ok(()),
        }
    }

    /// Returns the bytes that are kept for classes with flow control.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        let lossless = self.classes.iter().filter(|(_, config)| config.pfc.is_some());
        lossless.map(|(_, config)| u64::from(config.limit)).sum()
    }
}

impl ClassConfig {
    fn check(&self, class: u8, budget: u32) -> Result<(), Conflict> {
        let limit = self.limit;
        if !(FRAME_MAX..=budget).contains(&limit) {
            return Err(Conflict::Limit(class, limit, budget));
        }
        if let Some(Red { min, max, probability }) = self.ecn {
            if min > max || max > limit {
                return Err(Conflict::Marks(class, min, max, limit));
            }
            if !(1..=CERTAIN).contains(&probability) {
                return Err(Conflict::Probability(class, probability));
            }
        }
        if let Some(Thresholds { xoff, xon, headroom }) = self.pfc {
            if xon >= xoff {
                return Err(Conflict::Pauses(class, xoff, xon));
            }
            if headroom < FRAME_MAX {
                return Err(Conflict::Headroom(class, headroom));
            }
            if xoff.saturating_add(headroom) > limit {
                return Err(Conflict::PausesTooLate(class, xoff, headroom, limit));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Config)) -> Result<(), Conflict> {
        let mut config = Config::default();
        change(&mut config);
        config.check()
    }

    fn roce(change: impl FnOnce(&mut ClassConfig)) -> Result<(), Conflict> {
        with(|config| change(&mut config.classes[Class::ROCE]))
    }

    #[test]
    fn contradictions_are_refused_with_the_class() {
        assert_eq!(with(|_| ()), Ok(()));
        assert_eq!(with(|config| config.budget = 0), Err(Conflict::Budget(0)));
        let reserved = Err(Conflict::Reserved(4 << 20, 4 << 20));
        assert_eq!(with(|config| config.budget = 4 << 20), reserved);
        let slow = Rate::nearest(LINK_MIN - 1);
        assert_eq!(with(|config| config.link = slow), Err(Conflict::Link(slow)));
        assert!(matches!(with(|config| config.burst = u32::MAX), Err(Conflict::Burst(..))));
        assert_eq!(roce(|class| class.service = Service::Share(0)), Err(Conflict::NoShare(3)));
        assert_eq!(roce(|class| class.service = Service::Share(53)), Err(Conflict::Shares(101)));
        assert_eq!(roce(|class| class.service = Service::Strict), Ok(()));
        for limit in [0, FRAME_MAX - 1, u32::MAX] {
            assert!(matches!(roce(|class| class.limit = limit), Err(Conflict::Limit(3, ..))));
        }
        for (min, max) in [(2, 1), (0, u32::MAX)] {
            let red = Red { min, max, probability: 1 };
            assert!(matches!(roce(|class| class.ecn = Some(red)), Err(Conflict::Marks(3, ..))));
        }
        for probability in [0, CERTAIN + 1] {
            let red = Red { min: 1, max: 1, probability };
            let refused = Err(Conflict::Probability(3, probability));
            assert_eq!(roce(|class| class.ecn = Some(red)), refused);
        }
        let pfc = |xoff, xon, headroom| {
            roce(|class| class.pfc = Some(Thresholds { xoff, xon, headroom }))
        };
        assert_eq!(pfc(1, 1, FRAME_MAX), Err(Conflict::Pauses(3, 1, 1)));
        assert_eq!(pfc(0, 0, FRAME_MAX), Err(Conflict::Pauses(3, 0, 0)));
        assert_eq!(pfc(2, 1, 9000), Err(Conflict::Headroom(3, 9000)));
        assert!(matches!(pfc(4 << 20, 1, FRAME_MAX), Err(Conflict::PausesTooLate(3, ..))));
        for (after, recovery) in [(0, 1), (1, 0), (60_001, 1)] {
            let [after, recovery] = [after, recovery].map(Duration::from_millis);
            let watchdog = Some(Watchdog { after, recovery });
            let refused = Err(Conflict::Watchdog(after, recovery));
            assert_eq!(with(|config| config.watchdog = watchdog), refused);
        }
        let text = Conflict::Pauses(3, 1, 2).to_string();
        assert!(text.starts_with("class 3 pauses above 1 bytes (xoff)"), "{text}");
    }
}
