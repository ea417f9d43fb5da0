//! Closing of both directions, and the events of a connection.

use std::time::Duration;

use vrnic_packet::Nanos;

use super::Connection;
use crate::context::Params;
use crate::seq::{SeqNum, StreamPos};

/// The reason for which a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both directions were closed, and the wait for late segments is over.
    Closed,
    /// The peer has reset it before both directions were closed.
    Reset,
    /// The peer has not answered for too long, or has not closed its direction in time.
    TimedOut,
    /// [`Connection::abort`] was called.
    Aborted,
    /// The source cannot read bytes that must be sent.
    Gone,
    /// The sink has refused bytes that were already acknowledged.
    Refused,
}

/// An event for the owner of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer has acknowledged all bytes before this position.
    Acknowledged(StreamPos),
    /// The peer has closed its direction, and all its bytes have been delivered.
    PeerClosed,
    /// Both directions are closed and acknowledged. The connection still answers segments until
    /// [`Self::Ended`].
    Closed,
    /// The connection has ended; this is the last event. A segment that resets the peer's end may
    /// still have to be sent. If the peer has not accepted it, further segments from the peer are
    /// answered as long as they are passed to the connection.
    Ended(End),
}

/// The states of RFC 9293, 3.3.2, from the first state after the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Both directions are open.
    Established,
    /// The local direction is being closed.
    FinWait1,
    /// The local direction is closed.
    FinWait2,
    /// The peer has closed its direction.
    CloseWait,
    /// Both directions are being closed, the local one first.
    Closing,
    /// Both directions are being closed, the peer's first.
    LastAck,
    /// Both directions are closed. Late segments are answered.
    TimeWait,
    /// The connection has ended.
    Closed,
}

/// The progress of closing.
#[derive(Debug)]
pub(super) struct Ending {
    time_wait: Duration,
    /// True if the peer may keep its direction open for as long as it wants.
    half_open: bool,
    /// True if the local direction is to be closed. The next field is the position at which its end
    /// was sent.
    wanted: bool,
    pub(super) fin: Option<StreamPos>,
    fin_acknowledged: bool,
    /// True if the peer's end was delivered before the local direction was closed.
    passive: bool,
    peer_closed: bool,
    deadline: Option<Nanos>,
    over: Option<End>,
    /// The number of a reset that is still to be sent.
    pub(super) reset_due: Option<SeqNum>,
    /// Events that have not been taken, and the position that was reported last.
    reported: StreamPos,
    tell_peer_closed: bool,
    tell_closed: bool,
    tell_over: bool,
}

impl Ending {
    pub(super) const fn new(params: &Params) -> Self {
        Self {
            time_wait: params.time_wait,
            half_open: params.half_open,
            wanted: false,
            fin: None,
            fin_acknowledged: false,
            passive: false,
            peer_closed: false,
            deadline: None,
            over: None,
            reset_due: None,
            reported: StreamPos(0),
            tell_peer_closed: false,
            tell_closed: false,
            tell_over: false,
        }
    }

    /// Returns whether the peer may keep its direction open for as long as it wants.
    pub(super) const fn is_half_open(&self) -> bool {
        self.half_open
    }

    pub(super) const fn set_half_open(&mut self, half_open: bool) {
        self.half_open = half_open;
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over.is_some()
    }

    pub(super) const fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    /// Returns whether the end of the stream (FIN) must still be sent.
    pub(super) const fn wants_fin(&self) -> bool {
        self.wanted && self.fin.is_none()
    }

    /// Returns the position limited to data, without the position of the end of the stream.
    pub(super) fn data_before(&self, at: StreamPos) -> StreamPos {
        self.fin.map_or(at, |fin| at.min(fin))
    }

    /// Ends the connection. Nothing is sent after this.
    pub(super) fn finish(&mut self, end: End) {
        if self.over.is_none() {
            self.over = Some(end);
            self.tell_over = true;
        }
    }

