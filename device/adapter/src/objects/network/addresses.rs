//! The MACs of the adapters of a daemon. Each adapter has a MAC of its own, and may use others:
//! those of its GIDs and of its TCP connections (macvlan, bridges, changed addresses).
//!
//! In each VLAN a MAC belongs to one adapter at a time: to the adapter whose own MAC it is, or else
//! to the first one that has claimed it in this VLAN. A claim of another adapter waits until that
//! adapter gives the MAC up. So a guest in one VLAN has no part in the MACs of another VLAN. A
//! claim has no effect as long as the network knows the MAC as that of another station, so by
//! claiming a MAC no guest receives the messages for a station that the network has heard. An
//! adapter loses its own MAC only while the network knows it as that of an adapter that has claimed
//! it, which the network allows between the adapters of one guest.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::RwLock;
use vrnic_abi::qp::NO_VLAN;
use vrnic_packet::{MacAddr, VlanMac};

use crate::ethernet::Uplink;
use crate::host::Host;
use crate::objects::Objects;

/// The adapters by MAC.
#[derive(Debug)]
pub(crate) struct Addresses<H: Host> {
    tables: RwLock<Tables<H>>,
    /// The network outside of the daemon, if there is one.
    uplink: OnceLock<Arc<dyn Uplink>>,
}

#[derive(Debug)]
struct Tables<H: Host> {
    /// The adapters by their own MAC.
    own: BTreeMap<MacAddr, Weak<Objects<H>>>,
    /// The adapters that have claimed a MAC, in the order of their claims. No list is empty.
    claimed: HashMap<VlanMac, Vec<Claimant<H>>>,
    /// The number of claims of each adapter to each MAC, in all VLANs together.
    named: HashMap<Named, usize>,
}

/// A MAC that an adapter has claimed in some VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Named {
    /// The adapter's own MAC.
    own: MacAddr,
    mac: MacAddr,
}

/// An adapter that has claimed a MAC.
#[derive(Debug)]
struct Claimant<H: Host> {
    adapter: Weak<Objects<H>>,
    /// Number of its claims.
    claims: usize,
}

/// The claim of an adapter to a MAC, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Address<H: Host> {
    at: VlanMac,
    named: Named,
    adapter: Weak<Objects<H>>,
    addresses: Arc<Addresses<H>>,
}

/// Returns a MAC in the VLAN with this number, or in none if it is the number for "no VLAN".
pub(crate) fn in_vlan(mac: MacAddr, vlan: u16) -> VlanMac {
    VlanMac::tagged(mac, Some(vlan).filter(|vlan| *vlan != NO_VLAN))
}

impl<H: Host> Default for Addresses<H> {
    fn default() -> Self {
        let (claimed, named) = (HashMap::new(), HashMap::new());
        let tables = Tables { own: BTreeMap::new(), claimed, named };
        Self { tables: RwLock::new(tables), uplink: OnceLock::new() }
    }
}

impl<H: Host> Addresses<H> {
    /// Connects the adapters with the network outside of the daemon. Only the first call has an
    /// effect.
    pub(crate) fn attach(&self, uplink: Arc<dyn Uplink>) {
        let _connected_before = self.uplink.set(uplink);
    }

    /// Returns the network outside of the daemon, if there is one.
    pub(crate) fn uplink(&self) -> Option<&dyn Uplink> {
        self.uplink.get().map(|uplink| &**uplink)
    }

    /// Adds an adapter with its own MAC, and removes adapters that do not exist any more.
    pub(crate) fn join(&self, adapter: &Arc<Objects<H>>) {
        let own = &mut self.tables.write().own;
        own.retain(|_, other| other.strong_count() > 0);
        own.insert(adapter.core().mac(), Arc::downgrade(adapter));
    }

    /// Returns the adapter whose own MAC this is.
    pub(crate) fn with_own(&self, mac: MacAddr) -> Option<Arc<Objects<H>>> {
        self.tables.read().own.get(&mac).and_then(Weak::upgrade)
    }

