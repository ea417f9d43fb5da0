//! Ethernet frames on their way between an adapter and the network outside of its daemon.

use std::fmt;

/// An Ethernet frame without preamble and check sequence.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame(Vec<u8>);

impl Frame {
    /// Makes a frame of these bytes, which begin with the destination's MAC.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes, to be used elsewhere.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.0.len())
    }
}

/// The network outside of the daemon, as its adapters see it. Workers call it in their turns, so it
/// never waits: a frame that finds no room is lost, as on any Ethernet.
pub trait Uplink: fmt::Debug + Send + Sync {
    /// Takes frames that the adapter with the MAC `source` sends, in their order.
    fn send(&self, source: [u8; 6], frames: &mut Vec<Frame>);
}
