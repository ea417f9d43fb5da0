//! TCP connections of the guest that the adapter has taken over. Their frames are for QPs instead
//! of the guest's network card.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use vrnic_abi::Qpn;
use vrnic_abi::admin::Status;
use vrnic_tcp::Budget;

use crate::limits::{CONNECTION_MEMORY, MAX_CONNECTIONS};

/// The addresses of a connection, as seen from this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// The VLAN identifier.
    pub vlan: Option<u16>,
    /// The local address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
}

impl Tuple {
    const fn hosts(&self) -> Hosts {
        (self.vlan, self.local.ip(), self.remote.ip())
    }
}

/// Two hosts with connections: the VLAN, the local and the remote address.
type Hosts = (Option<u16>, IpAddr, IpAddr);

/// The connections of an adapter.
#[derive(Debug)]
pub struct Claims {
    table: RwLock<Table>,
    count: AtomicUsize,
    /// The memory for their buffers.
    pub memory: Arc<Budget>,
}

#[derive(Debug, Default)]
struct Table {
    qps: HashMap<Tuple, Qpn>,
    /// The number of connections between two hosts.
    hosts: HashMap<Hosts, u32>,
}

impl Default for Claims {
    fn default() -> Self {
        let memory = Budget::new(CONNECTION_MEMORY);
        Self { table: RwLock::default(), count: AtomicUsize::new(0), memory }
    }
}

impl Claims {
    /// Assigns the frames of a connection to a QP, until the result is dropped.
    ///
    /// # Errors
    /// [`Status::Busy`] if they are assigned to another QP, [`Status::NoResource`] if there are too
    /// many connections.
    pub fn claim(self: &Arc<Self>, tuple: Tuple, qpn: Qpn) -> Result<Claim, Status> {
        let mut table = self.table.write();
        let Table { qps, hosts } = &mut *table;
        if qps.contains_key(&tuple) {
            return Err(Status::Busy);
        }
        if qps.len() >= MAX_CONNECTIONS as usize {
            return Err(Status::NoResource);
        }
        qps.insert(tuple, qpn);
        *hosts.entry(tuple.hosts()).or_default() += 1;
        self.count.store(qps.len(), Ordering::Release);
        Ok(Claim { claims: Arc::clone(self), tuple })
    }

    /// Returns whether there are any connections.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Returns whether there is a connection between these IP addresses, whatever its ports are.
    #[must_use]
    pub fn has_between(&self, vlan: Option<u16>, local: IpAddr, remote: IpAddr) -> bool {
        self.table.read().hosts.contains_key(&(vlan, local, remote))
    }

    /// Returns the QP for the frames of a connection.
    #[must_use]
    pub fn find(&self, tuple: &Tuple) -> Option<Qpn> {
        self.table.read().qps.get(tuple).copied()
    }
}

/// A connection whose frames are for a QP.
#[derive(Debug)]
pub struct Claim {
    claims: Arc<Claims>,
    tuple: Tuple,
}

impl Claim {
    /// Returns the addresses of the connection.
    pub(crate) const fn tuple(&self) -> &Tuple {
        &self.tuple
    }

    /// Assigns the frames of the connection to another QP.
    pub(crate) fn give_to(&self, qpn: Qpn) {
        self.claims.table.write().qps.insert(self.tuple, qpn);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = self.claims.table.write();
        let Table { qps, hosts } = &mut *table;
        qps.remove(&self.tuple);
        if let Entry::Occupied(mut entry) = hosts.entry(self.tuple.hosts()) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
        self.claims.count.store(qps.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_for_one_qp_at_a_time() {
        let claims = Arc::new(Claims::default());
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let tuple = Tuple { vlan: None, local: address(1), remote: address(2) };
        let claim = claims.claim(tuple, Qpn::new(7)).expect("it is free");
        assert!(claims.any());
        let taken = claims.claim(tuple, Qpn::new(8)).map(drop);
        assert_eq!(taken, Err(Status::Busy));
        assert_eq!(claims.find(&tuple), Some(Qpn::new(7)));
        assert_eq!(claims.find(&Tuple { vlan: Some(3), ..tuple }), None);
        let between = |vlan| claims.has_between(vlan, tuple.local.ip(), tuple.remote.ip());
        assert!(between(None) && !between(Some(3)));
        drop(claim);
        assert!(!claims.any() && claims.find(&tuple).is_none() && !between(None));
    }

    #[test]
    fn the_number_of_connections_is_limited() {
        let claims = Arc::new(Claims::default());
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let claim = |port| {
            let tuple = Tuple { vlan: None, local: address(1), remote: address(port) };
            claims.claim(tuple, Qpn::new(7))
        };
        let count = u16::try_from(MAX_CONNECTIONS).expect("a number of a port");
        let all: Vec<Claim> = (0..count).map(|port| claim(port).expect("room")).collect();
        assert_eq!(claim(count).map(drop), Err(Status::NoResource));
        drop(all);
        assert!(claim(count).is_ok());
    }
}
