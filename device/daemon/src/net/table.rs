//! The switch's address table (IEEE 802.1Q, 8.8). Learnt entries age, and each is for one VLAN, so
//! that a guest in one VLAN has no effect on the stations of another one. The entries of configured
//! adapters are bound to their ports in all VLANs, so that no guest can receive the frames of
//! another one. Only another port of the same guest can use such an address for a time, as the
//! cards of a bond do.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use vrnic_packet::{MacAddr, VlanMac};

use self::shares::Shares;

mod shares;
#[cfg(test)]
mod tests;

/// Time after which an address that has sent no frame is removed (IEEE 802.1Q, table 8-6).
pub const AGEING: Duration = Duration::from_secs(300);
/// Maximum number of addresses learnt from the port of a guest. A guest that invents addresses
/// fills only its own share of the table.
pub const GUEST_CAPACITY: usize = 512;
/// Maximum number of addresses learnt from an uplink.
pub const UPLINK_CAPACITY: usize = 16_384;
/// Maximum number of addresses that are removed at once because of their age.
const AGED_MAX: usize = 512;
/// The precision of the order in which addresses were heard. So a station that always sends takes a
/// new place in it only that often.
const ORDER_STEP: Duration = Duration::from_secs(1);

/// Time without a frame after which an address may move to the port of a guest.
pub const SILENCE: Duration = Duration::from_secs(2);

/// Number of a port.
pub type PortId = usize;

/// The port that a frame came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The number of the port.
    pub port: PortId,
    /// True if other hosts or daemons are behind it, and false if a guest is.
    pub uplink: bool,
    /// True if the adapter of the port has sent the frame, and false if it came by the line.
    pub adapter: bool,
}

/// Result of learning a source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The frame may pass.
    Accept,
    /// The address belongs to another port.
    Forged,
}

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the port of the address.
    Port(PortId),
    /// To all ports except the one that it came from, because it is to a group.
    Group,
    /// To those of these ports behind which the address may be, because it is not in the table.
    Unknown,
    /// To no other port, because its destination is behind the port that it came from.
    Filter,
}

/// An address that is bound to a port.
#[derive(Clone, Copy, Debug)]
struct Bound {
    owner: PortId,
    /// The port of its frames: the owner, or another port of the owner's guest.
    port: PortId,
}

/// A station that was heard.
#[derive(Clone, Copy, Debug)]
struct Station {
    port: PortId,
    heard: Instant,
    /// The port from which a guest has taken the address, because it was silent there.
    taken_from: Option<PortId>,
    /// The number of messages that the adapter of the port had moved when another guest has last
    /// wanted the address, and the time at which it was seen first.
    messages: Option<(u64, Instant)>,
    /// The address's place in the order of the port's addresses, and the time at which the port has
    /// taken it.
    place: u64,
    placed: Instant,
}

impl Station {
    /// Returns whether a frame with its address may come from another port than before. A guest
    /// can so only get an address that was silent for [`SILENCE`], and loses it when its owner is
    /// heard again. What comes from an uplink is believed at once, because networks change, and so
    /// a guest cannot keep the address of a station that it has claimed first. `messages` is as for
    /// [`MacTable::hear`].
    fn may_move(
        &mut self,
        to: Origin,
        now: Instant,
        messages: impl FnOnce(PortId) -> Option<u64>,
    ) -> bool {
        to.uplink
            || self.taken_from == Some(to.port)
            || now.saturating_duration_since(self.heard) >= SILENCE
                && messages(self.port).is_none_or(|count| self.is_idle(count, now))
    }

    /// Returns whether the adapter of the port, which has moved this number of messages so far, has
    /// moved none for [`SILENCE`]. The first guest that wants the address begins the time.
    fn is_idle(&mut self, count: u64, now: Instant) -> bool {
        match self.messages {
            Some((before, since)) if before == count => {
                now.saturating_duration_since(since) >= SILENCE
            }
            _ => {
                self.messages = Some((count, now));
                false
            }
        }
    }
}

/// The ports of the addresses in the table, for threads that do not run the switch.
#[derive(Debug, Default)]
pub struct Places(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    bound: HashMap<MacAddr, PortId>,
    learnt: HashMap<VlanMac, PortId>,
}

