//! The bytes of a connection: where they come from, and where they go.

use crate::seq::StreamPos;

/// A part of the stream cannot be rebuilt any more, because its memory may not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The bytes to send. The connection stores none of them and asks for a range again when it must be
/// retransmitted, so each range must read the same until it is acknowledged.
pub trait Source {
    /// The position behind the last byte that can be read now. It never goes back, and does not
    /// move after [`Connection::close`](crate::Connection::close).
    fn end(&self) -> StreamPos;

    /// The length of a segment that starts at `at` and may have at most `most` bytes. `most` is at
    /// least 1 and does not lead beyond [`Self::end`]. The answer is taken as a number from 1 to
    /// `most`.
    fn cut(&self, at: StreamPos, most: usize) -> usize;

    /// Copies the bytes from `at` on into all of `into`. They lie between the first byte that is
    /// not acknowledged and [`Self::end`].
    ///
    /// # Errors
    /// [`Gone`] if they cannot be read. The connection is reset then.
    fn read(&mut self, at: StreamPos, into: &mut [u8]) -> Result<(), Gone>;
}

/// The further processing of a stream after bytes have been delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Go on. The acknowledgement may be delayed.
    Continue,
    /// Go on, and acknowledge in this turn: the peer waits for it, for example because a message
    /// has ended.
    Acknowledge,
    /// Stop. The bytes that were not taken are stored and acknowledged as far as there is room, and
    /// the window closes. [`Connection::resume`](crate::Connection::resume) delivers them again.
    Hold,
    /// Stop. The bytes that were not taken are dropped without an acknowledgement, so the peer
    /// sends them again. If they have been acknowledged ([`Delivery::acknowledged`]), the
    /// connection is reset.
    Refuse,
}

/// Bytes whose turn has come.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The position behind all bytes that were taken or filled before.
    pub at: StreamPos,
    /// The bytes.
    pub bytes: &'a [u8],
    /// They have been acknowledged, because they were held back or came in while others were. So
    /// they cannot be refused.
    pub acknowledged: bool,
}

/// The result of [`Sink::deliver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The number of bytes that were taken, from the first one on. Numbers beyond the length of the
    /// delivery mean all.
    pub taken: usize,
    /// The further processing. If not all bytes were taken, [`Then::Continue`] and
    /// [`Then::Acknowledge`] mean [`Then::Hold`].
    pub then: Then,
}

/// The result of [`Sink::offer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// All bytes are where they belong. They are not delivered: [`Sink::filled`] tells when all
    /// bytes before them have been.
    Placed,
    /// The connection stores them, if it has room, and delivers them in order.
    Buffer,
    /// They are dropped, and the peer sends them again.
    Refuse,
}

/// The receiver of bytes. Each byte of the stream is either taken once by [`Self::deliver`], in
/// order, or placed once by [`Self::offer`] and then passed once by [`Self::filled`].
pub trait Sink {
    /// Notes the first bytes of the other direction that the peer has not acknowledged, and that
    /// were never sent. Each segment tells this before it delivers bytes: the peer has acknowledged
    /// what it says, in the same segment, before it has sent these.
    fn progress(&mut self, unacknowledged: StreamPos, sent: StreamPos) {
        let _ = (unacknowledged, sent);
    }

    /// Takes the next bytes of the stream.
    fn deliver(&mut self, delivery: &Delivery<'_>) -> Delivered;

    /// Looks at bytes ahead of their turn: some before them are missing. A receiver that knows
    /// where they belong may place them at once. They have not been placed before, but may have
    /// been offered before, also in other pieces.
    fn offer(&mut self, at: StreamPos, bytes: &[u8]) -> Offered {
        let _ = (at, bytes);
        Offered::Buffer
    }

    /// All bytes before `from` have been taken, and those from there to `to` were placed. They may
    /// be the bytes of several offers. The next delivery starts at `to`.
    fn filled(&mut self, from: StreamPos, to: StreamPos) -> Then {
        let _ = (from, to);
        Then::Continue
    }
}
