//! The multicast groups of an adapter, with the QPs that receive the messages of each group. There
//! is no list of the adapters with members; a datagram to a group is offered to all adapters.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use vrnic_abi::Qpn;

use crate::host::Host;
use crate::limits;
use crate::objects::qp::Qp;

/// The address of a group.
pub type Mgid = [u8; 16];

/// A table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A QP that has joined a multicast group.
#[derive(Debug)]
pub struct Member<H: Host> {
    /// The member's position in the order in which QPs of all adapters have joined groups.
    pub joined: u64,
    /// The QP that has joined the group.
    pub qp: Arc<Qp<H>>,
}

impl<H: Host> Clone for Member<H> {
    fn clone(&self) -> Self {
        Self { joined: self.joined, qp: Arc::clone(&self.qp) }
    }
}

/// Members by group, in the order in which they joined. A group exists while it has members.
#[derive(Debug)]
pub struct Groups<H: Host> {
    members: RwLock<BTreeMap<Mgid, Vec<Member<H>>>>,
    /// The maximum number of groups.
    max: AtomicU32,
}

impl<H: Host> Default for Groups<H> {
    fn default() -> Self {
        Self { members: RwLock::default(), max: AtomicU32::new(limits::MAX_MCAST_GROUPS) }
    }
}

impl<H: Host> Groups<H> {
    /// Returns the number of groups with members.
    #[must_use]
    pub fn count(&self) -> usize {
        self.members.read().len()
    }

    /// Sets the maximum number of groups. Groups above it stay.
    pub fn set_max(&self, max: u32) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Makes a QP a member, if it is not one. `join` returns its position in the order.
    ///
    /// # Errors
    /// [`Full`] if the group has the maximum number of members, or if there are too many groups.
    pub fn attach(
        &self,
        group: Mgid,
        qp: &Arc<Qp<H>>,
        join: impl FnOnce() -> u64,
    ) -> Result<(), Full> {
        let mut groups = self.members.write();
        let max = self.max.load(Ordering::Relaxed);
        if !groups.contains_key(&group) && groups.len() >= max as usize {
            return Err(Full);
        }
        let members = groups.entry(group).or_default();
        if members.iter().any(|member| Arc::ptr_eq(&member.qp, qp)) {
            return Ok(());
        }
        if members.len() >= limits::MAX_MCAST_QPS as usize {
            return Err(Full);
        }
        members.push(Member { joined: join(), qp: Arc::clone(qp) });
        Ok(())
    }

    /// Ends the membership of a QP. Returns false if it is not a member.
    pub fn detach(&self, group: Mgid, qpn: Qpn) -> bool {
        let mut groups = self.members.write();
        let Some(members) = groups.get_mut(&group) else { return false };
        let before = members.len();
        members.retain(|member| member.qp.qpn != qpn);
        let found = members.len() < before;
        if members.is_empty() {
            groups.remove(&group);
        }
        found
    }

    /// Ends all memberships of a QP.
    pub fn forget(&self, qpn: Qpn) {
        if self.members.read().is_empty() {
            return;
        }
        self.members.write().retain(|_, members| {
            members.retain(|member| member.qp.qpn != qpn);
            !members.is_empty()
        });
    }

    /// Ends all memberships.
    pub fn clear(&self) {
        self.members.write().clear();
    }

    /// Returns at most `limit` members of a group, from this position on, and the position of the
    /// next one.
    #[must_use]
    pub fn members(&self, group: &Mgid, first: u64, limit: usize) -> (Vec<Member<H>>, Option<u64>) {
        let groups = self.members.read();
        let all = groups.get(group).map_or(&[][..], Vec::as_slice);
        let mut rest = all.iter().skip(all.partition_point(|member| member.joined < first));
        let members = rest.by_ref().take(limit).cloned().collect();
        (members, rest.next().map(|member| member.joined))
    }
}

/// Returns whether this is a multicast address (RFC 4291, 2.7; RFC 5771 for IPv4).
#[must_use]
pub fn is_group(gid: &Mgid) -> bool {
    let address = Ipv6Addr::from(*gid);
    address.to_ipv4_mapped().map_or(address.is_multicast(), |mapped| mapped.is_multicast())
}
