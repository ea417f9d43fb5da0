//! A sink or a source that takes a connection over from another one: its positions begin at zero
//! where the other one has ended.

use crate::seq::StreamPos;
use crate::stream::{Delivered, Delivery, Offered, Sink, Source, Then, Undone};

/// The positions of a connection at which its new owner counts zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shift {
    /// The position of the first byte that the new owner sends.
    pub send: u64,
    /// The position of the first byte that it receives. If it gets bytes from elsewhere before, it
    /// is less than zero by their number, modulo 2⁶⁴.
    pub receive: u64,
}

impl Shift {
    /// Returns a position of what is sent, as the new owner counts.
    #[must_use]
    pub const fn sent(self, at: StreamPos) -> StreamPos {
        StreamPos(at.0.wrapping_sub(self.send))
    }

    const fn received(self, at: StreamPos) -> StreamPos {
        StreamPos(at.0.wrapping_sub(self.receive))
    }
}

/// The new owner as the connection sees it.
#[derive(Debug)]
pub struct Shifted<T> {
    /// The new owner.
    pub owner: T,
    /// The positions.
    pub shift: Shift,
    /// True if the owner takes nothing yet, because other bytes come first.
    pub holds: bool,
}

impl<S: Sink> Sink for Shifted<S> {
    fn progress(&mut self, unacknowledged: StreamPos, sent: StreamPos) {
        self.owner.progress(self.shift.sent(unacknowledged), self.shift.sent(sent));
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Delivered {
        if self.holds {
            return Delivered { taken: 0, then: Then::Hold };
        }
        self.owner.deliver(&Delivery { at: self.shift.received(delivery.at), ..*delivery })
    }

    fn offer(&mut self, at: StreamPos, bytes: &[u8]) -> Offered {
        if self.holds {
            return Offered::Buffer;
        }
        self.owner.offer(self.shift.received(at), bytes)
    }

    fn filled(&mut self, from: StreamPos, to: StreamPos) -> Then {
        self.owner.filled(self.shift.received(from), self.shift.received(to))
    }
}

impl<S: Source> Source for Shifted<S> {
    fn end(&self) -> StreamPos {
        StreamPos(self.owner.end().0.wrapping_add(self.shift.send))
    }

    fn cut(&self, at: StreamPos, limit: usize) -> usize {
        self.owner.cut(self.shift.sent(at), limit)
    }

    fn read(&mut self, at: StreamPos, into: &mut [u8]) -> Result<(), Undone> {
        self.owner.read(self.shift.sent(at), into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records where bytes are.
    #[derive(Default)]
    struct Places(Vec<(&'static str, u64)>);

    impl Sink for Places {
        fn progress(&mut self, unacknowledged: StreamPos, sent: StreamPos) {
            self.0.push(("progress", unacknowledged.0 + sent.0));
        }

        fn deliver(&mut self, delivery: &Delivery<'_>) -> Delivered {
            self.0.push(("deliver", delivery.at.0));
            Delivered { taken: delivery.bytes.len(), then: Then::Continue }
        }

        fn offer(&mut self, at: StreamPos, _bytes: &[u8]) -> Offered {
            self.0.push(("offer", at.0));
            Offered::Placed
        }

        fn filled(&mut self, from: StreamPos, _to: StreamPos) -> Then {
            self.0.push(("filled", from.0));
            Then::Continue
        }
    }

    #[test]
    fn a_new_owner_counts_from_zero() {
        // Seven bytes come from elsewhere, before position 5 of the connection.
        let shift = Shift { send: 100, receive: 5_u64.wrapping_sub(7) };
        let mut sink = Shifted { owner: Places::default(), shift, holds: true };
        let delivery = Delivery { at: StreamPos(5), bytes: b"x", acknowledged: false };
        assert_eq!(sink.deliver(&delivery), Delivered { taken: 0, then: Then::Hold });
        assert_eq!(sink.offer(StreamPos(9), b"x"), Offered::Buffer);
        sink.holds = false;
        sink.progress(StreamPos(100), StreamPos(101));
        let _ = sink.deliver(&delivery);
        assert_eq!(sink.offer(StreamPos(9), b"x"), Offered::Placed);
        let _ = sink.filled(StreamPos(9), StreamPos(10));
        let places = [("progress", 1), ("deliver", 7), ("offer", 11), ("filled", 11)];
        assert_eq!(sink.owner.0, places);
    }
}
