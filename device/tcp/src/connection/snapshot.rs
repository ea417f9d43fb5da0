//! The numbers of a connection that people look at when it is slow, as `ss -ti` shows those of a
//! socket.

use std::time::Duration;

use vrnic_packet::Nanos;

use super::{Connection, State};
pub use crate::send::numbers::SendNumbers;

/// The state of a connection at one time. Amounts are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The state of TCP.
    pub state: State,
    /// The time at which the connection was taken over.
    pub since: Nanos,
    /// The idle time before the first keepalive probe, if there are probes.
    pub keepalive: Option<Duration>,
    /// The numbers of the sending direction.
    pub send: SendNumbers,
    /// What was sent since the takeover, without repetitions.
    pub sent: u64,
    /// What the peer has acknowledged since then.
    pub acknowledged: u64,
    /// What has arrived in order since then.
    pub received: u64,
    /// What the peer may send.
    pub receive_window: u64,
}

impl Connection {
    /// Returns the numbers of the connection.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: self.state(),
            since: self.since,
            keepalive: self.keepalive.idle(),
            send: self.send.numbers(),
            sent: self.sent().0,
            acknowledged: self.acknowledged().0,
            received: self.receive.received().0,
            receive_window: self.receive.room(),
        }
    }
}
