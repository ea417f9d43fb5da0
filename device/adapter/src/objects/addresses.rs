//! The MACs of the adapters of a daemon. Each adapter has a MAC of its own, and may use others:
//! those of its GIDs and of its TCP connections (macvlan, bridges, changed addresses).
//!
//! A MAC belongs to one adapter at a time: to the adapter whose own MAC it is, or else to the first
//! one that has claimed it. A claim of another adapter waits until that adapter gives the MAC up. A
//! claim has no effect as long as the network knows the MAC as that of another station, so by
//! claiming a MAC no guest receives the messages for a station that the network has heard. An
//! adapter loses its own MAC only while the network knows it as that of an adapter that has claimed
//! it, which the network allows between the adapters of one guest.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::RwLock;
use vrnic_packet::MacAddr;

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
    claimed: HashMap<MacAddr, Vec<Claimant<H>>>,
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
    mac: MacAddr,
    adapter: Weak<Objects<H>>,
    addresses: Arc<Addresses<H>>,
}

impl<H: Host> Default for Addresses<H> {
    fn default() -> Self {
        let tables = Tables { own: BTreeMap::new(), claimed: HashMap::new() };
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

    /// Returns the adapter to which a MAC belongs.
    pub(crate) fn owner(&self, mac: MacAddr) -> Option<Arc<Objects<H>>> {
        let tables = self.tables.read();
        let owner = tables.own.get(&mac).and_then(Weak::upgrade);
        let is_claimed = tables.claimed.contains_key(&mac);
        drop(tables);
        if !is_claimed {
            return owner;
        }
        let is_foreign = |adapter: &Arc<Objects<H>>| {
            self.uplink().is_some_and(|uplink| uplink.is_foreign(adapter.core().mac(), mac))
        };
        owner
            .as_ref()
            .filter(|owner| !is_foreign(owner))
            .cloned()
            .or_else(|| self.claimants(mac).find(|claimant| !is_foreign(claimant)))
            .or(owner)
    }

    /// Returns the adapters that have claimed a MAC. None of them is dropped under the lock,
    /// because the claims of an adapter end when it is dropped.
    fn claimants(&self, mac: MacAddr) -> impl Iterator<Item = Arc<Objects<H>>> {
        let nth = move |nth: usize| {
            let tables = self.tables.read();
            tables.claimed.get(&mac)?.get(nth).map(|claimant| claimant.adapter.upgrade())
        };
        (0..).map_while(nth).flatten()
    }

    /// Returns whether an adapter has claimed a MAC, even if the MAC does not belong to it.
    pub(crate) fn is_claimed_by(&self, adapter: &Objects<H>, mac: MacAddr) -> bool {
        let tables = self.tables.read();
        let mut claimants = tables.claimed.get(&mac).into_iter().flatten();
        claimants.any(|claimant| std::ptr::eq(claimant.adapter.as_ptr(), adapter))
    }

    /// Returns the first adapter whose own MAC is within this lower bound.
    pub(crate) fn next(&self, from: Bound<MacAddr>) -> Option<Arc<Objects<H>>> {
        let tables = self.tables.read();
        tables.own.range((from, Bound::Unbounded)).find_map(|(_, adapter)| adapter.upgrade())
    }

    /// Claims a MAC for an adapter. Returns `None` if no station can have this MAC.
    pub(crate) fn claim(
        self: &Arc<Self>,
        mac: MacAddr,
        adapter: &Arc<Objects<H>>,
    ) -> Option<Address<H>> {
        if mac.is_group() || mac.is_zero() {
            return None;
        }
        let adapter = Arc::downgrade(adapter);
        let mut tables = self.tables.write();
        let claimants = tables.claimed.entry(mac).or_default();
        match claimants.iter_mut().find(|other| other.adapter.ptr_eq(&adapter)) {
            Some(claimant) => claimant.claims += 1,
            None => claimants.push(Claimant { adapter: adapter.clone(), claims: 1 }),
        }
        Some(Address { mac, adapter, addresses: Arc::clone(self) })
    }
}

impl<H: Host> Address<H> {
    /// Returns the MAC.
    pub(crate) const fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Returns whether the MAC belongs to the adapter.
    pub(crate) fn is_own(&self) -> bool {
        let owner = self.addresses.owner(self.mac);
        owner.is_some_and(|owner| std::ptr::eq(Arc::as_ptr(&owner), self.adapter.as_ptr()))
    }
}

impl<H: Host> Drop for Address<H> {
    fn drop(&mut self) {
        let mut tables = self.addresses.tables.write();
        let Some(claimants) = tables.claimed.get_mut(&self.mac) else { return };
        claimants.retain_mut(|claimant| {
            if claimant.adapter.ptr_eq(&self.adapter) {
                claimant.claims -= 1;
            }
            claimant.claims > 0
        });
        if claimants.is_empty() {
            tables.claimed.remove(&self.mac);
        }
    }
}
