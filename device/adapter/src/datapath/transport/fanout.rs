//! A datagram's way to the members of a group, who may be many: it goes to some of them in each
//! poll. Members are told apart by the order in which they joined, so each receives it once,
//! whoever joins or leaves meanwhile.

use std::ops::Bound;
use std::sync::Arc;

use arrayvec::ArrayVec;

use crate::datapath::transport::peers::Fabric;
use crate::host::Host;
use crate::objects::multicast::{Member, Mgid};
use crate::objects::qp::{Peer, Place, Progress};
use crate::slice::{Slice, cost};

/// Members that are looked up at once.
const FEW: usize = 64;

/// A datagram to a group that leaves now.
pub(crate) fn begin<H: Host>(fabric: &Fabric<H>) -> Progress {
    let next = Some(Place { mac: [0; 6], joined: 0 });
    Progress { next, end: fabric.joined(), delivered: false }
}

/// Some members, in order.
pub(crate) struct Members<H: Host> {
    /// Position of the first.
    from: Place,
    /// The members, and their places.
    some: ArrayVec<(Place, Peer<H>), FEW>,
    /// Position of the next ones, if there are more.
    next: Option<Place>,
}

impl<H: Host> Members<H> {
    /// Looks up members of `group` that are on `vlan`, from `from` on.
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
            if peer.has_vlan(vlan) {
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

    /// Calls `deliver` for those that the datagram has still to go to, until the slice is over; it
    /// tells whether the member has received it, or `None` to end.
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
