//! The delivery of a datagram to the members of a group. There may be many, so each poll delivers
//! it to some of them. Members are ordered by the time at which they joined, so each one receives
//! the datagram once, whatever members join or leave in the meantime.

use std::ops::Bound;
use std::sync::Arc;

use arrayvec::ArrayVec;
use vrnic_packet::MacAddr;

use crate::datapath::constants::MEMBERS_AT_ONCE;
use crate::datapath::transport::peers::Fabric;
use crate::host::Host;
use crate::objects::multicast::{Member, Mgid};
use crate::objects::qp::{Peer, Place, Progress};
use crate::slice::{Slice, cost};

/// Starts the delivery of a datagram to a group.
pub(crate) fn begin<H: Host>(fabric: &Fabric<H>) -> Progress {
    let next = Some(Place { mac: MacAddr([0; 6]), joined: 0 });
    Progress { next, end: fabric.joined(), delivered: false }
}

/// Some members of a group, in order.
pub(crate) struct Members<H: Host> {
    /// The position of the first one.
    from: Place,
    /// The members, and their positions.
    some: ArrayVec<(Place, Peer<H>), MEMBERS_AT_ONCE>,
    /// The position of the next members, if there are more.
    next: Option<Place>,
}

impl<H: Host> Members<H> {
    /// Looks up members of `group` on `vlan`, from the position `from` on.
    pub(crate) fn find(
        fabric: &Fabric<H>,
        group: &Mgid,
        vlan: u16,
        from: Place,
        slice: &Slice<'_, H>,
    ) -> Self {
        let mut this = Self { from, some: ArrayVec::new(), next: None };
        let mut at = Bound::Included(from.mac);
        while let Some(peer) = fabric.next(at) {
            slice.charge(cost::ADAPTER);
            let mac = peer.core().mac();
            if peer.gids.has_vlan(vlan) {
                let first = if mac == from.mac { from.joined } else { 0 };
                let room = this.some.remaining_capacity();
                let (here, more) = peer.groups.members(group, first, room);
                this.some.extend(here.into_iter().map(|Member { joined, qp }| {
                    (Place { mac, joined }, Peer { core: Arc::clone(peer.core()), qp })
                }));
                this.next = more.map(|joined| Place { mac, joined });
                if this.next.is_some() {
                    break;
                }
            }
            at = Bound::Excluded(mac);
            if slice.is_over() {
                this.next = Some(Place { mac, joined: u64::MAX });
                break;
            }
        }
        this
    }

    /// Calls `deliver` for the members that have not received the datagram, until the slice is
    /// over. `deliver` returns whether the member has received it, or `None` to stop.
    pub(crate) fn each(
        &self,
        progress: &mut Progress,
        slice: &Slice<'_, H>,
        mut deliver: impl FnMut(&Peer<H>) -> Option<bool>,
    ) {
        for (place, member) in &self.some {
            if place.joined >= progress.end {
                continue;
            }
            let Some(delivered) = deliver(member) else { return };
            progress.delivered |= delivered;
            progress.next = Some(Place { joined: place.joined + 1, ..*place });
            if slice.is_over() {
                return;
            }
        }
        progress.next = self.next;
    }

    /// Returns whether these are the members from `place` on.
    pub(crate) fn begin_at(&self, place: Place) -> bool {
        self.from == place
    }
}
