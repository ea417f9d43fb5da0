//! What is left of the bytes that a connection has carried before its messages.

use vrnic_tcp::{Delivered, Delivery, Share, Shift, Shifted, StreamPos};

/// The bytes that arrived before RDMA began and belong to messages, and the positions of TCP at
/// which the stream of messages counts zero.
#[derive(Debug, Default)]
pub struct Switched {
    shift: Shift,
    /// The bytes that come first.
    first: Vec<u8>,
    /// Number of them that were delivered.
    done: usize,
    share: Share,
    /// True if the peer has closed its direction after them.
    finished: bool,
}

impl Switched {
    /// Creates the state of a stream whose first bytes are `first`, which are counted in `share`.
    /// TCP continues it: the next bytes are at these positions.
    #[must_use]
    pub fn new(first: Vec<u8>, share: Share, send: StreamPos, receive: StreamPos) -> Self {
        let before = first.len() as u64;
        let shift = Shift { send: send.0, receive: receive.0.wrapping_sub(before) };
        Self { shift, first, done: 0, share, finished: false }
    }

    /// Returns the stream as TCP sees it.
    pub const fn owner<T>(&self, owner: T) -> Shifted<T> {
        Shifted { owner, shift: self.shift, holds: !self.first.is_empty() }
    }

    /// Returns the position of the stream at a position of TCP in what is sent.
    #[must_use]
    pub const fn sent(&self, at: StreamPos) -> StreamPos {
        self.shift.sent(at)
    }

    /// Passes the bytes that come first to the stream. Returns whether it has taken all of them.
    pub fn deliver_first(&mut self, deliver: impl FnOnce(&Delivery<'_>) -> Delivered) -> bool {
        let Some(bytes) = self.first.get(self.done..).filter(|rest| !rest.is_empty()) else {
            return true;
        };
        let at = StreamPos(self.done as u64);
        let delivered = deliver(&Delivery { at, bytes, acknowledged: true });
        self.done = self.done.saturating_add(delivered.taken).min(self.first.len());
        let all = self.done == self.first.len();
        if all {
            self.first = Vec::new();
            self.share.give_all_back();
        }
        all
    }

    /// Returns the number of bytes of memory that it keeps, apart from its own fixed size.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.first.len()
    }

    /// Returns the number of bytes that are counted in the memory for connections.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.share.used()
    }

    /// Records that the peer has closed its direction. Returns whether the stream may know.
    pub const fn finish(&mut self) -> bool {
        self.finished = !self.first.is_empty();
        !self.finished
    }

    /// Returns whether the stream is to be told now that the peer has closed its direction.
    pub const fn take_finished(&mut self) -> bool {
        self.first.is_empty() && std::mem::replace(&mut self.finished, false)
    }
}

#[cfg(test)]
mod tests {
    use vrnic_tcp::Then;

    use super::*;

    #[test]
    fn first_bytes_are_delivered_in_parts() {
        let (send, receive) = (StreamPos(9), StreamPos(4));
        let mut switched = Switched::new(vec![1, 2, 3], Share::default(), send, receive);
        assert!(switched.owner(()).holds && !switched.finish() && !switched.take_finished());
        let part = |at: u64, taken: usize| {
            move |delivery: &Delivery<'_>| {
                assert_eq!((delivery.at, delivery.bytes.len() as u64), (StreamPos(at), 3 - at));
                Delivered { taken, then: Then::Hold }
            }
        };
        assert!(!switched.deliver_first(part(0, 1)));
        // A stream cannot take more than there is.
        assert!(switched.deliver_first(part(1, 9)));
        assert!(switched.deliver_first(|_| panic!("all were delivered")));
        assert!(!switched.owner(()).holds && switched.take_finished() && !switched.take_finished());
        assert!(switched.finish());
    }
}