    /// Handles a reset by the peer. It is not an error if both directions were closed, because a
    /// peer that no longer has the connection answers late segments with a reset (RFC 9293,
    /// 3.10.7.4).
    pub(super) fn peer_reset(&mut self) {
        self.finish(if self.state() == State::TimeWait { End::Closed } else { End::Reset });
    }

    /// Ends the connection, and prepares a reset with this number for the peer.
    pub(super) fn reset(&mut self, end: End, number: SeqNum) {
        if self.over.is_none() {
            self.reset_due = Some(number);
            self.finish(end);
        }
    }

    /// Returns whether this end has reset the connection.
    pub(super) const fn was_reset(&self) -> bool {
        matches!(self.over, Some(End::TimedOut | End::Aborted | End::Gone | End::Refused))
    }

    /// Records the positions that both directions have reached.
    pub(super) fn progress(&mut self, now: Nanos, una: StreamPos, peer_closed: bool) {
        let was = (self.fin_acknowledged, self.peer_closed);
        self.fin_acknowledged |= self.fin.is_some_and(|fin| una > fin);
        self.peer_closed |= peer_closed;
        self.tell_peer_closed |= self.peer_closed && !was.1;
        if was == (self.fin_acknowledged, self.peer_closed) {
            return;
        }
        if self.fin_acknowledged && self.peer_closed {
            self.tell_closed = true;
            if self.passive {
                self.finish(End::Closed);
            }
        }
        if self.fin_acknowledged && (self.peer_closed || !self.half_open) {
            self.deadline = Some(now.plus(self.time_wait));
        }
    }

    /// Handles a repeated end of the peer, which waits for the last acknowledgement (RFC 9293,
    /// 3.10.7.4).
    pub(super) fn linger(&mut self, now: Nanos) {
        if self.state() == State::TimeWait {
            self.deadline = Some(now.plus(self.time_wait));
        }
    }

    pub(super) fn timeout(&mut self, now: Nanos, number: SeqNum) {
        if self.deadline.is_some_and(|at| at <= now) {
            self.deadline = None;
            if self.peer_closed {
                self.finish(End::Closed);
            } else {
                self.reset(End::TimedOut, number);
            }
        }
    }

    pub(super) fn state(&self) -> State {
        match (self.over, self.wanted, self.fin_acknowledged, self.peer_closed) {
            (Some(_), ..) => State::Closed,
            (_, false, _, false) => State::Established,
            (_, false, _, true) => State::CloseWait,
            (_, true, false, false) => State::FinWait1,
            (_, true, true, false) => State::FinWait2,
            (_, true, false, true) if self.passive => State::LastAck,
            (_, true, false, true) => State::Closing,
            (_, true, true, true) => State::TimeWait,
        }
    }
}

impl Connection {
    /// Closes the local direction after the source's last byte. The peer may continue to send.
    pub fn close(&mut self) {
        if !self.ending.wanted {
            self.ending.wanted = true;
            self.ending.passive = self.ending.peer_closed;
        }
    }

    /// Ends the connection at once. [`Self::transmit`] returns the segment that resets the peer.
    pub fn abort(&mut self) {
        self.reset(End::Aborted);
    }

    /// Resets the peer's end, with the number of the next byte.
    pub(super) fn reset(&mut self, end: End) {
        self.ending.reset(end, self.send.number(self.send.next));
    }

    /// Returns the state by its name in RFC 9293.
    #[must_use]
    pub fn state(&self) -> State {
        self.ending.state()
    }

    /// Returns the next event, and removes it.
    pub fn event(&mut self) -> Option<Event> {
        let acknowledged = self.acknowledged();
        let ending = &mut self.ending;
        if acknowledged > ending.reported {
            ending.reported = acknowledged;
            return Some(Event::Acknowledged(acknowledged));
        }
        if std::mem::take(&mut ending.tell_peer_closed) {
            return Some(Event::PeerClosed);
        }
        if std::mem::take(&mut ending.tell_closed) {
            return Some(Event::Closed);
        }
        ending.over.filter(|_| std::mem::take(&mut ending.tell_over)).map(Event::Ended)
    }
}
