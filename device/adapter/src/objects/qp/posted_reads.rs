//! READs and atomics of a send queue that were posted together.
//!
//! A copy answers a short READ at once, so that such READs never wait for their answers together.
//! Answers that travel take time, and a peer refuses more READs at a time than it has resources
//! for. This module counts the READs that would be outstanding then: those that were all posted
//! before the first of them was executed, and those that are posted while a long READ continues. A
//! program that posts a READ only after the completion of the one before it has one outstanding.

/// The READs and atomics of a queue that were posted together.
#[derive(Debug, Default)]
pub struct PostedReads {
    /// The index of the first entry that was not yet posted when the first of them was executed.
    end: u32,
    /// The number of them so far.
    count: u32,
    /// The index of the last entry that was counted.
    last: Option<u32>,
}

impl PostedReads {
    /// Counts an entry when it is executed, and returns the number of READs and atomics that are
    /// outstanding with it. An entry that continues is not counted again; for one before the last
    /// that was counted, the result is zero. `posted` returns the index of the first entry that is
    /// not posted.
    pub fn count(&mut self, entry: &Counted, posted: impl FnOnce() -> u32) -> u32 {
        let &Counted { index, answered, waits, open } = entry;
        let follows = match self.last {
            Some(last) if last == index => return self.count,
            Some(last) if is_before(index, last) => return 0,
            last => last.is_some_and(|last| last.wrapping_add(1) == index),
        };
        if waits || !follows || !is_before(index, self.end) {
            (self.count, self.end) = (open, posted());
        }
        self.last = Some(index);
        self.count += u32::from(answered);
        self.count
    }
}

/// An entry of a send queue to count.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// The index of the work request.
    pub index: u32,
    /// True for a READ or atomic.
    pub answered: bool,
    /// True if it begins only when all READs before it have been answered.
    pub waits: bool,
    /// Number of READs before it whose bytes have not all arrived.
    pub open: u32,
}

/// Returns whether an index of a queue is before another one.
const fn is_before(index: u32, end: u32) -> bool {
    let ahead = end.wrapping_sub(index);
    ahead != 0 && ahead < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn read(index: u32) -> Counted {
        Counted { index, answered: true, waits: false, open: 0 }
    }

    /// Shows: data
    #[test]
    fn reads_posted_together_are_outstanding_together() {
        let mut reads = PostedReads::default();
        // The index wraps around, and the last READ is posted after the first has been executed.
        let end = 1;
        assert_eq!(reads.count(&read(u32::MAX - 1), || end), 1);
        assert_eq!(reads.count(&Counted { answered: false, ..read(u32::MAX) }, || 9), 1);
        assert_eq!(reads.count(&read(0), || 9), 2);
        assert_eq!(reads.count(&read(1), || 9), 1);
    }

    #[test]
    fn an_entry_that_continues_is_not_counted_again() {
        let mut reads = PostedReads::default();
        for _ in 0..3 {
            assert_eq!(reads.count(&read(0), || 2), 1);
        }
        for _ in 0..3 {
            assert_eq!(reads.count(&read(1), || 2), 2);
            assert_eq!(reads.count(&read(0), || 2), 0);
        }
    }

    #[test]
    fn a_read_behind_a_long_one_is_outstanding_with_it() {
        let mut reads = PostedReads::default();
        assert_eq!(reads.count(&read(0), || 2), 1);
        assert_eq!(reads.count(&read(1), || 2), 2);
        // The second one continues when the third is posted.
        assert_eq!(reads.count(&Counted { open: 1, ..read(2) }, || 3), 2);
        assert_eq!(reads.count(&read(3), || 4), 1);
    }

    #[test]
    fn a_fence_waits_for_the_reads_before_it() {
        let mut reads = PostedReads::default();
        assert_eq!(reads.count(&read(0), || 9), 1);
        assert_eq!(reads.count(&Counted { waits: true, ..read(1) }, || 9), 1);
        assert_eq!(reads.count(&read(2), || 9), 2);
        let invalidation = Counted { index: 3, answered: false, waits: true, open: 0 };
        assert_eq!(reads.count(&invalidation, || 9), 0);
        assert_eq!(reads.count(&read(4), || 9), 1);
    }
}
