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
    /// frame of a class that may send.
    pub(crate) fn next(&mut self, first: impl Fn(Class) -> Option<u32>) -> Option<Class> {
        let mut strict = Class::ALL.into_iter().rev().filter(|class| self.strict.contains(*class));
        if let Some(class) = strict.find(|class| first(*class).is_some()) {
            return Some(class);
        }
        let mut idle = 0;
        // Ends: either no class has a frame, or the deficits grow until one may send.
        while idle < Class::COUNT {
            let class = self.turn;
            match first(class).filter(|_| !self.strict.contains(class)) {
                None => {
                    self.deficits[class] = 0;
                    idle += 1;
                }
                Some(bytes) => {
                    if self.fresh {
                        self.deficits[class] += self.quanta[class];
                        self.fresh = false;
                    }
                    if self.deficits[class] >= i64::from(bytes) {
                        self.deficits[class] -= i64::from(bytes);
                        return Some(class);
                    }
                    idle = 0;
                }
            }
            self.turn = Class::of_bits(class.number() + 1);
            self.fresh = true;
        }
        None
    }
}
