//! The addresses learnt from each port, in the order in which they were heard.

use std::collections::{BTreeMap, HashMap};

use vrnic_packet::VlanMac;

use super::PortId;

/// The share of each port in the table.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// The addresses of each port by their place. No port has none.
    ports: HashMap<PortId, BTreeMap<u64, VlanMac>>,
    /// The number of places that were given so far.
    places: u64,
}

impl Shares {
    /// Adds an address behind all others of a port. Returns its place.
    pub(super) fn push(&mut self, port: PortId, at: VlanMac) -> u64 {
        self.places += 1;
        self.ports.entry(port).or_default().insert(self.places, at);
        self.places
    }

    /// Removes the address at a place.
    pub(super) fn remove(&mut self, port: PortId, place: u64) {
        if let Some(share) = self.ports.get_mut(&port) {
            share.remove(&place);
            if share.is_empty() {
                self.ports.remove(&port);
            }
        }
    }

    /// Removes all addresses of a port, and returns them.
    pub(super) fn take(&mut self, port: PortId) -> impl Iterator<Item = VlanMac> + use<> {
        self.ports.remove(&port).into_iter().flat_map(BTreeMap::into_values)
    }

    /// Returns the number of addresses of a port.
    pub(super) fn len(&self, port: PortId) -> usize {
        self.ports.get(&port).map_or(0, BTreeMap::len)
    }

    /// Returns the first address of a port.
    pub(super) fn first(&self, port: PortId) -> Option<VlanMac> {
        self.ports.get(&port)?.first_key_value().map(|(_, at)| *at)
    }

    /// Returns the ports that have addresses.
    pub(super) fn ports(&self) -> Vec<PortId> {
        self.ports.keys().copied().collect()
    }
}
