//! The memory of a send queue, in the guest or in the device.

use crate::memory::device_sq::DeviceRing;
use crate::memory::pages::Ring;

/// The memory of a send queue.
#[derive(Debug)]
pub enum SendRing {
    /// The queue is in guest memory, and its entries are posted by a producer index.
    Guest(Ring),
    /// The queue is in BAR2, and its entries are posted by their stamps.
    Device(DeviceRing),
    /// The QP has no send queue.
    None,
}

impl SendRing {
    /// Returns the number of its entries.
    #[must_use]
    pub fn size(&self) -> u32 {
        match self {
            Self::Guest(ring) => ring.size(),
            Self::Device(ring) => ring.size(),
            Self::None => 0,
        }
    }

    /// Returns the number of bytes from one entry to the next, or zero without a queue.
    #[must_use]
    pub fn stride(&self) -> usize {
        match self {
            Self::Guest(ring) => ring.stride(),
            Self::Device(ring) => ring.stride(),
            Self::None => 0,
        }
    }

    /// Returns the ring in BAR2, if the queue has one.
    #[must_use]
    pub fn device(&self) -> Option<DeviceRing> {
        match self {
            Self::Device(ring) => Some(*ring),
            Self::Guest(_) | Self::None => None,
        }
    }
}
