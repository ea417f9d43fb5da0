//! Source and sink of the bytes of a connection.

use crate::seq::StreamPos;

/// A part of the stream cannot be read any more, because its memory must not be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The reason for which a part of the stream is not read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undone {
    /// The memory of this part must not be accessed any more.
    Gone,
    /// The bytes of this part are on their way to or from the memory. The access is tried again
    /// later.
    Later,
}

impl From<Gone> for Undone {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

/// The bytes to send. The connection does not store them, and reads a range again when it must be
/// retransmitted. So each range must have the same content until it is acknowledged.
pub trait Source {
    /// Returns the position after the last byte that can be read now. It never decreases, and does
    /// not change after [`Connection::close`](crate::Connection::close).
    fn end(&self) -> StreamPos;

    /// Returns the length of a segment that starts at `at`, at most `limit` bytes. `limit` is at
    /// least 1 and does not reach beyond [`Self::end`]. The caller limits the result to the range
    /// from 1 to `limit`.
    fn cut(&self, at: StreamPos, limit: usize) -> usize;

    /// Copies the bytes from `at` on, and fills `into` with them. They are between the first
    /// unacknowledged byte and [`Self::end`].
    ///
    /// # Errors
    /// [`Undone::Gone`] if they cannot be read. The connection is then reset. [`Undone::Later`] if
    /// they cannot be read yet. The caller of [`Connection::transmit`](crate::Connection::transmit)
    /// calls it again later.
    fn read(&mut self, at: StreamPos, into: &mut [u8]) -> Result<(), Undone>;
}

/// Tells the connection how to continue with the stream after a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Continue. The acknowledgement may be delayed.
    Continue,
    /// Continue, and acknowledge in this turn, because the peer waits for the acknowledgement, for
    /// example at the end of a message.
    Acknowledge,
    /// Stop. The bytes that were not taken are stored and acknowledged while there is room, and the
    /// window closes. [`Connection::resume`](crate::Connection::resume) delivers them again.
    Hold,
    /// Stop. The bytes that were not taken are dropped without an acknowledgement, so the peer
    /// sends them again. If they have already been acknowledged ([`Delivery::acknowledged`]), the
    /// connection is reset.
    Refuse,
}

/// Bytes that are next in order.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The position after all bytes that were taken or filled before.
    pub at: StreamPos,
    /// The bytes that begin at this position.
    pub bytes: &'a [u8],
    /// True if they have been acknowledged, because they were held back or arrived while others
    /// were. They cannot be refused in this case.
    pub acknowledged: bool,
}

/// The result of [`Sink::deliver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The number of bytes that were taken, from the first one on. A number beyond the length of
    /// the delivery means all.
    pub taken: usize,
    /// The next step of the connection. If not all bytes were taken, [`Then::Continue`] and
    /// [`Then::Acknowledge`] mean [`Then::Hold`].
    pub then: Then,
}

/// The result of [`Sink::offer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// All bytes have been placed. They are not delivered; [`Sink::filled`] is called when all
    /// bytes before them have arrived.
    Placed,
    /// The connection stores them if it has room, and delivers them in order.
    Buffer,
    /// The connection drops the bytes, and the peer sends them again.
    Refuse,
}

/// The receiver of bytes. Each byte of the stream is either taken once by [`Self::deliver`], in
/// order, or placed once by [`Self::offer`] and then passed once by [`Self::filled`].
pub trait Sink {
    /// Records the first bytes of the other direction that the peer has not acknowledged, and that
    /// were never sent. Each segment reports this before it delivers its bytes, because the peer
    /// has acknowledged the bytes of the other direction before it sent its own.
    fn progress(&mut self, unacknowledged: StreamPos, sent: StreamPos) {
        let _ = (unacknowledged, sent);
    }

    /// Takes the next bytes of the stream.
    fn deliver(&mut self, delivery: &Delivery<'_>) -> Delivered;

    /// Offers bytes out of order, before which some are missing. A receiver that knows their
    /// destination may place them at once. They have not been placed before, but may have been
    /// offered before, also in other pieces.
    fn offer(&mut self, at: StreamPos, bytes: &[u8]) -> Offered {
        let _ = (at, bytes);
        Offered::Buffer
    }

    /// Reports that all bytes before `from` have been taken, and that those from `from` to `to`
    /// were placed. They may be the bytes of several offers. The next delivery starts at `to`.
    fn filled(&mut self, from: StreamPos, to: StreamPos) -> Then {
        let _ = (from, to);
        Then::Continue
    }
}
