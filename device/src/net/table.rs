//! The switch's address table (IEEE 802.1Q, 8.8). Learnt entries age. The entries of configured
//! adapters are static, so that no guest can receive the frames of another one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::mac::MacAddr;

/// Time after which an address that has sent no frame is removed (IEEE 802.1Q, table 8-6).
pub const AGEING: Duration = Duration::from_secs(300);
/// Maximum number of addresses learnt from one port. A guest that invents addresses fills only its
/// own share of the table. Frames to addresses that are not in the table are flooded.
pub const PORT_CAPACITY: usize = 512;

/// Number of a port.
pub type PortId = usize;

/// Result of learning a source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The frame may pass.
    Accept,
    /// The address belongs to another port's adapter.
    Forged,
}

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To one port.
    Port(PortId),
    /// To all ports except the one that it came from.
    Flood,
    /// To no port, because its destination is behind the port that it came from.
    Filter,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Static(PortId),
    Learnt(PortId, Instant),
}

/// The port behind which each address is.
#[derive(Debug, Default)]
pub struct MacTable {
    entries: HashMap<MacAddr, Entry>,
    /// Addresses learnt from each port.
    learnt: HashMap<PortId, usize>,
}

impl MacTable {
    /// Binds an address to a port permanently.
    pub fn pin(&mut self, mac: MacAddr, port: PortId) {
        self.forget(mac);
        self.entries.insert(mac, Entry::Static(port));
    }

    /// Removes an address that was bound to a port.
    pub fn unpin(&mut self, mac: MacAddr, port: PortId) {
        if matches!(self.entries.get(&mac), Some(Entry::Static(owner)) if *owner == port) {
            self.entries.remove(&mac);
        }
    }

    /// Records that `mac` has sent a frame from `port`.
    pub fn learn(&mut self, mac: MacAddr, port: PortId, now: Instant) -> Verdict {
        if mac.is_group() || mac.is_zero() {
            return Verdict::Forged;
        }
        match self.entries.get_mut(&mac) {
            Some(Entry::Static(owner)) if *owner == port => Verdict::Accept,
            Some(Entry::Static(_)) => Verdict::Forged,
            Some(Entry::Learnt(owner, heard)) if *owner == port => {
                *heard = now;
                Verdict::Accept
            }
            Some(Entry::Learnt(..)) => {
                // The station has moved.
                self.forget(mac);
                self.note(mac, port, now);
                Verdict::Accept
            }
            None => {
                self.note(mac, port, now);
                Verdict::Accept
            }
        }
    }

    /// Adds a new address, if the share of `port` has room.
    fn note(&mut self, mac: MacAddr, port: PortId, now: Instant) {
        let learnt = self.learnt.entry(port).or_default();
        if *learnt < PORT_CAPACITY {
            *learnt += 1;
            self.entries.insert(mac, Entry::Learnt(port, now));
        }
    }

    fn forget(&mut self, mac: MacAddr) {
        if let Some(Entry::Learnt(port, _)) = self.entries.remove(&mac)
            && let Some(learnt) = self.learnt.get_mut(&port)
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
        match self.entries.get(&mac) {
            Some(Entry::Static(to) | Entry::Learnt(to, _)) if *to == port => Route::Filter,
            Some(Entry::Static(to) | Entry::Learnt(to, _)) => Route::Port(*to),
            None => Route::Flood,
        }
    }

    /// Removes the addresses that have sent no frame for [`AGEING`].
    pub fn age(&mut self, now: Instant) {
        self.retain(|_, heard| now.saturating_duration_since(heard) < AGEING);
    }

    /// Removes the addresses that were learnt from a port that has lost its link.
    pub fn flush(&mut self, port: PortId) {
        self.retain(|from, _| from != port);
    }

    fn retain(&mut self, mut keep: impl FnMut(PortId, Instant) -> bool) {
        self.entries.retain(|_, entry| match *entry {
            Entry::Static(_) => true,
            Entry::Learnt(port, heard) => keep(port, heard),
        });
        self.learnt.clear();
        for entry in self.entries.values() {
            if let Entry::Learnt(port, _) = entry {
                *self.learnt.entry(*port).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    #[test]
    fn addresses_are_learnt_moved_and_forgotten() {
        let mut table = MacTable::default();
        let start = Instant::now();
        assert_eq!(table.route(A, 1), Route::Flood);
        assert_eq!(table.learn(A, 0, start), Verdict::Accept);
        assert_eq!(table.route(A, 1), Route::Port(0));
        assert_eq!(table.route(A, 0), Route::Filter);
        table.learn(A, 2, start + AGEING);
        table.age(start + AGEING);
        assert_eq!(table.route(A, 1), Route::Port(2));
        table.age(start + AGEING * 2);
        assert_eq!(table.route(A, 1), Route::Flood);
        table.learn(A, 0, start);
        table.flush(0);
        assert_eq!(table.route(A, 1), Route::Flood);
    }

    #[test]
    fn a_function_s_address_cannot_be_forged() {
        let mut table = MacTable::default();
        table.pin(A, 0);
        assert_eq!(table.learn(A, 1, Instant::now()), Verdict::Forged);
        assert_eq!(table.learn(BROADCAST, 1, Instant::now()), Verdict::Forged);
        assert_eq!(table.learn(B, 1, Instant::now()), Verdict::Accept);
        assert_eq!(table.route(A, 1), Route::Port(0));
        table.flush(0);
        assert_eq!(table.route(A, 1), Route::Port(0));
        assert_eq!(table.route(BROADCAST, 0), Route::Flood);
        table.unpin(A, 1);
        assert_eq!(table.route(A, 1), Route::Port(0), "it is not bound to this port");
        table.unpin(A, 0);
        assert_eq!(table.learn(A, 1, Instant::now()), Verdict::Accept);
        // One that was learnt becomes a function's.
        table.pin(A, 2);
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
            table.learn(made_up(n), 0, now);
        }
        assert_eq!(table.entries.len(), PORT_CAPACITY);
        table.learn(A, 1, now);
        assert_eq!(table.route(A, 0), Route::Port(1), "another port's address is learnt");
        // A station that moves to the full port is not known any more, and the old place is free.
        table.learn(A, 0, now);
        assert_eq!(table.route(A, 1), Route::Flood);
        table.learn(made_up(0), 1, now);
        table.learn(B, 0, now);
        assert_eq!(table.route(B, 1), Route::Port(0));
    }
}
