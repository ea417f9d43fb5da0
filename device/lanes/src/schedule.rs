//! Whose turn it is: strict classes first, the others by their shares (IEEE 802.1Qaz), with
//! deficit round robin (Shreedhar and Varghese, SIGCOMM 1995).

use crate::class::{Class, ClassSet, PerClass};
use crate::config::{ClassConfig, Service};

/// The bytes that a class may send in a turn for each percent of its share.
const QUANTUM: i64 = 64;

#[derive(Debug)]
pub(crate) struct Schedule {
    strict: ClassSet,
    /// The classes with shares, each with its bytes in a turn.
    quanta: PerClass<i64>,
    /// The bytes that a class may still send.
    deficits: PerClass<i64>,
    /// The class whose turn it is.
    turn: Class,
    /// True if this class has not got the bytes of its turn.
    fresh: bool,
}

impl Schedule {
    pub(crate) fn new(classes: &PerClass<ClassConfig>) -> Self {
        let is_strict = |class: &Class| classes[*class].service == Service::Strict;
        Self {
            strict: Class::ALL.into_iter().filter(is_strict).collect(),
            quanta: PerClass::from_fn(|class| match classes[class].service {
                Service::Strict => 0,
                Service::Share(share) => QUANTUM * i64::from(share),
            }),
            deficits: PerClass::default(),
            turn: Class::default(),
            fresh: true,
        }
    }

    /// Returns the class whose first frame leaves next. `first` returns the bytes of the first
    /// frame of a class, and `paused` has the classes that may not send.
    pub(crate) fn next(
        &mut self,
        paused: ClassSet,
        first: impl Fn(Class) -> Option<u32>,
    ) -> Option<Class> {
        let mut strict = Class::ALL.into_iter().rev().filter(|class| self.strict.contains(*class));
        if let Some(class) = strict.find(|it| !paused.contains(*it) && first(*it).is_some()) {
            return Some(class);
        }
        let found = self.round(paused, &first);
        if found.is_some() || !self.pass_rounds(paused, &first) {
            return found;
        }
        self.round(paused, &first)
    }

    /// Gives each class a turn, and the class whose turn it is another one. Returns the class whose
    /// first frame leaves, if there is one.
    fn round(&mut self, paused: ClassSet, first: &impl Fn(Class) -> Option<u32>) -> Option<Class> {
        for _ in 0..=Class::COUNT {
            let class = self.turn;
            let bytes = first(class).filter(|_| !self.strict.contains(class));
            match bytes {
                None => self.deficits[class] = 0,
                // A class that is paused keeps what it has.
                Some(_) if paused.contains(class) => {}
                Some(bytes) => {
                    if self.fresh {
                        self.deficits[class] += self.quanta[class];
                        self.fresh = false;
                    }
                    if self.deficits[class] >= i64::from(bytes) {
                        self.deficits[class] -= i64::from(bytes);
                        return Some(class);
                    }
                }
            }
            self.turn = Class::of_bits(class.number() + 1);
            self.fresh = true;
        }
        None
    }

    /// Passes the rounds in which no frame would leave, so that one leaves in the next round.
    /// Returns false if no class may send.
    fn pass_rounds(&mut self, paused: ClassSet, first: &impl Fn(Class) -> Option<u32>) -> bool {
        let candidates = PerClass::from_fn(|class| {
            first(class).filter(|_| !self.strict.contains(class) && !paused.contains(class))
        });
        let rounds = candidates.iter().filter_map(|(class, bytes)| {
            let missing = (i64::from((*bytes)?) - self.deficits[class]).max(0);
            Some(missing.unsigned_abs().div_ceil(self.quanta[class].unsigned_abs().max(1)))
        });
        let Some(rounds) = rounds.min() else { return false };
        for (class, _) in candidates.iter().filter(|(_, bytes)| bytes.is_some()) {
            // CAST: at most the bytes of the longest frame.
            self.deficits[class] += self.quanta[class] * rounds.saturating_sub(1) as i64;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::config::Config;

    #[test]
    fn a_class_with_nothing_to_send_loses_what_it_has_left() {
        let mut schedule = Schedule::new(&Config::default().classes);
        let other = Class::default();
        let only = |of, bytes| move |class| (class == of).then_some(bytes);
        let mut next = |of, bytes| schedule.next(ClassSet::default(), only(of, bytes));
        // A turn of class 3 has 3200 bytes.
        assert_eq!(next(Class::ROCE, 3100), Some(Class::ROCE));
        // The other class has several turns, and class 3 has no frame meanwhile.
        for _ in 0..4 {
            assert_eq!(next(other, 1000), Some(other));
        }
        assert_eq!(next(Class::ROCE, 3200), Some(Class::ROCE));
        assert_eq!(schedule.deficits[Class::ROCE], 0, "not the 100 bytes of the first turn");
    }

    #[test]
    fn a_long_frame_of_a_small_share_takes_few_looks_at_the_queues() {
        let mut config = Config::default();
        config.classes[Class::ROCE].service = Service::Share(1);
        let mut schedule = Schedule::new(&config.classes);
        for _ in 0..10 {
            let looks = Cell::new(0);
            let first = |class| {
                looks.set(looks.get() + 1);
                (class == Class::ROCE).then_some(256 << 20)
            };
            assert_eq!(schedule.next(ClassSet::default(), first), Some(Class::ROCE));
            assert!(looks.get() < 50, "{}", looks.get());
        }
    }
}
