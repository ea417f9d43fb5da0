//! The addresses of the packets of a connection.

use vrnic_packet::ip::Addresses;

/// The addresses of the packets of one direction of a connection. Messages that are copied have
/// them too: a peer accepts only messages of the route that it expects, as it accepts only such
/// packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The IP addresses.
    pub addresses: Addresses,
    /// The VLAN, or the number for "no VLAN".
    pub vlan: u16,
}

impl Route {
    /// Returns the route of the opposite direction.
    #[must_use]
    pub const fn reversed(&self) -> Self {
        Self { addresses: self.addresses.reversed(), vlan: self.vlan }
    }
}
