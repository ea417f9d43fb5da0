//! The switch's address table (IEEE 802.1Q, 8.8). Learnt entries age. The entries of configured
//! adapters are bound to their ports, so that no guest can receive the frames of another one. Only
//! another port of the same guest can use such an address for a time, as the cards of a bond do.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use vrnic_packet::MacAddr;

/// Time after which an address that has sent no frame is removed (IEEE 802.1Q, table 8-6).
pub const AGEING: Duration = Duration::from_secs(300);
/// Maximum number of addresses learnt from one port. A guest that invents addresses fills only its
/// own share of the table. Frames to addresses that are not in the table are flooded.
pub const PORT_CAPACITY: usize = 512;

/// Time without a frame after which an address may move to the port of a guest.
pub const SILENCE: Duration = Duration::from_secs(2);

/// Number of a port.
pub type PortId = usize;

/// The port that a frame came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The port.
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
    /// To one port.
    Port(PortId),
    /// To all ports except the one that it came from.
    Flood,
    /// To no other port, because its destination is behind the port that it came from.
    Filter,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Bound(Bound),
    Learnt(Station),
}

/// An address that is bound to a port.
#[derive(Clone, Copy, Debug)]
struct Bound {
    owner: PortId,
    /// The port of its frames: the owner, or another port of the owner's guest.
    port: PortId,
}

impl Entry {
    /// Returns the port of the frames to the address.
    const fn port(self) -> PortId {
        match self {
            Self::Bound(Bound { port, .. }) | Self::Learnt(Station { port, .. }) => port,
        }
    }
}

/// A station that was heard.
#[derive(Clone, Copy, Debug)]
struct Station {
    port: PortId,
    heard: Instant,
    /// The port from which a guest has taken the address, because it was silent there.
    taken_from: Option<PortId>,
}

impl Station {
    /// Returns whether a frame with its address may come from another port than before. A guest
    /// can so only get an address that was silent for [`SILENCE`], and loses it when its owner is
    /// heard again. What comes from an uplink is believed at once, because networks change, and so
    /// a guest cannot keep the address of a station that it has claimed first.
    fn may_move(&self, to: Origin, now: Instant) -> bool {
        to.uplink
            || self.taken_from == Some(to.port)
            || now.saturating_duration_since(self.heard) >= SILENCE
    }
}

/// The ports of the addresses in the table, for threads that do not run the switch.
#[derive(Debug, Default)]
pub struct Places(RwLock<HashMap<MacAddr, PortId>>);

impl Places {
    /// Returns the port of an address.
    #[must_use]
    pub fn port_of(&self, mac: MacAddr) -> Option<PortId> {
        self.0.read().get(&mac).copied()
    }
}