impl Places {
    /// Returns the port of an address.
    #[must_use]
    pub fn port_of(&self, at: VlanMac) -> Option<PortId> {
        let known = self.0.read();
        known.bound.get(&at.mac).or_else(|| known.learnt.get(&at)).copied()
    }
}

/// The port behind which each address is.
#[derive(Debug, Default)]
pub struct MacTable {
    bound: HashMap<MacAddr, Bound>,
    /// The stations whose addresses are not bound.
    learnt: HashMap<VlanMac, Station>,
    /// The port of each entry.
    places: Arc<Places>,
    /// Addresses learnt from each port.
    shares: Shares,
    /// The time at which an address of an uplink had to make room for another one.
    crowded: Option<Instant>,
    /// The addresses that are lent, and some that were.
    lent: HashSet<MacAddr>,
}

impl MacTable {
    /// Creates an empty table that copies the ports of its entries to `places`.
    #[must_use]
    pub fn new(places: &Arc<Places>) -> Self {
        Self { places: Arc::clone(places), ..Self::default() }
    }

    /// Binds an address to a port.
    pub fn bind(&mut self, mac: MacAddr, port: PortId) {
        let heard: Vec<VlanMac> = self.learnt.keys().copied().filter(|at| at.mac == mac).collect();
        heard.into_iter().for_each(|at| self.forget(at));
        self.place_bound(mac, Bound { owner: port, port });
    }

    /// Removes an address that was bound to a port.
    pub fn unbind(&mut self, mac: MacAddr, port: PortId) {
        if self.owner(mac) == Some(port) {
            self.bound.remove(&mac);
            self.places.0.write().bound.remove(&mac);
        }
    }

    /// Returns the port to which an address is bound.
    #[must_use]
    pub fn owner(&self, mac: MacAddr) -> Option<PortId> {
        self.bound.get(&mac).map(|bound| bound.owner)
    }

    /// Gives the frames to an address that is bound to another port to this port, until a frame
    /// with this address comes by the line of its owner, the port loses its link, or
    /// [`Self::keep_lent`] ends it. Both ports are of one guest.
    pub fn lend(&mut self, mac: MacAddr, port: PortId) {
        if let Some(owner) = self.owner(mac) {
            self.place_bound(mac, Bound { owner, port });
            self.lent.insert(mac);
        }
    }

    /// Returns whether the frames to an address go to this port.
    #[must_use]
    pub fn is_at(&self, at: VlanMac, port: PortId) -> bool {
        self.port_of(at) == Some(port)
    }

    /// Returns the port of the frames to an address.
    fn port_of(&self, at: VlanMac) -> Option<PortId> {
        let bound = self.bound.get(&at.mac).map(|bound| bound.port);
        bound.or_else(|| self.learnt.get(&at).map(|station| station.port))
    }

