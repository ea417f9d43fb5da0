//! The places of the outstanding sends in the stream. The bytes of a send follow those of the send
//! before it.

use std::collections::VecDeque;

use vrnic_iwarp::rdmap::completion::{Mark, Rule, SendState, Tracker};
use vrnic_tcp::StreamPos;

use crate::objects::qp::outstanding::OUTSTANDING;

/// The sends whose bytes the peer has not acknowledged, in order.
#[derive(Debug, Default)]
pub struct Sends {
    sends: VecDeque<Send>,
    /// The position after the bytes of all sends.
    end: StreamPos,
    /// Decides which of them are complete.
    tracker: Tracker,
    /// True if no more sends are taken, because the local direction is closed.
    over: bool,
}

#[derive(Clone, Copy, Debug)]
struct Send {
    index: u32,
    start: StreamPos,
    end: StreamPos,
    mark: Mark,
}

/// The place of a byte of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the send.
    pub index: u32,
    /// Number of its bytes before this one.
    pub offset: u64,
    /// Number of its bytes from this one on.
    pub left: u64,
}

impl Sends {
    /// The memory that all of them take at most.
    pub const MAX_BYTES: usize = OUTSTANDING as usize * size_of::<Send>();

    /// Creates a list without sends, which are complete by this rule.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        Self { tracker: Tracker::new(rule), ..Self::default() }
    }

    /// Appends the send with this index, of `length` bytes. The peer has acknowledged all bytes
    /// before `una`.
    pub fn push(&mut self, index: u32, length: u64, una: StreamPos) {
        let start = self.end;
        self.end = start.plus(length);
        self.tracker.hand_over(length);
        let mark = self.tracker.mark(self.state(una));
        self.sends.push_back(Send { index, start, end: self.end, mark });
    }

    /// Returns the state of TCP's send queue if the peer has acknowledged all bytes before `una`.
    const fn state(&self, una: StreamPos) -> SendState {
        SendState { unacknowledged: una, queued: self.end.since(una) }
    }

    /// Returns the position after the bytes of all sends.
    #[must_use]
    pub const fn end(&self) -> StreamPos {
        self.end
    }

    /// Takes no more sends.
    pub const fn finish(&mut self) {
        self.over = true;
    }

    /// Returns whether no more sends are taken.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// Returns the place of a byte that the peer has not acknowledged.
    #[must_use]
    pub fn place(&self, at: StreamPos) -> Option<Place> {
        let nth = self.sends.partition_point(|send| send.end <= at);
        let send = self.sends.get(nth).filter(|send| send.start <= at)?;
        Some(Place { index: send.index, offset: at.since(send.start), left: send.end.since(at) })
    }

    /// Removes the oldest send if it is complete when the peer has acknowledged all bytes before
    /// `una`. Returns its index.
    pub fn pop_acknowledged(&mut self, una: StreamPos) -> Option<u32> {
        let state = self.state(una);
        self.sends.front().filter(|send| self.tracker.is_complete(send.mark, state))?;
        self.sends.pop_front().map(|send| send.index)
    }

    /// Gives memory back if there are no sends.
    pub fn shrink(&mut self) {
        if self.sends.is_empty() {
            self.sends = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_belong_to_the_sends_in_order() {
        for rule in [Rule::Sequence, Rule::QueueLength] {
            let mut sends = Sends::new(rule);
            for (index, length) in [(7, 10), (8, 0), (9, 5)] {
                sends.push(index, length, StreamPos(0));
            }
            let place = |sends: &Sends, at| sends.place(StreamPos(at));
            assert_eq!(place(&sends, 0), Some(Place { index: 7, offset: 0, left: 10 }));
            assert_eq!(place(&sends, 9), Some(Place { index: 7, offset: 9, left: 1 }));
            assert_eq!(place(&sends, 12), Some(Place { index: 9, offset: 2, left: 3 }));
            assert_eq!((place(&sends, 15), sends.end()), (None, StreamPos(15)));
            assert_eq!(sends.pop_acknowledged(StreamPos(9)), None, "{rule:?}");
            assert_eq!(sends.pop_acknowledged(StreamPos(10)), Some(7), "{rule:?}");
            // A send without bytes is complete with those before it.
            assert_eq!(sends.pop_acknowledged(StreamPos(10)), Some(8));
            assert_eq!(place(&sends, 9), None);
            // Bytes that are handed over later do not delay it.
            sends.push(10, 1000, StreamPos(14));
            assert_eq!(sends.pop_acknowledged(StreamPos(14)), None, "{rule:?}");
            assert_eq!(sends.pop_acknowledged(StreamPos(15)), Some(9), "{rule:?}");
            assert_eq!(sends.pop_acknowledged(StreamPos(1014)), None, "{rule:?}");
            assert_eq!(sends.pop_acknowledged(StreamPos(1015)), Some(10), "{rule:?}");
        }
    }
}