/// The port behind which each address is.
#[derive(Debug, Default)]
pub struct MacTable {
    entries: HashMap<MacAddr, Entry>,
    /// The port of each entry.
    places: Arc<Places>,
    /// Addresses learnt from each port.
    learnt: HashMap<PortId, usize>,
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
        self.forget(mac);
        self.place(mac, Entry::Bound(Bound { owner: port, port }));
    }

    /// Removes an address that was bound to a port.
    pub fn unbind(&mut self, mac: MacAddr, port: PortId) {
        if self.owner(mac) == Some(port) {
            self.forget(mac);
        }
    }

    /// Returns the port to which an address is bound.
    #[must_use]
    pub fn owner(&self, mac: MacAddr) -> Option<PortId> {
        match self.entries.get(&mac) {
            Some(Entry::Bound(bound)) => Some(bound.owner),
            _ => None,
        }
    }

    /// Gives the frames to an address that is bound to another port to this port, until a frame
    /// with this address comes by the line of its owner, the port loses its link, or
    /// [`Self::keep_lent`] ends it. Both ports are of one guest.
    pub fn lend(&mut self, mac: MacAddr, port: PortId) {
        if let Some(owner) = self.owner(mac) {
            self.place(mac, Entry::Bound(Bound { owner, port }));
            self.lent.insert(mac);
        }
    }

    /// Returns whether the frames to an address go to this port.
    #[must_use]
    pub fn is_at(&self, mac: MacAddr, port: PortId) -> bool {
        self.entries.get(&mac).is_some_and(|entry| entry.port() == port)
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
        lent.retain(|mac| match self.entries.get(mac) {
            Some(Entry::Bound(Bound { owner, port })) if owner == port => false,
            Some(Entry::Bound(Bound { owner, port })) if keep(*owner, *port) => true,
            Some(Entry::Bound(Bound { owner, .. })) => {
                let owner = *owner;
                self.place(*mac, Entry::Bound(Bound { owner, port: owner }));
                false
            }
            _ => false,
        });
        self.lent = lent;
    }

    /// Records that `mac` has sent a frame.
    pub fn learn(&mut self, mac: MacAddr, from: Origin, now: Instant) -> Verdict {
        if mac.is_group() || mac.is_zero() {
            return Verdict::Forged;
        }
        match self.entries.get_mut(&mac) {
            Some(Entry::Bound(bound)) if bound.owner == from.port => {
                if bound.port != from.port && !from.adapter {
                    self.bind(mac, from.port);
                }
                Verdict::Accept
            }
            Some(Entry::Bound(_)) => Verdict::Forged,
            Some(Entry::Learnt(station)) if station.port == from.port => {
                station.heard = now;
                Verdict::Accept
            }
            Some(Entry::Learnt(station)) if !station.may_move(from, now) => Verdict::Forged,
            Some(Entry::Learnt(station)) => {
                let old = *station;
                // It stays where it was if the share of the new port is full.
                if self.has_room(from.port) {
                    let first = old.taken_from.or(Some(old.port));
                    let taken_from = first.filter(|first| !from.uplink && *first != from.port);
                    self.forget(mac);
                    self.note(mac, Station { port: from.port, heard: now, taken_from });
                }
                Verdict::Accept
            }
            None => {
                if self.has_room(from.port) {
                    let station = Station { port: from.port, heard: now, taken_from: None };
                    self.note(mac, station);
                }
                Verdict::Accept
            }
        }
    }

    /// Returns whether the share of a port has room for one more address.
    fn has_room(&self, port: PortId) -> bool {
        self.learnt.get(&port).is_none_or(|learnt| *learnt < PORT_CAPACITY)
    }

    fn note(&mut self, mac: MacAddr, station: Station) {
        *self.learnt.entry(station.port).or_default() += 1;
        self.place(mac, Entry::Learnt(station));
    }

    fn place(&mut self, mac: MacAddr, entry: Entry) {
        self.entries.insert(mac, entry);
        self.places.0.write().insert(mac, entry.port());
    }

    fn forget(&mut self, mac: MacAddr) {
        let Some(entry) = self.entries.remove(&mac) else { return };
        self.places.0.write().remove(&mac);
        if let Entry::Learnt(station) = entry
            && let Some(learnt) = self.learnt.get_mut(&station.port)
        {
            *learnt -= 1;
        }
    }

    /// Returns the destination of a frame from `port` to `mac`.
    #[must_use]
    pub fn route(&self, mac: MacAddr, port: PortId) -> Route {
        if mac.is_group() {
            return Route::Flood;
        }
        match self.entries.get(&mac).map(|entry| entry.port()) {
            Some(to) if to == port => Route::Filter,
            Some(to) => Route::Port(to),
            None => Route::Flood,
        }
    }

    /// Removes the addresses that have sent no frame for [`AGEING`].
    pub fn age(&mut self, now: Instant) {
        self.retain(|_, heard| now.saturating_duration_since(heard) < AGEING);
    }

    /// Removes the addresses that were learnt from a port that has lost its link, and gives the
    /// addresses of other ports that it has used back to them.
    pub fn flush(&mut self, port: PortId) {
        self.keep_lent(|_, lent_to| lent_to != port);
        self.retain(|from, _| from != port);
    }

    fn retain(&mut self, mut keep: impl FnMut(PortId, Instant) -> bool) {
        self.entries.retain(|_, entry| match *entry {
            Entry::Bound(_) => true,
            Entry::Learnt(station) => keep(station.port, station.heard),
        });
        self.learnt.clear();
        for entry in self.entries.values() {
            if let Entry::Learnt(station) = entry {
                *self.learnt.entry(station.port).or_default() += 1;
            }
        }
        self.places.0.write().retain(|mac, _| self.entries.contains_key(mac));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    const fn guest(port: PortId) -> Origin {
        Origin { port, uplink: false, adapter: false }
    }

    const fn uplink(port: PortId) -> Origin {
        Origin { port, uplink: true, adapter: false }
    }

    #[test]
    fn addresses_are_learnt_moved_and_forgotten() {
        let mut table = MacTable::default();
        let start = Instant::now();
        assert_eq!(table.route(A, 1), Route::Flood);
        assert_eq!(table.learn(A, guest(0), start), Verdict::Accept);
        assert_eq!(table.route(A, 1), Route::Port(0));
        assert_eq!(table.route(A, 0), Route::Filter);
        table.learn(A, guest(2), start + AGEING);
        table.age(start + AGEING);
        assert_eq!(table.route(A, 1), Route::Port(2));
        table.age(start + AGEING * 2);
        assert_eq!(table.route(A, 1), Route::Flood);
        table.learn(A, guest(0), start);
        table.flush(0);
        assert_eq!(table.route(A, 1), Route::Flood);
    }

    #[test]
    fn places_are_those_of_the_stations_that_were_heard() {
        let places = Arc::default();
        let (mut table, start) = (MacTable::new(&places), Instant::now());
        let place = |mac| places.port_of(mac);
        table.learn(A, guest(0), start);
        table.learn(B, guest(1), start + AGEING / 2);
        assert_eq!((place(A), place(B)), (Some(0), Some(1)));
        // One moves, and becomes too old there.
        table.learn(A, guest(2), start + SILENCE);
        assert_eq!(place(A), Some(2));
        table.age(start + SILENCE + AGEING);
        assert_eq!((place(A), place(B)), (None, Some(1)));
        table.flush(1);
        assert_eq!(place(B), None);
        // The address of a function has its place, even if it was heard elsewhere before.
        table.learn(A, guest(0), start);
        table.bind(A, 3);
        table.learn(A, guest(3), start);
        assert_eq!(place(A), Some(3));
        table.unbind(A, 3);
        assert_eq!(place(A), None);
    }

    #[test]
    fn another_port_of_the_guest_uses_a_function_s_address_for_a_time() {
        let places = Arc::default();
        let (mut table, now) = (MacTable::new(&places), Instant::now());
        table.bind(A, 0);
        table.lend(A, 1);
        assert_eq!((table.route(A, 2), places.port_of(A)), (Route::Port(1), Some(1)));
        assert!(table.is_at(A, 1) && table.lends());
        // The caller decides whether the other port may still use it.
        assert_eq!(table.learn(A, guest(1), now), Verdict::Forged);
        assert_eq!(table.learn(A, guest(2), now), Verdict::Forged);
        // A late packet of the owner's adapter changes nothing.
        assert_eq!(table.learn(A, Origin { adapter: true, ..guest(0) }, now), Verdict::Accept);
        assert_eq!(table.route(A, 2), Route::Port(1));
        assert_eq!(table.learn(A, guest(0), now), Verdict::Accept);
        assert_eq!((table.route(A, 2), places.port_of(A)), (Route::Port(0), Some(0)));
        assert_eq!(table.learn(A, guest(1), now), Verdict::Forged);
        // It also returns when the other port loses its link.
        table.lend(A, 1);
        table.flush(1);
        assert_eq!((table.route(A, 2), places.port_of(A)), (Route::Port(0), Some(0)));
        // Or when the ports are not of one guest any more.
        table.lend(A, 1);
        table.keep_lent(|owner, port| (owner, port) == (0, 1));
        assert!(table.is_at(A, 1) && table.lends());
        table.keep_lent(|_, _| false);
        assert!(table.is_at(A, 0) && !table.lends());
        // Only an address that is bound can be lent.
        table.lend(B, 1);
        assert_eq!(table.route(B, 2), Route::Flood);
    }

    /// The cards of a bond may alternate with each frame.
    #[test]
    fn an_address_is_lent_once_however_often_it_moves() {
        let mut table = MacTable::default();
        table.bind(A, 0);
        for _ in 0..100 {
            table.lend(A, 1);
            table.learn(A, guest(0), Instant::now());
        }
        assert_eq!(table.lent.len(), 1);
        table.keep_lent(|_, _| true);
        assert!(!table.lends(), "its owner has it");
    }

    #[test]
    fn a_function_s_address_cannot_be_forged() {
        let mut table = MacTable::default();
        table.bind(A, 0);
        assert_eq!(table.learn(A, guest(1), Instant::now()), Verdict::Forged);
        assert_eq!(table.learn(BROADCAST, guest(1), Instant::now()), Verdict::Forged);
        assert_eq!(table.learn(B, guest(1), Instant::now()), Verdict::Accept);
        assert_eq!(table.route(A, 1), Route::Port(0));
        table.flush(0);
        assert_eq!(table.route(A, 1), Route::Port(0));
        assert_eq!(table.route(BROADCAST, 0), Route::Flood);
        table.unbind(A, 1);
        assert_eq!(table.route(A, 1), Route::Port(0), "it is not bound to this port");
        table.unbind(A, 0);
        assert_eq!(table.learn(A, guest(1), Instant::now()), Verdict::Accept);
        // One that was learnt becomes a function's.
        table.bind(A, 2);
        assert_eq!(table.route(A, 1), Route::Port(2));
        table.flush(1);
        assert_eq!(table.route(A, 1), Route::Port(2));
    }

    #[test]
    fn made_up_addresses_take_no_room_of_other_ports() {
        let mut table = MacTable::default();
        let now = Instant::now();
        let made_up = |n: usize| {
            let [a, b, c, d] = u32::try_from(n).expect("small").to_be_bytes();
            MacAddr([2, 1, a, b, c, d])
        };
        for n in 0..100 * PORT_CAPACITY {
            table.learn(made_up(n), guest(0), now);
        }
        assert_eq!(table.entries.len(), PORT_CAPACITY);
        table.learn(A, guest(1), now);
        assert_eq!(table.route(A, 0), Route::Port(1), "another port's address is learnt");
        // A station that moves to the full port stays known at its old one.
        assert_eq!(table.learn(A, guest(0), now + SILENCE), Verdict::Accept);
        assert_eq!(table.route(A, 0), Route::Port(1));
        // The place of an address that has moved away is free.
        table.learn(made_up(0), guest(1), now + SILENCE);
        table.learn(B, guest(0), now + SILENCE);
        assert_eq!(table.route(B, 1), Route::Port(0));
    }

    #[test]
    fn a_guest_cannot_take_an_address_that_is_in_use() {
        for owner in [guest(0), uplink(0)] {
            let mut table = MacTable::default();
            let start = Instant::now();
            table.learn(A, owner, start);
            let mut now = start;
            // The owner sends once in a second, the other guest all the time.
            for tick in 0..5000 {
                now = start + Duration::from_millis(tick);
                if tick % 1000 == 0 {
                    table.learn(A, owner, now);
                }
                assert_eq!(table.learn(A, guest(1), now), Verdict::Forged);
                assert_eq!(table.route(A, 2), Route::Port(0));
            }
            // It may be a station that has moved.
            now += SILENCE;
            assert_eq!(table.learn(A, guest(1), now), Verdict::Accept);
            assert_eq!(table.route(A, 2), Route::Port(1));
            // Its owner gets it back at once, also from a third port.
            assert_eq!(table.learn(A, guest(2), now + SILENCE), Verdict::Accept);
            assert_eq!(table.learn(A, owner, now + SILENCE), Verdict::Accept);
            assert_eq!(table.route(A, 2), Route::Port(0));
            assert_eq!(table.learn(A, guest(1), now + SILENCE), Verdict::Forged);
        }
    }

    #[test]
    fn a_guest_that_claims_an_address_first_cannot_keep_it_from_an_uplink() {
        let mut table = MacTable::default();
        let now = Instant::now();
        table.learn(A, guest(1), now);
        assert_eq!(table.learn(A, uplink(0), now), Verdict::Accept);
        assert_eq!(table.route(A, 2), Route::Port(0));
        assert_eq!(table.learn(A, guest(1), now), Verdict::Forged);
        assert_eq!(table.learn(A, uplink(3), now), Verdict::Accept, "networks change");
        assert_eq!(table.route(A, 2), Route::Port(3));
    }
}
