//! The eight classes of service.

use std::ops::{Index, IndexMut};

/// A class of service, 0 to 7. A class is also the priority with its number, in VLAN tags (IEEE
/// 802.1Q) and in PFC frames (802.1Qbb): each priority has a queue of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    /// Number of classes.
    pub const COUNT: usize = 8;
    /// All classes, the lowest one first.
    pub const ALL: [Self; Self::COUNT] =
        [Self(0), Self(1), Self(2), Self(3), Self(4), Self(5), Self(6), Self(7)];
    /// The class of RoCE in the usual configuration of data centres.
    pub const ROCE: Self = Self(3);
    /// The class of congestion notifications in the usual configuration of data centres.
    pub const NOTIFICATION: Self = Self(6);

    /// Returns the class with this number, or `None` if it is above 7.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number < 8 { Some(Self(number)) } else { None }
    }

    /// Returns the class in the low three bits of a number.
    #[must_use]
    pub const fn of_bits(bits: u8) -> Self {
        Self(bits & 7)
    }

    /// Returns the number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// A set of classes: bit *n* stands for class *n*, as in PFC frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSet(pub u8);

impl ClassSet {
    /// Returns whether the set contains a class.
    #[must_use]
    pub const fn contains(self, class: Class) -> bool {
        self.0 >> class.0 & 1 == 1
    }

    /// Adds a class.
    pub const fn insert(&mut self, class: Class) {
        self.0 |= 1 << class.0;
    }

    /// Returns the classes of the set, the lowest one first.
    pub fn iter(self) -> impl Iterator<Item = Class> {
        Class::ALL.into_iter().filter(move |class| self.contains(*class))
    }
}

impl FromIterator<Class> for ClassSet {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        let mut set = Self::default();
        classes.into_iter().for_each(|class| set.insert(class));
        set
    }
}

/// A value for each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerClass<T>([T; Class::COUNT]);

impl<T> PerClass<T> {
    /// Makes the value of each class.
    pub fn from_fn(mut value: impl FnMut(Class) -> T) -> Self {
        Self(Class::ALL.map(&mut value))
    }

    /// Returns all classes with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Class, &T)> {
        Class::ALL.into_iter().zip(&self.0)
    }
}

impl<T> Index<Class> for PerClass<T> {
    type Output = T;

    fn index(&self, class: Class) -> &T {
        &self.0[usize::from(class.0 & 7)]
    }
}

impl<T> IndexMut<Class> for PerClass<T> {
    fn index_mut(&mut self, class: Class) -> &mut T {
        &mut self.0[usize::from(class.0 & 7)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_values_follow_the_numbers() {
        assert_eq!((Class::new(7).map(Class::number), Class::new(8)), (Some(7), None));
        let set: ClassSet = [Class::ROCE, Class::NOTIFICATION].into_iter().collect();
        assert_eq!(set, ClassSet(0b100_1000));
        assert_eq!(set.iter().map(Class::number).collect::<Vec<_>>(), [3, 6]);
        let mut values = PerClass::from_fn(Class::number);
        values[Class::ROCE] = 30;
        assert_eq!(values.iter().map(|(_, value)| *value).sum::<u8>(), 28 + 27);
    }
}