    /// Returns the adapter to which a MAC belongs in a VLAN.
    pub(crate) fn owner(&self, at: VlanMac) -> Option<Arc<Objects<H>>> {
        let tables = self.tables.read();
        let owner = tables.own.get(&at.mac).and_then(Weak::upgrade);
        let is_claimed = tables.claimed.contains_key(&at);
        drop(tables);
        if !is_claimed {
            return owner;
        }
        let is_foreign = |adapter: &Arc<Objects<H>>| {
            self.uplink().is_some_and(|uplink| uplink.is_foreign(adapter.core().mac(), at))
        };
        owner
            .as_ref()
            .filter(|owner| !is_foreign(owner))
            .cloned()
            .or_else(|| self.claimants(at).find(|claimant| !is_foreign(claimant)))
            .or(owner)
    }

    /// Returns the adapters that have claimed a MAC. None of them is dropped under the lock,
    /// because the claims of an adapter end when it is dropped.
    fn claimants(&self, at: VlanMac) -> impl Iterator<Item = Arc<Objects<H>>> {
        let nth = move |nth: usize| {
            let tables = self.tables.read();
            tables.claimed.get(&at)?.get(nth).map(|claimant| claimant.adapter.upgrade())
        };
        (0..).map_while(nth).flatten()
    }

    /// Returns whether an adapter has claimed a MAC in some VLAN, even if the MAC does not belong
    /// to it.
    pub(crate) fn is_claimed_by(&self, adapter: &Objects<H>, mac: MacAddr) -> bool {
        self.tables.read().named.contains_key(&Named { own: adapter.core().mac(), mac })
    }

    /// Returns the first adapter whose own MAC is within this lower bound.
    pub(crate) fn next(&self, from: Bound<MacAddr>) -> Option<Arc<Objects<H>>> {
        let tables = self.tables.read();
        tables.own.range((from, Bound::Unbounded)).find_map(|(_, adapter)| adapter.upgrade())
    }

    /// Claims a MAC in a VLAN for an adapter. Returns `None` if no station can have this MAC.
    pub(crate) fn claim(
        self: &Arc<Self>,
        at: VlanMac,
        adapter: &Arc<Objects<H>>,
    ) -> Option<Address<H>> {
        if at.mac.is_group() || at.mac.is_zero() {
            return None;
        }
        let named = Named { own: adapter.core().mac(), mac: at.mac };
        let adapter = Arc::downgrade(adapter);
        let mut tables = self.tables.write();
        *tables.named.entry(named).or_default() += 1;
        let claimants = tables.claimed.entry(at).or_default();
        match claimants.iter_mut().find(|other| other.adapter.ptr_eq(&adapter)) {
            Some(claimant) => claimant.claims += 1,
            None => claimants.push(Claimant { adapter: adapter.clone(), claims: 1 }),
        }
        Some(Address { at, named, adapter, addresses: Arc::clone(self) })
    }
}

impl<H: Host> Address<H> {
    /// Returns the MAC.
    pub(crate) const fn mac(&self) -> MacAddr {
        self.at.mac
    }

    /// Returns whether the MAC belongs to the adapter.
    pub(crate) fn is_own(&self) -> bool {
        let owner = self.addresses.owner(self.at);
        owner.is_some_and(|owner| std::ptr::eq(Arc::as_ptr(&owner), self.adapter.as_ptr()))
    }
}

impl<H: Host> Drop for Address<H> {
    fn drop(&mut self) {
        let mut tables = self.addresses.tables.write();
        let Tables { claimed, named, .. } = &mut *tables;
        if let Entry::Occupied(mut claims) = named.entry(self.named) {
            *claims.get_mut() -= 1;
            if *claims.get() == 0 {
                claims.remove();
            }
        }
        let Some(claimants) = claimed.get_mut(&self.at) else { return };
        claimants.retain_mut(|claimant| {
            if claimant.adapter.ptr_eq(&self.adapter) {
                claimant.claims -= 1;
            }
            claimant.claims > 0
        });
        if claimants.is_empty() {
            claimed.remove(&self.at);
        }
    }
}
