//! The MACs of addresses: those of the run's own adapters, and in a network that is shared those
//! that others have, which ARP and neighbour discovery find.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use vrnic_adapter::ethernet::{Frame, Uplink};
use vrnic_cm::parameters::Gid;
use vrnic_packet::MacAddr;

use super::resolution::{self, Heard, Neighbor};
use crate::adapter::bell::Bell;

/// Maximum number of addresses of others that are known, and of those that are asked for.
const KNOWN_MAX: usize = 4096;
const ASKED_MAX: usize = 1024;
/// Time between two questions for an address.
const QUESTION_INTERVAL: Duration = Duration::from_millis(100);
/// Time after which nobody waits for an answer any more.
const QUESTION_END: Duration = Duration::from_secs(10);
/// Time after which a known address is asked for again before a connection is made.
pub const FRESH: Duration = Duration::from_secs(30);

/// A MAC.
pub type Mac = [u8; 6];

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The MAC.
    Known(Mac),
    /// The network has been asked.
    Asked,
    /// There is no such address.
    Nowhere,
}

/// The network outside of the run.
#[derive(Debug)]
struct Outside {
    uplink: Arc<dyn Uplink>,
    /// Rings when an answer has come.
    bell: Arc<Bell>,
}

/// What is known of an address of another station.
#[derive(Clone, Copy, Debug)]
struct Known {
    mac: Mac,
    /// The time of the last message that said so.
    since: Instant,
}

#[derive(Debug, Default)]
struct Others {
    known: HashMap<Gid, Known>,
    /// The addresses that are asked for, with the times of the last question.
    asked: HashMap<Gid, Instant>,
    /// An address of the run that another station uses.
    conflict: Option<Gid>,
}

/// All MACs that are known.
#[derive(Debug, Default)]
pub struct Neighbors {
    own: HashMap<Gid, Mac>,
    outside: OnceLock<Outside>,
    others: Mutex<Others>,
    generation: AtomicU64,
}

impl<const N: usize> From<[(Gid, Mac); N]> for Neighbors {
    fn from(own: [(Gid, Mac); N]) -> Self {
        Self { own: own.into(), ..Self::default() }
    }
}

impl FromIterator<(Gid, Mac)> for Neighbors {
    fn from_iter<T: IntoIterator<Item = (Gid, Mac)>>(own: T) -> Self {
        Self { own: own.into_iter().collect(), ..Self::default() }
    }
}

impl Neighbors {
    /// Connects the run with a network, to which questions and answers go. Only the first call has
    /// an effect.
    pub fn attach(&self, uplink: Arc<dyn Uplink>, bell: &Arc<Bell>) {
        let _first = self.outside.set(Outside { uplink, bell: Arc::clone(bell) });
    }

