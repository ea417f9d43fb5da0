//! The two rules for the completion of a message. Lost octets are read from memory again, so a
//! message is complete only when all of its octets have been acknowledged.
//!
//! *By sequence number*: the position after the message is recorded when it is handed over to TCP,
//! and the message is complete when the first unacknowledged position has reached it. *By queue
//! length*: the octets that are handed over later are counted, and the message is complete when at
//! most that many octets are unacknowledged. Both give the same result. The second rule needs only
//! the length of the send queue.

use crate::tcp::StreamPos;

/// The rule in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// A message is complete when its last sequence number has been acknowledged.
    #[default]
    Sequence,
    /// A message is complete when the number of queued octets shows that all of it has been
    /// acknowledged.
    QueueLength,
}

/// The state of the connection at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendState {
    /// The first position that is not acknowledged.
    pub unacknowledged: StreamPos,
    /// Number of octets that were handed over and are not acknowledged.
    pub queued: u64,
}

/// The record of a message whose last octet has been handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The position after it.
    Behind(StreamPos),
    /// The number of all octets that had been handed over.
    HandedOver(u64),
}

/// Records messages, and decides when they are complete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracker {
    rule: Rule,
    handed_over: u64,
}

impl Tracker {
    /// Creates a tracker.
    #[must_use]
    pub const fn new(rule: Rule) -> Self {
        Self { rule, handed_over: 0 }
    }

    /// Counts octets that are handed over, whatever their origin.
    pub const fn hand_over(&mut self, octets: u64) {
        self.handed_over = self.handed_over.saturating_add(octets);
    }

    /// Counts octets that were handed over and are withdrawn.
    pub const fn take_back(&mut self, octets: u64) {
        self.handed_over = self.handed_over.saturating_sub(octets);
    }

    /// Returns the record of a message whose last octet has just been handed over.
    #[must_use]
    pub const fn mark(&self, send_state: SendState) -> Mark {
        match self.rule {
            Rule::Sequence => Mark::Behind(send_state.unacknowledged.plus(send_state.queued)),
            Rule::QueueLength => Mark::HandedOver(self.handed_over),
        }
    }

    /// Returns whether a message is complete.
    #[must_use]
    pub fn is_complete(&self, mark: Mark, send_state: SendState) -> bool {
        match mark {
            Mark::Behind(end) => end <= send_state.unacknowledged,
            Mark::HandedOver(then) => send_state.queued <= self.handed_over.saturating_sub(then),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a tracker and the records of two messages of 2,840 and 1,020 octets, before which
    /// 1,000 octets were queued.
    fn two_messages(rule: Rule) -> (Tracker, Mark, Mark) {
        let mut tracker = Tracker::new(rule);
        tracker.hand_over(1000);
        tracker.hand_over(2840);
        let send_state = SendState { unacknowledged: StreamPos(10_000), queued: 3840 };
        let first = tracker.mark(send_state);
        assert!(!tracker.is_complete(first, send_state));
        tracker.hand_over(1020);
        let second = tracker.mark(SendState { queued: 4860, ..send_state });
        (tracker, first, second)
    }

    #[test]
    fn by_queue_length() {
        let (tracker, first, second) = two_messages(Rule::QueueLength);
        let send_state = |queued| SendState { unacknowledged: StreamPos(0), queued };
        assert!(!tracker.is_complete(first, send_state(1021)));
        assert!(
            tracker.is_complete(first, send_state(1020))
                && !tracker.is_complete(second, send_state(1020))
        );
        assert!(tracker.is_complete(second, send_state(0)));
    }

    /// Shows: iwarp: messages complete by the sequence numbers that the peer has acknowledged
    #[test]
    fn by_sequence_number() {
        let (tracker, first, second) = two_messages(Rule::Sequence);
        assert_eq!(first, Mark::Behind(StreamPos(13_840)));
        let send_state = |at| SendState { unacknowledged: StreamPos(at), queued: 0 };
        assert!(!tracker.is_complete(first, send_state(13_839)));
        assert!(tracker.is_complete(first, send_state(13_840)));
        assert!(!tracker.is_complete(second, send_state(13_841)));
        assert!(tracker.is_complete(second, send_state(14_860)));
    }
}
