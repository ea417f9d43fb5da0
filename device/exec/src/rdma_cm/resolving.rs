//! Identifiers that wait for the address of a peer, for which the network was asked.

use std::net::IpAddr;
use std::time::Duration;

use vrnic_packet::Nanos;

use super::ids::Attached;

/// The time between two looks for addresses.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The way to a peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerWay {
    /// The GID of the peer.
    pub gid: [u8; 16],
    /// The own address.
    pub from: IpAddr,
    /// The adapter.
    pub attached: Attached,
}

/// An identifier that waits.
#[derive(Clone, Copy, Debug)]
pub struct Resolving {
    /// The number of the identifier.
    pub id: u32,
    /// The way whose end has no MAC yet.
    pub way: PeerWay,
    /// The time at which the wait ends.
    pub until: Nanos,
}
