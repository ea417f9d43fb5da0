//! The state in which a connection is taken over, and its parameters.

use std::time::Duration;

use crate::seq::SeqNum;

/// The unit of the timestamps that a connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
}

/// Timestamps of a connection that has agreed on them (RFC 7323).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampState {
    /// The value to send at the moment of the takeover. It never goes back.
    pub value: u32,
    /// The unit of `value`.
    pub tick: Tick,
    /// The newest value of the peer.
    pub recent: u32,
}

/// The state of an established connection. At that moment nothing is unacknowledged and nothing
/// that was received is unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The number of the next byte to send: position 0 of that direction.
    pub send_next: SeqNum,
    /// The number of the next byte to receive: position 0 of that direction.
    pub receive_next: SeqNum,
    /// Bytes that the peer allows from `send_next` on.
    pub send_window: u32,
    /// The largest window that the peer has ever allowed.
    pub max_send_window: u32,
    /// Bytes that the peer was promised from `receive_next` on.
    pub receive_window: u32,
    /// The scale of the windows that the peer sends. More than 14 means 14 (RFC 7323, 2.3).
    pub send_scale: u8,
    /// The scale of the windows that are sent to the peer.
    pub receive_scale: u8,
    /// Bytes of TCP payload and options that a segment may have: the peer's MSS option, or what the
    /// path's MTU leaves.
    pub mss: u16,
    /// The peer permits selective acknowledgements.
    pub sack: bool,
    /// Timestamps, if both have agreed on them.
    pub timestamps: Option<TimestampState>,
    /// The round trip time and its variation, if they have been measured.
    pub round_trip: Option<(Duration, Duration)>,
}

/// An algorithm of congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// No limit but the peer's window: for connections that never leave the daemon.
    None,
    /// NewReno (RFC 5681, RFC 6582).
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
}

/// Parameters of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The window that is promised to the peer when nothing is stored, in bytes. The scale limits
    /// it to 65,535 units.
    pub window: u32,
    /// Bytes that may be stored: those that arrive out of order and cannot be placed, and those
    /// that the sink does not take. If that is less than the window, what the peer may send is
    /// dropped beyond a gap, and while the sink holds back. Memory is touched as far as it is used.
    pub buffer: usize,
    /// Segments that may be unacknowledged.
    pub segments: usize,
    /// The algorithm of congestion control.
    pub congestion: Algorithm,
    /// The shortest retransmission time-out. Linux delays acknowledgements by up to 40 ms.
    pub min_rto: Duration,
    /// The longest delay of an acknowledgement.
    pub ack_delay: Duration,
    /// The connection is given up when the peer has acknowledged nothing for so long.
    pub user_timeout: Duration,
    /// The wait for late segments after both directions were closed (RFC 9293, 3.6.1), and the
    /// longest wait for the peer's end after the own end was acknowledged.
    pub time_wait: Duration,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            window: 1 << 20,
            buffer: 1 << 20,
            segments: 2048,
            congestion: Algorithm::Cubic,
            min_rto: Duration::from_millis(200),
            ack_delay: Duration::from_millis(1),
            user_timeout: Duration::from_secs(120),
            time_wait: Duration::from_secs(60),
        }
    }
}
