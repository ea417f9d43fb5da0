//! The GID table.

use parking_lot::RwLock;
use vrnic_packet::MacAddr;

use super::addresses::Address;
use crate::host::Host;

/// An entry of a GID table: an address from which packets are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The GID, which is an IP address.
    pub gid: [u8; 16],
    /// The VLAN, or the number for "no VLAN".
    pub vlan: u16,
    /// The MAC of its interface.
    pub mac: MacAddr,
}

/// The GID table of an adapter.
#[derive(Debug)]
pub(crate) struct Gids<H: Host>(RwLock<Vec<Option<Claimed<H>>>>);

#[derive(Debug)]
struct Claimed<H: Host> {
    entry: GidEntry,
    address: Address<H>,
    /// True if a rule for faults has removed it.
    hidden: bool,
}

impl<H: Host> Default for Gids<H> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<H: Host> Gids<H> {
    /// Sets the entry at an index. `address` is the adapter's claim to the MAC of the entry.
    pub(crate) fn set(&self, index: u16, entry: GidEntry, address: Address<H>) {
        let index = usize::from(index);
        let mut table = self.0.write();
        if table.len() <= index {
            table.resize_with(index + 1, || None);
        }
        if let Some(slot) = table.get_mut(index) {
            *slot = Some(Claimed { entry, address, hidden: false });
        }
    }

    /// Clears the entry at an index.
    pub(crate) fn unset(&self, index: u16) {
        if let Some(slot) = self.0.write().get_mut(usize::from(index)) {
            *slot = None;
        }
    }

    /// Clears all entries.
    pub(crate) fn clear(&self) {
        self.0.write().clear();
    }

    /// Hides the entries with these indices because of rules for faults, and shows all others.
    pub(crate) fn hide(&self, indices: &[u16]) {
        for (index, slot) in (0..).zip(self.0.write().iter_mut()) {
            if let Some(claimed) = slot {
                claimed.hidden = indices.contains(&index);
            }
        }
    }

    /// Returns the entry at an index, if it is set and its MAC belongs to the adapter.
    pub(crate) fn get(&self, index: u16) -> Option<GidEntry> {
        let table = self.0.read();
        let Claimed { entry, address, hidden } = table.get(usize::from(index))?.as_ref()?;
        (!hidden && address.is_own()).then_some(*entry)
    }

    /// Returns whether the table contains this entry.
    pub(crate) fn has(&self, entry: &GidEntry) -> bool {
        self.0.read().iter().flatten().any(|own| own.entry == *entry && !own.hidden)
    }

    /// Returns whether any entry is on this VLAN.
    pub(crate) fn has_vlan(&self, vlan: u16) -> bool {
        self.0.read().iter().flatten().any(|own| own.entry.vlan == vlan && !own.hidden)
    }
}
