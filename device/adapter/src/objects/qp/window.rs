//! Bytes of a message of packets that become visible in another order, because a rule for faults
//! demands it (docs/faults.md).
//!
//! The bytes of packets are kept until the last packet of the message arrives, or the window is
//! full. Then it closes: its blocks are placed, a few at a time, before the packet that has closed
//! it is executed. Packets that arrive in the meantime wait behind it.

use std::collections::VecDeque;
use std::sync::Arc;

use vrnic_packet::Nanos;
use vrnic_roce::responder::Arrival;

use super::waiting_frame::WaitingFrame;

/// The most bytes of a window.
pub(super) const MAX_BYTES: usize = 64 << 10;
/// The most packets that wait behind a window. The peer must send further ones again.
const MAX_BEHIND: usize = 64;

/// The message in progress.
#[derive(Debug)]
pub(crate) struct Window {
    /// The number of the message.
    pub(crate) number: u64,
    /// The seed of the order; none for the usual order.
    pub(crate) seed: Option<u64>,
    /// The place of the first byte in the message.
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
    /// The packet that has closed the window.
    pub(crate) closing: Option<Closing>,
    /// Limits the number of windows of the adapter.
    pub(crate) _ticket: Option<Arc<()>>,
}

/// The packet that has closed a window.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) arrival: Arrival,
    pub(crate) frame: Box<WaitingFrame>,
    /// The place of the next block in the order.
    pub(crate) place: u64,
    /// The time at which the next blocks are placed.
    pub(crate) due: Nanos,
    /// The packets that wait.
    pub(crate) behind: VecDeque<Box<WaitingFrame>>,
}

/// The time at which the bytes of a packet are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placing {
    /// The bytes are placed at once.
    Usual,
    /// With a later packet of its message.
    Kept,
    /// Before the packet is executed, in turns of the QP.
    Later,
}

impl Window {
    /// Returns whether further bytes fit.
    pub(crate) fn fits(&self, count: usize) -> bool {
        self.bytes.len() + count < MAX_BYTES
    }

    /// Makes a packet wait behind the window. Returns whether there was room.
    pub(crate) fn wait(&mut self, packet: Box<WaitingFrame>) -> bool {
        match &mut self.closing {
            Some(closing) if closing.behind.len() < MAX_BEHIND => {
                closing.behind.push_back(packet);
                true
            }
            _ => false,
        }
    }
}
