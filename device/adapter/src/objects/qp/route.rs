//! The addresses of the packets of a connection.

use vrnic_packet::ip::Addresses;
use vrnic_packet::{MacAddr, VlanMac};

use crate::objects::network::addresses::in_vlan;

/// The addresses of the packets of one direction of a connection. Messages that are copied have
/// them too: a peer accepts only messages of the route that it expects, as it accepts only such
/// packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The MAC of the sender, or of the gateway from it.
    pub from: MacAddr,
    /// The MAC of the receiver, or of the gateway to it.
    pub to: MacAddr,
    /// The IP addresses.
    pub addresses: Addresses,
    /// The VLAN, or the number for "no VLAN".
    pub vlan: u16,
}

impl Route {
    /// Returns the sender in its VLAN.
    pub(crate) fn sender(&self) -> VlanMac {
        in_vlan(self.from, self.vlan)
    }

    /// Returns the receiver in its VLAN.
    pub(crate) fn receiver(&self) -> VlanMac {
        in_vlan(self.to, self.vlan)
    }

    /// Returns the route of the opposite direction.
    #[must_use]
    pub const fn reversed(&self) -> Self {
        Self { from: self.to, to: self.from, addresses: self.addresses.reversed(), vlan: self.vlan }
    }
}
