//! The places of the outstanding sends in the stream. The bytes of a send follow those of the send
//! before it.

use std::collections::VecDeque;

use vrnic_tcp::StreamPos;

use crate::objects::qp::outstanding::OUTSTANDING;

/// The sends whose bytes the peer has not acknowledged, in order.
#[derive(Debug, Default)]
pub struct Sends {
    sends: VecDeque<Send>,
    /// The position behind the bytes of all sends.
    end: StreamPos,
    /// True if no more sends are taken, because the local direction is closed.
    over: bool,
}

/// A send.
#[derive(Clone, Copy, Debug)]
struct Send {
    index: u32,
    start: StreamPos,
    end: StreamPos,
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

    /// Appends the send with this index, of `length` bytes.
    pub fn push(&mut self, index: u32, length: u64) {
        let start = self.end;
        self.end = start.plus(length);
        self.sends.push_back(Send { index, start, end: self.end });
    }

    /// Returns the position behind the bytes of all sends.
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

    /// Removes the oldest send if the peer has acknowledged all bytes before `una`, and these
    /// include all of the send. Returns its index.
    pub fn pop_acknowledged(&mut self, una: StreamPos) -> Option<u32> {
        self.sends.front().filter(|send| send.end <= una)?;
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
        let mut sends = Sends::default();
        for (index, length) in [(7, 10), (8, 0), (9, 5)] {
            sends.push(index, length);
        }
        let place = |sends: &Sends, at| sends.place(StreamPos(at));
        assert_eq!(place(&sends, 0), Some(Place { index: 7, offset: 0, left: 10 }));
        assert_eq!(place(&sends, 9), Some(Place { index: 7, offset: 9, left: 1 }));
        assert_eq!(place(&sends, 12), Some(Place { index: 9, offset: 2, left: 3 }));
        assert_eq!((place(&sends, 15), sends.end()), (None, StreamPos(15)));
        assert_eq!(sends.pop_acknowledged(StreamPos(9)), None);
        assert_eq!(sends.pop_acknowledged(StreamPos(10)), Some(7));
        // A send without bytes is complete with those before it.
        assert_eq!(sends.pop_acknowledged(StreamPos(10)), Some(8));
        assert_eq!(place(&sends, 9), None);
        assert_eq!(sends.pop_acknowledged(StreamPos(14)), None);
        assert_eq!(sends.pop_acknowledged(StreamPos(15)), Some(9));
    }
}
