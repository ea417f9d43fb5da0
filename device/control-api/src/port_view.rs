//! Ports of the switch as clients see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The connection at the outer end of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A function's network card in QEMU, and its adapter.
    Function,
    /// A guest's network card in QEMU, without an adapter.
    Guest,
    /// Another daemon.
    Trunk,
    /// A TAP device of the host.
    Tap,
    /// The network of an interface of the host.
    Packet,
}

impl Kind {
    /// Returns the name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Guest => "guest",
            Self::Trunk => "trunk",
            Self::Tap => "tap",
            Self::Packet => "packet",
        }
    }

    /// Returns whether the port leads out of the daemon.
    #[must_use]
    pub const fn is_uplink(self) -> bool {
        !matches!(self, Self::Function | Self::Guest)
    }
}

/// A port as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortView {
    /// The port's name.
    pub name: String,
    /// The connection at its outer end.
    pub kind: Kind,
    /// True if it has a link.
    pub up: bool,
    /// Longest IP packet in bytes; none if nothing limits it.
    pub mtu: Option<u32>,
    /// Frames that came into the switch.
    pub received_frames: u64,
    /// The bytes of these frames.
    pub received_bytes: u64,
    /// Frames that left the switch.
    pub sent_frames: u64,
    /// The bytes of these frames.
    pub sent_bytes: u64,
    /// Frames that were dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// The classes of the port that have had frames, if an operator has set lanes.
    #[serde(default)]
    pub lanes: Vec<LaneView>,
}

/// A class of a port as clients see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneView {
    /// The number of the class.
    pub class: u8,
    /// Frames that left.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Bytes that wait now.
    pub depth: u64,
    /// The most bytes that have waited at once.
    pub deepest: u64,
    /// Frames that were dropped.
    pub drops: u64,
    /// Frames that got a mark of congestion.
    pub marks: u64,
    /// The time for which the class was paused, in µs.
    pub paused_us: u64,
    /// PFC frames that were sent.
    pub pfc_sent: u64,
    /// PFC frames that were received.
    pub pfc_received: u64,
    /// Pauses that were too long.
    pub storms: u64,
}
