//! Sequence numbers of 32 bits, which segments carry, and positions of 64 bits, which all other
//! code uses.

use std::fmt;

/// A sequence number as in a segment (RFC 9293, 3.4). Sequence numbers have no absolute order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// Returns the number `count` bytes later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// Returns the number of bytes from `base` to this number. It is negative if this number is in
    /// the half of the circle behind `base`.
    #[must_use]
    pub const fn ahead_of(self, base: Self) -> i64 {
        // The subtraction wraps on purpose; the sign shows the half of the circle.
        self.0.wrapping_sub(base.0).cast_signed() as i64
    }
}

/// A position in one direction of a stream: the number of bytes since the first one that the
/// adapter carries. The end of the stream (FIN) has a position of its own after the last byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamPos(pub u64);

impl StreamPos {
    /// Returns the position `count` bytes later.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// Returns the number of bytes from an earlier position to this one, or zero if that one is
    /// later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for StreamPos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The sequence number of position 0 in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(pub SeqNum);

impl Origin {
    /// Returns the sequence number of a position.
    #[must_use]
    pub const fn number(self, at: StreamPos) -> SeqNum {
        // CAST: sequence numbers are positions modulo 2³².
        self.0.plus(at.0 as u32)
    }

    /// Returns the position of a number that is near `base`, or `None` if it is before position 0.
    #[must_use]
    pub fn position(self, number: SeqNum, base: StreamPos) -> Option<StreamPos> {
        base.0.checked_add_signed(number.ahead_of(self.number(base))).map(StreamPos)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_before_the_first_byte_have_no_position() {
        let origin = Origin(SeqNum(100));
        assert_eq!(origin.position(SeqNum(99), StreamPos(0)), None);
        assert_eq!(origin.position(SeqNum(100), StreamPos(0)), Some(StreamPos(0)));
        assert_eq!(SeqNum(3).ahead_of(SeqNum(u32::MAX)), 4);
        assert_eq!(SeqNum(u32::MAX).ahead_of(SeqNum(3)), -4);
    }

    proptest! {
        /// Shows: tcp: sequence numbers that wrap
        #[test]
        fn a_number_near_a_position_leads_back_to_it(
            first: u32,
            base in 0..u64::MAX / 2,
            ahead in -(1_i64 << 31)..1 << 31,
        ) {
            let origin = Origin(SeqNum(first));
            if let Some(at) = base.checked_add_signed(ahead) {
                let number = origin.number(StreamPos(at));
                prop_assert_eq!(origin.position(number, StreamPos(base)), Some(StreamPos(at)));
            }
        }
    }
}
