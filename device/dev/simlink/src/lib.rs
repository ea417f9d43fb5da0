//! A simulated link for tests of transports: one direction, virtual time, seeded faults.
//!
//! All events follow from the seed and from the frames that were sent before, so each run can be
//! repeated. Faults come at random ([`Faults`]), or from a rule of the test ([`Link::rule`]).
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;

/// Chances of faults, each in a million frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The frame is lost.
    pub drop: u32,
    /// The frame arrives twice.
    pub duplicate: u32,
    /// The frame is delayed by up to ten times the latency, so that later ones overtake it.
    pub delay: u32,
    /// One of its bits is flipped.
    pub corrupt: u32,
    /// The end of the frame is cut off.
    pub truncate: u32,
}

impl Faults {
    /// Returns all faults with the same chance.
    #[must_use]
    pub const fn all(chance: u32) -> Self {
        Self { drop: chance, duplicate: chance, delay: chance, corrupt: chance, truncate: chance }
    }
}

/// The effect of a rule on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The frame arrives.
    Pass,
    /// The frame is lost.
    Drop,
    /// The frame arrives twice.
    Duplicate,
    /// The frame arrives this many nanoseconds later than it would.
    Delay(u64),
}

/// Decides on a frame.
type Rule = Box<dyn FnMut(&[u8]) -> Fate>;

/// One direction of a link.
pub struct Link {
    rng: fastrand::Rng,
    faults: Faults,
    rule: Rule,
    latency: u64,
    picoseconds_per_byte: u64,
    /// The time at which the last bit of the last frame has been sent.
    busy_until: u64,
    /// Frames under way, by the time of their arrival and the order in which they were sent.
    under_way: BTreeMap<(u64, u64), Vec<u8>>,
    sent: u64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("faults", &self.faults).field("sent", &self.sent).finish()
    }
}

impl Link {
    /// Makes a link with a latency in nanoseconds and a rate in gigabits per second, without
    /// faults.
    ///
    /// # Panics
    /// If the rate is zero.
    #[must_use]
    pub fn new(seed: u64, latency: u64, gigabits: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            faults: Faults::default(),
            rule: Box::new(|_| Fate::Pass),
            latency,
            picoseconds_per_byte: 8000 / gigabits,
            busy_until: 0,
            under_way: BTreeMap::new(),
            sent: 0,
        }
    }

    /// Sets the chances of faults.
    pub fn faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Sets a rule that decides on each frame before the random faults do.
    pub fn rule(&mut self, rule: impl FnMut(&[u8]) -> Fate + 'static) {
        self.rule = Box::new(rule);
    }

    /// Sends a frame; `now` is in nanoseconds.
    pub fn send(&mut self, now: u64, frame: &[u8]) {
        let time = (frame.len() as u64 * self.picoseconds_per_byte).div_ceil(1000);
        self.busy_until = self.busy_until.max(now) + time;
        let arrival = self.busy_until + self.latency;
        match (self.rule)(frame) {
            Fate::Drop => {}
            Fate::Pass => self.by_chance(arrival, frame),
            Fate::Delay(more) => self.by_chance(arrival + more, frame),
            Fate::Duplicate => {
                self.by_chance(arrival, frame);
                self.by_chance(arrival, frame);
            }
        }
    }

    fn by_chance(&mut self, arrival: u64, frame: &[u8]) {
        let faults = self.faults;
        if self.happens(faults.drop) {
            return;
        }
        let copies = if self.happens(faults.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let mut frame = frame.to_vec();
            if self.happens(faults.corrupt) && !frame.is_empty() {
                let at = self.rng.usize(..frame.len());
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= 1 << self.rng.u8(..8);
                }
            }
            if self.happens(faults.truncate) {
                frame.truncate(self.rng.usize(..=frame.len()));
            }
            let delay = if self.happens(faults.delay) {
                self.rng.u64(..10 * self.latency.max(1))
            } else {
                0
            };
            self.under_way.insert((arrival + delay, self.sent), frame);
            self.sent += 1;
        }
    }

    fn happens(&mut self, chance: u32) -> bool {
        chance > 0 && self.rng.u32(..1_000_000) < chance
    }

    /// Takes the next frame that has arrived.
    pub fn receive(&mut self, now: u64) -> Option<Vec<u8>> {
        let first = self.under_way.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Returns the time at which the next frame arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<u64> {
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seed: u64, faults: Faults) -> Vec<(u64, Vec<u8>)> {
        let mut link = Link::new(seed, 1000, 8);
        link.faults(faults);
        for frame in 0..100_u8 {
            link.send(0, &[frame; 10]);
        }
        let mut arrived = Vec::new();
        while let Some(at) = link.next_arrival() {
            while let Some(frame) = link.receive(at) {
                arrived.push((at, frame));
            }
        }
        arrived
    }

    #[test]
    fn frames_arrive_in_order_at_the_rate_of_the_link() {
        let arrived = run(1, Faults::default());
        assert_eq!(arrived.len(), 100);
        for (index, (at, frame)) in arrived.iter().enumerate() {
            assert_eq!(*at, 1000 + 10 * (index as u64 + 1));
            assert_eq!(frame[..], [index as u8; 10]);
        }
    }

    #[test]
    fn faults_happen_and_are_repeated_by_the_seed() {
        let faults = Faults::all(100_000);
        let arrived = run(7, faults);
        assert_eq!(arrived, run(7, faults));
        assert_ne!(arrived, run(8, faults));
        let firsts: Vec<u8> =
            arrived.iter().filter_map(|(_, frame)| frame.first().copied()).collect();
        assert!(!firsts.is_sorted(), "some were overtaken");
        assert!(arrived.iter().any(|(_, frame)| frame.len() < 10));
        let lossy = run(7, Faults { drop: 100_000, ..Faults::default() });
        assert!((70..100).contains(&lossy.len()), "{}", lossy.len());
    }

    #[test]
    fn a_rule_decides_first() {
        let mut link = Link::new(1, 1000, 8);
        let mut count = 0;
        link.rule(move |_| {
            count += 1;
            [Fate::Drop, Fate::Duplicate, Fate::Delay(5000)][count - 1]
        });
        for frame in 0..3 {
            link.send(0, &[frame]);
        }
        let mut arrived = Vec::new();
        while let Some(at) = link.next_arrival() {
            arrived.push((at, link.receive(at).expect("a frame")[0]));
        }
        assert_eq!(arrived, [(1002, 1), (1002, 1), (6003, 2)]);
    }
}