    /// Returns a number that changes when an address becomes known that was asked for.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Returns whether the run is in a network with others.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.outside.get().is_some()
    }

    /// Returns the MAC of an address if it is known, or asks for it with an own address, which must
    /// be of the same family.
    #[must_use]
    pub fn find(&self, own: &Gid, wanted: &Gid) -> Found {
        self.find_fresh(own, wanted, Duration::MAX)
    }

    /// Does the same for an address that somebody has named within this time.
    #[must_use]
    pub fn find_fresh(&self, own: &Gid, wanted: &Gid, within: Duration) -> Found {
        if let Some(mac) = self.own.get(wanted) {
            return Found::Known(*mac);
        }
        let Some(outside) = self.outside.get() else { return Found::Nowhere };
        let mut others = self.others.lock();
        let fresh = others.known.get(wanted).filter(|known| known.since.elapsed() < within);
        if let Some(known) = fresh {
            return Found::Known(known.mac);
        }
        let Some(mac) = self.own.get(own) else { return Found::Nowhere };
        let Some(question) = resolution::question(&Neighbor { gid: *own, mac: *mac }, wanted)
        else {
            return Found::Nowhere;
        };
        let now = Instant::now();
        if others.may_ask(wanted, now) {
            drop(others);
            outside.uplink.send(MacAddr(*mac), &mut vec![question]);
        }
        Found::Asked
    }

    /// Handles a frame that has arrived at the adapter with this MAC. Returns the answer, if the
    /// frame asks for an address of the adapter.
    #[must_use]
    pub fn hear(&self, own: Mac, heard: &Heard) -> Option<Frame> {
        if let Some(sender) = heard.sender {
            self.learn(&sender);
        }
        if !self.own.values().any(|mac| *mac == heard.mac) {
            self.check(heard);
        }
        let gid = heard.wanted.filter(|wanted| self.own.get(wanted) == Some(&own))?;
        resolution::answer(&Neighbor { gid, mac: own }, heard)
    }

    /// Records another station that names an own address as its own, or is about to use it.
    fn check(&self, heard: &Heard) {
        let named = heard.sender.map(|sender| sender.gid);
        let probed = heard.wanted.filter(|_| heard.sender.is_none());
        let own = |gid: &Gid| self.own.contains_key(gid);
        if let Some(gid) = named.or(probed).filter(own) {
            self.others.lock().conflict = Some(gid);
        }
    }

    /// Records what a station has said of its address.
    pub fn learn(&self, neighbor: &Neighbor) {
        let Neighbor { gid, mac } = *neighbor;
        let is_own = self.own.contains_key(&gid) || self.own.values().any(|own| *own == mac);
        let Some(outside) = self.outside.get().filter(|_| !is_own) else { return };
        let mut others = self.others.lock();
        let asked = others.asked.remove(&gid).is_some();
        if others.known.len() < KNOWN_MAX || others.known.contains_key(&gid) {
            others.known.insert(gid, Known { mac, since: Instant::now() });
        }
        drop(others);
        if asked {
            self.generation.fetch_add(1, Ordering::SeqCst);
            outside.bell.ring();
        }
    }

    /// Records the sender of a message, unless its address is known.
    pub fn learn_new(&self, neighbor: &Neighbor) {
        if !self.others.lock().known.contains_key(&neighbor.gid) {
            self.learn(neighbor);
        }
    }

    /// Forgets what others have said, because one of them has gone.
    pub fn forget(&self) {
        let mut others = self.others.lock();
        others.known.clear();
    }

    /// Tells all stations the own addresses.
    pub fn announce(&self) {
        self.tell(resolution::announcement);
    }

    /// Asks all stations whether they have one of the own addresses.
    pub fn probe(&self) {
        self.tell(resolution::probe);
    }

    fn tell(&self, frame: impl Fn(&Neighbor) -> Option<Frame>) {
        let Some(outside) = self.outside.get() else { return };
        for (gid, mac) in &self.own {
            let frame = frame(&Neighbor { gid: *gid, mac: *mac });
            outside.uplink.send(MacAddr(*mac), &mut frame.into_iter().collect());
        }
    }

    /// Returns an own address that another station uses, or wants to use.
    #[must_use]
    pub fn conflict(&self) -> Option<Gid> {
        self.others.lock().conflict
    }
}

