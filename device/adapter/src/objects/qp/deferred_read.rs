//! The last answer of a READ whose bytes the host has taken over and not written yet. It is
//! executed when they are written. Packets that arrive in the meantime wait behind it.

use std::collections::VecDeque;
use std::time::Duration;

use vrnic_packet::Nanos;

use super::waiting_frame::WaitingFrame;

/// The most packets that wait, with the first one. The peer must send further ones again.
const MAX_PACKETS: usize = 64;
/// The longest time for which they wait. Then they are dropped, and the peer is asked for them
/// again, because it may be waiting for an acknowledgement.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// The answer, and the packets after it.
#[derive(Debug)]
pub(crate) struct DeferredRead {
    packets: VecDeque<Box<WaitingFrame>>,
    /// The time at which the answer is executed, if its bytes are written then.
    pub(crate) due: Nanos,
    /// The time at which they are dropped.
    pub(crate) until: Nanos,
}

impl DeferredRead {
    /// Creates it for an answer that has just arrived.
    pub(crate) fn new(now: Nanos, due: Nanos) -> Self {
        Self { packets: VecDeque::new(), due, until: now.plus(MAX_WAIT) }
    }

    /// Adds a packet. Returns whether there was room.
    pub(crate) fn wait(&mut self, packet: Box<WaitingFrame>) -> bool {
        let has_room = self.packets.len() < MAX_PACKETS;
        if has_room {
            self.packets.push_back(packet);
        }
        has_room
    }

    /// Returns all packets, in the order in which they have arrived.
    pub(crate) fn into_packets(self) -> VecDeque<Box<WaitingFrame>> {
        self.packets
    }
}
