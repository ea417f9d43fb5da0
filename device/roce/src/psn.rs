//! Packet sequence numbers: 24 bits, compared modulo 2²⁴ (IBTA volume 1, 9.7.1).
//!
//! Sequence numbers have no absolute order. "Before" and "after" are defined only within half of
//! the circle, so a comparison always names its base.

use std::fmt;

/// Number of sequence numbers in the circle.
const CIRCLE: u32 = 1 << 24;

/// Maximum number of outstanding packets: half of the circle, so that old and new numbers can be
/// distinguished.
pub const MAX_OUTSTANDING: u32 = CIRCLE / 2;

/// A packet sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// Returns the number with the low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value % CIRCLE)
    }

    /// Returns the number as in a packet.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number `count` packets later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// Returns the number `count` packets earlier.
    #[must_use]
    pub const fn minus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// Returns the next number.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the previous number.
    #[must_use]
    pub const fn previous(self) -> Self {
        self.minus(1)
    }

    /// Returns the number of steps from `base` forwards to this number, possibly around the circle:
    /// 0 to 2²⁴ − 1.
    #[must_use]
    pub const fn since(self, base: Self) -> u32 {
        self.0.wrapping_sub(base.0) % CIRCLE
    }

    /// Returns whether this number is in the half of the circle before `other`. If `other` is the
    /// expected number, a packet with this number is a duplicate.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.since(other) >= MAX_OUTSTANDING
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}", self.0)
    }
}

/// Consecutive sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first number.
    pub first: Psn,
    /// The number of sequence numbers, at least 1 and at most [`MAX_OUTSTANDING`].
    pub count: u32,
}

impl Span {
    /// Returns the last number.
    #[must_use]
    pub const fn last(self) -> Psn {
        self.end().previous()
    }

    /// Returns the number after the last one.
    #[must_use]
    pub const fn end(self) -> Psn {
        self.first.plus(self.count)
    }

    /// Returns whether the span contains a number.
    #[must_use]
    pub const fn contains(self, psn: Psn) -> bool {
        psn.since(self.first) < self.count
    }
}

/// A message sequence number: the number of messages that the responder has executed, modulo 2²⁴
/// (C9-148).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Msn(u32);

impl Msn {
    /// Returns the number with the low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value % CIRCLE)
    }

    /// Returns the number as in a packet.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number after one more message.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0.wrapping_add(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Shows: roce
    #[test]
    fn numbers_wrap_at_24_bits() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.next(), Psn::new(0));
        assert_eq!(Psn::new(0).previous(), last);
        assert_eq!(Psn::new(0x0100_0005).get(), 5);
        assert!(last.is_before(Psn::new(0)) && !Psn::new(0).is_before(last));
        assert_eq!(Msn::new(0xff_ffff).next().get(), 0);
    }

    #[test]
    fn half_of_the_circle_is_behind() {
        let expected = Psn::new(100);
        assert!(!expected.is_before(expected));
        assert!(expected.minus(MAX_OUTSTANDING).is_before(expected));
        assert!(!expected.plus(MAX_OUTSTANDING - 1).is_before(expected));
    }

    proptest! {
        #[test]
        fn steps_are_counted_from_any_base(base: u32, count in 0..CIRCLE) {
            let base = Psn::new(base);
            prop_assert_eq!(base.plus(count).since(base), count);
            prop_assert_eq!(base.plus(count).minus(count), base);
            prop_assert_eq!(base.plus(count).is_before(base), count >= MAX_OUTSTANDING);
        }

        #[test]
        fn a_span_holds_its_numbers_alone(first: u32, count in 1..=MAX_OUTSTANDING, at in 0..CIRCLE) {
            let span = Span { first: Psn::new(first), count };
            prop_assert_eq!(span.contains(span.first.plus(at)), at < count);
            prop_assert_eq!(span.last().next(), span.end());
            prop_assert!(span.contains(span.last()) && !span.contains(span.end()));
        }
    }
}
