//! Counters of dropped packets, by reason.

use std::marker::PhantomData;

/// Reasons for which packets are dropped, numbered from zero.
pub trait Reason: Copy {
    /// Returns the number of the reason.
    fn number(self) -> usize;
}

/// Packets that were dropped, for each of `N` reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discards<R, const N: usize>([u64; N], PhantomData<R>);

impl<R, const N: usize> Default for Discards<R, N> {
    fn default() -> Self {
        Self([0; N], PhantomData)
    }
}

impl<R: Reason, const N: usize> Discards<R, N> {
    /// Counts a packet.
    pub fn count(&mut self, reason: R) {
        if let Some(counter) = self.0.get_mut(reason.number()) {
            *counter = counter.wrapping_add(1);
        }
    }

    /// Returns the number of packets that were dropped for a reason.
    #[must_use]
    pub fn of(&self, reason: R) -> u64 {
        self.0.get(reason.number()).copied().unwrap_or_default()
    }

    /// Returns the total number of dropped packets.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Reason for u8 {
        fn number(self) -> usize {
            self.into()
        }
    }

    #[test]
    fn each_reason_has_its_counter() {
        let mut discards = Discards::<u8, 3>::default();
        discards.count(0);
        discards.count(2);
        discards.count(2);
        // No reason that the counters know.
        discards.count(3);
        assert_eq!([0, 1, 2, 3].map(|reason| discards.of(reason)), [1, 0, 2, 0]);
        assert_eq!(discards.total(), 3);
    }
}