    /// Returns whether any address is lent.
    #[must_use]
    pub fn lends(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Gives the lent addresses back for which `keep` does not hold, with their owner and the port
    /// that they are lent to.
    pub fn keep_lent(&mut self, keep: impl Fn(PortId, PortId) -> bool) {
        let mut lent = std::mem::take(&mut self.lent);
        lent.retain(|mac| match self.bound.get(mac) {
            Some(Bound { owner, port }) if owner == port => false,
            Some(Bound { owner, port }) if keep(*owner, *port) => true,
            Some(Bound { owner, .. }) => {
                let owner = *owner;
                self.place_bound(*mac, Bound { owner, port: owner });
                false
            }
            None => false,
        });
        self.lent = lent;
    }

    /// Records that a station has sent a frame. `messages` returns the number of messages that the
    /// adapter of a port has moved, if it has named the address. These do not pass the switch if
    /// they are copied.
    pub fn hear(
        &mut self,
        at: VlanMac,
        from: Origin,
        now: Instant,
        messages: impl FnOnce(PortId) -> Option<u64>,
    ) -> Verdict {
        if at.mac.is_group() || at.mac.is_zero() {
            return Verdict::Forged;
        }
        match self.bound.get(&at.mac) {
            Some(bound) if bound.owner != from.port => return Verdict::Forged,
            Some(bound) => {
                if bound.port != from.port && !from.adapter {
                    self.place_bound(at.mac, Bound { owner: from.port, port: from.port });
                }
                return Verdict::Accept;
            }
            None => {}
        }
        match self.learnt.get_mut(&at) {
            Some(station) if station.port == from.port => {
                station.heard = now;
                if now.saturating_duration_since(station.placed) >= ORDER_STEP {
                    self.put_last(at, now);
                }
            }
            Some(station) => {
                if !station.may_move(from, now, messages) {
                    return Verdict::Forged;
                }
                let first = station.taken_from.unwrap_or(station.port);
                let taken_from = Some(first).filter(|first| !from.uplink && *first != from.port);
                self.forget(at);
                self.note(at, from, taken_from, now);
            }
            None => self.note(at, from, None, now),
        }
        Verdict::Accept
    }

    /// Puts a station behind all others in the order of its port.
    fn put_last(&mut self, at: VlanMac, now: Instant) {
        if let Some(station) = self.learnt.get_mut(&at) {
            station.placed = now;
            let before = std::mem::replace(&mut station.place, self.shares.push(station.port, at));
            self.shares.remove(station.port, before);
        }
    }

    /// Adds an address that was heard. If the share of its port is full, the address that was heard
    /// there longest ago makes room.
    fn note(&mut self, at: VlanMac, from: Origin, taken_from: Option<PortId>, now: Instant) {
        let capacity = if from.uplink { UPLINK_CAPACITY } else { GUEST_CAPACITY };
        if self.shares.len(from.port) >= capacity
            && let Some(oldest) = self.shares.first(from.port)
        {
            self.forget(oldest);
            if from.uplink {
                self.crowded = Some(now);
            }
        }
        let place = self.shares.push(from.port, at);
        let messages = None;
        let station =
            Station { port: from.port, heard: now, taken_from, messages, place, placed: now };
        self.learnt.insert(at, station);
        self.places.0.write().learnt.insert(at, from.port);
    }

    /// Returns whether an address may be unknown although a station behind an uplink has sent with
    /// it within [`AGEING`].
    #[must_use]
    pub fn is_crowded(&self, now: Instant) -> bool {
        self.crowded.is_some_and(|last| now.saturating_duration_since(last) < AGEING)
    }

    fn place_bound(&mut self, mac: MacAddr, bound: Bound) {
        self.bound.insert(mac, bound);
        self.places.0.write().bound.insert(mac, bound.port);
    }

    fn forget(&mut self, at: VlanMac) {
        let Some(station) = self.learnt.remove(&at) else { return };
        self.places.0.write().learnt.remove(&at);
        self.shares.remove(station.port, station.place);
    }

    /// Returns the destination of a frame from `port`.
    #[must_use]
    pub fn route(&self, to: VlanMac, port: PortId) -> Route {
        if to.mac.is_group() {
            return Route::Group;
        }
        match self.port_of(to) {
            Some(to) if to == port => Route::Filter,
            Some(to) => Route::Port(to),
            None => Route::Unknown,
        }
    }

    /// Removes addresses that have sent no frame for [`AGEING`], but not many at once. Those stay
    /// for which `keep` holds, with their port. Returns whether no other one is left.
    pub fn age(&mut self, now: Instant, keep: impl Fn(PortId, MacAddr) -> bool) -> bool {
        let mut left = AGED_MAX;
        for port in self.shares.ports() {
            while let Some(oldest) = self.shares.first(port).filter(|at| self.is_old(*at, now)) {
                if left == 0 {
                    return false;
                }
                left -= 1;
                if keep(port, oldest.mac) {
                    self.put_last(oldest, now);
                } else {
                    self.forget(oldest);
                }
            }
        }
        true
    }

    fn is_old(&self, at: VlanMac, now: Instant) -> bool {
        self.learnt.get(&at).is_some_and(|station| {
            let last = station.heard.max(station.placed);
            now.saturating_duration_since(last) >= AGEING
        })
    }

    /// Removes the addresses that were learnt from a port that has lost its link, and gives the
    /// addresses of other ports that it has used back to them.
    pub fn flush(&mut self, port: PortId) {
        self.keep_lent(|_, lent_to| lent_to != port);
        self.shares.take(port).for_each(|at| self.forget(at));
    }
}
