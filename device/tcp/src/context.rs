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
    /// The value to send at the time of the takeover. It never decreases.
    pub value: u32,
    /// The unit of `value`.
    pub tick: Tick,
    /// The newest value of the peer.
    pub recent: u32,
}

/// The state of an established connection at the takeover. At that time all bytes that were sent
/// have been acknowledged, and all bytes that were received have been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The number of the next byte to send, which is position 0 of that direction.
    pub send_next: SeqNum,
    /// The number of the next byte to receive, which is position 0 of that direction.
    pub receive_next: SeqNum,
    /// The number of bytes from `send_next` on that the peer allows.
    pub send_window: u32,
    /// The largest window that the peer has ever allowed.
    pub max_send_window: u32,
    /// The number of bytes from `receive_next` on that were promised to the peer.
    pub receive_window: u32,
    /// The window scale of the peer. Values above 14 count as 14 (RFC 7323, 2.3).
    pub send_scale: u8,
    /// The window scale of this end.
    pub receive_scale: u8,
    /// True if the peer has closed its direction. `receive_next` is then the number after the end.
    pub peer_closed: bool,
    /// Maximum number of bytes of TCP payload and options in a segment: the peer's MSS option, or
    /// the limit of the path's MTU.
    pub mss: u16,
    /// True if the peer permits selective acknowledgements.
    pub sack: bool,
    /// Timestamps, if both ends have agreed on them.
    pub timestamps: Option<TimestampState>,
    /// The round trip time and its variation, if they have been measured.
    pub round_trip: Option<(Duration, Duration)>,
}

/// An algorithm of congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// No limit except the peer's window, for tests.
    None,
    /// CUBIC (RFC 9438).
    Cubic,
}

/// Parameters of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The window in bytes that is promised to the peer when nothing is stored. The scale limits it
    /// to 65,535 units.
    pub window: u32,
    /// Maximum number of stored bytes: those that arrive out of order and cannot be placed, and
    /// those that the sink does not take. If it is less than the window, bytes from the peer may be
    /// dropped beyond a gap, and while the sink holds back. Memory is touched only when it is used.
    pub buffer: usize,
    /// Maximum number of unacknowledged segments.
    pub segments: usize,
    /// The algorithm of congestion control.
    pub congestion: Algorithm,
    /// The minimum retransmission time-out. Linux delays acknowledgements by up to 40 ms.
    pub min_rto: Duration,
    /// The maximum delay of an acknowledgement.
    pub ack_delay: Duration,
    /// The connection ends if the peer acknowledges nothing for this time.
    pub user_timeout: Duration,
    /// The wait for late segments after both directions were closed (RFC 9293, 3.6.1), and the
    /// maximum wait for the peer's end after the local end was acknowledged.
    pub time_wait: Duration,
    /// True if the peer may keep its direction open for as long as it wants after the local end was
    /// acknowledged. It is then probed as if both directions were open.
    pub half_open: bool,
    /// The time without a segment of the peer after which an idle connection probes it, if it is to
    /// do so ([`crate::connection::keepalive`]).
    pub keepalive: Option<Duration>,
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
            half_open: false,
            keepalive: None,
        }
    }
}