impl Others {
    /// Returns whether it is time for another question for an address, and records it.
    fn may_ask(&mut self, wanted: &Gid, now: Instant) -> bool {
        let passed = |at: &Instant| now.duration_since(*at);
        if self.asked.get(wanted).is_some_and(|at| passed(at) < QUESTION_INTERVAL) {
            return false;
        }
        if self.asked.len() >= ASKED_MAX {
            self.asked.retain(|_, at| passed(at) < QUESTION_END);
        }
        let room = self.asked.len() < ASKED_MAX || self.asked.contains_key(wanted);
        if room {
            self.asked.insert(*wanted, now);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use vrnic_packet::ServiceFields;

    use super::*;
    use crate::trap::tree::ipv4_gid;

    const OWN_MAC: Mac = [2, 0, 0, 0, 0, 1];
    const MAC: Mac = [2, 0, 0, 0, 0, 2];

    /// Keeps what is sent.
    #[derive(Debug, Default)]
    struct Sent(Mutex<Vec<Frame>>);

    impl Uplink for Sent {
        fn send(&self, _: MacAddr, frames: &mut Vec<Frame>) {
            self.0.lock().append(frames);
        }

        fn room(&self, _: MacAddr, _: ServiceFields) -> usize {
            usize::MAX
        }
    }

    fn address(last: u8) -> Gid {
        ipv4_gid([127, 0, 0, last].into())
    }

    fn shared() -> (Neighbors, Arc<Sent>) {
        let neighbors = Neighbors::from([(address(1), OWN_MAC)]);
        let sent = Arc::new(Sent::default());
        let bell = Arc::new(Bell::new().expect("a file"));
        neighbors.attach(Arc::clone(&sent) as Arc<dyn Uplink>, &bell);
        (neighbors, sent)
    }

    #[test]
    fn a_run_of_its_own_knows_only_its_adapters() {
        let neighbors = Neighbors::from([(address(1), OWN_MAC)]);
        assert_eq!(neighbors.find(&address(1), &address(1)), Found::Known(OWN_MAC));
        assert_eq!(neighbors.find(&address(1), &address(2)), Found::Nowhere);
        neighbors.learn(&Neighbor { gid: address(2), mac: MAC });
        assert_eq!(neighbors.find(&address(1), &address(2)), Found::Nowhere);
    }

    #[test]
    fn an_address_is_asked_for_until_somebody_answers() {
        let (neighbors, sent) = shared();
        for _ in 0..3 {
            assert_eq!(neighbors.find(&address(1), &address(2)), Found::Asked);
        }
        assert_eq!(sent.0.lock().len(), 1, "one question for some time");
        let mac = MAC;
        let heard = Heard { sender: Some(Neighbor { gid: address(2), mac }), mac, wanted: None };
        assert!(neighbors.hear(OWN_MAC, &heard).is_none());
        assert_eq!(neighbors.find(&address(1), &address(2)), Found::Known(MAC));
        let old = neighbors.find_fresh(&address(1), &address(2), Duration::ZERO);
        assert_eq!(old, Found::Asked);
        neighbors.forget();
        assert_eq!(neighbors.find(&address(1), &address(2)), Found::Asked);
    }

    #[test]
    fn own_addresses_are_answered_and_stay_own() {
        let (neighbors, _) = shared();
        let sender = Some(Neighbor { gid: address(2), mac: MAC });
        let heard = Heard { sender, mac: MAC, wanted: Some(address(1)) };
        assert!(neighbors.hear(OWN_MAC, &heard).is_some());
        let other = [2, 0, 0, 0, 0, 9];
        assert!(neighbors.hear(other, &heard).is_none(), "the address of another adapter");
        assert_eq!(neighbors.conflict(), None);
        neighbors.learn(&Neighbor { gid: address(1), mac: MAC });
        neighbors.learn(&Neighbor { gid: address(3), mac: OWN_MAC });
        assert_eq!(neighbors.find(&address(1), &address(1)), Found::Known(OWN_MAC));
        assert_eq!(neighbors.find(&address(1), &address(3)), Found::Asked);
        let heard = Heard { sender: Some(Neighbor { gid: address(1), mac: MAC }), ..heard };
        let _answer = neighbors.hear(OWN_MAC, &heard);
        assert_eq!(neighbors.conflict(), Some(address(1)));
    }

    /// Shows: hostile: any number of addresses in a network
    #[test]
    fn addresses_of_others_are_limited() {
        let (neighbors, sent) = shared();
        let gid = |number: u32| ipv4_gid((0x0a00_0000 + number).into());
        for number in 0..2 * KNOWN_MAX as u32 {
            neighbors.learn(&Neighbor { gid: gid(number), mac: MAC });
        }
        assert_eq!(neighbors.others.lock().known.len(), KNOWN_MAX);
        for number in 0..2 * ASKED_MAX as u32 {
            let _asked = neighbors.find(&address(1), &gid(number + 0x10_0000));
        }
        assert_eq!(neighbors.others.lock().asked.len(), ASKED_MAX);
        assert_eq!(sent.0.lock().len(), ASKED_MAX);
    }
}
