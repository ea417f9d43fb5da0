//! Carries frames from adapters to the switch. Workers put them here without waiting; the thread or
//! worker that runs the switch takes them in batches. They enter the switch by the port of their
//! adapter.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use vrnic_adapter::ethernet::{self, Uplink};
use vrnic_roce::wire::build::FRAME_MAX;

use super::account::Account;
use super::mac::MacAddr;
use super::queue::OVERHEAD;
use super::status::{PortStatus, Reason};
use super::table::PortId;
use crate::worker::attendance::Attendance;
use crate::worker::event::Event;
use crate::worker::pool::now_ns;

/// Maximum number of bytes of an adapter that wait for the switch.
const ROOM: usize = 4 << 20;
/// Maximum number of adapters whose frames are taken at once, so that a turn is short.
const LANES: usize = 8;

/// The frames of all adapters.
pub struct Outbox {
    lanes: RwLock<HashMap<MacAddr, Arc<Lane>>>,
    /// The lanes in which frames wait.
    ready: Mutex<Vec<Arc<Lane>>>,
    bell: Arc<Event>,
    attendance: Arc<Attendance>,
    /// True if a port passes joined frames on.
    joins: AtomicBool,
}

/// The frames of an adapter.
#[derive(Debug)]
struct Lane {
    port: PortId,
    status: Arc<PortStatus>,
    account: Arc<Account>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: Vec<ethernet::Frame>,
    bytes: usize,
    /// Number of frames, where a joined one counts as all those that it stands for.
    count: usize,
}

impl Outbox {
    /// Creates an outbox that posts to `attendance` when it is not empty any more, and steps `bell`
    /// if the switch's thread has to take the frames.
    #[must_use]
    pub fn new(bell: Arc<Event>, attendance: Arc<Attendance>) -> Self {
        let (lanes, ready, joins) = (RwLock::default(), Mutex::default(), AtomicBool::default());
        Self { lanes, ready, bell, attendance, joins }
    }

    /// Allows the adapter with this address to send, by this port.
    pub fn add(&self, mac: MacAddr, port: PortId, status: Arc<PortStatus>) {
        let lane = Lane { port, status, account: Arc::default(), waiting: Mutex::default() };
        self.lanes.write().insert(mac, Arc::new(lane));
    }

    /// Sets whether a port passes joined frames on.
    pub fn set_joins(&self, joins: bool) {
        self.joins.store(joins, Ordering::Relaxed);
    }

    /// Forgets the adapter with this address.
    pub fn remove(&self, mac: MacAddr) {
        self.lanes.write().remove(&mac);
    }

    /// Takes the frames of some adapters: `each` receives the port, the account and the frames of
    /// each of them. Posts again if frames of others wait. Returns whether any frames waited.
    pub fn take(&self, mut each: impl FnMut(PortId, &Arc<Account>, Vec<ethernet::Frame>)) -> bool {
        if !self.attendance.has_work() {
            return false;
        }
        self.attendance.take();
        let mut ready = self.ready.lock();
        let first = LANES.min(ready.len());
        let lanes: Vec<Arc<Lane>> = ready.drain(..first).collect();
        let left = !ready.is_empty();
        drop(ready);
        for lane in &lanes {
            let waiting = std::mem::take(&mut *lane.waiting.lock());
            for frame in &waiting.frames {
                lane.status.received.count(frame.count(), frame.total());
            }
            each(lane.port, &lane.account, waiting.frames);
        }
        if left && self.attendance.post() {
            self.bell.step();
        }
        !lanes.is_empty()
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

impl Lane {
    /// Takes frames while there is room. Returns whether no frame waited before.
    fn put(&self, frames: &mut Vec<ethernet::Frame>) -> bool {
        let mut waiting = self.waiting.lock();
        let was_empty = waiting.frames.is_empty();
        let mut lost = 0;
        for frame in frames.drain(..) {
            let len = frame.bytes().len() + OVERHEAD;
            if waiting.bytes + len > ROOM {
                lost += frame.count();
                continue;
            }
            waiting.bytes += len;
            waiting.count += frame.count();
            waiting.frames.push(frame);
        }
        if lost > 0 {
            self.status.count_dropped(Reason::Outbox, lost);
        }
        was_empty && !waiting.frames.is_empty()
    }
}

impl Uplink for Outbox {
    fn send(&self, source: [u8; 6], frames: &mut Vec<ethernet::Frame>) {
        let lane = self.lanes.read().get(&MacAddr(source)).map(Arc::clone);
        let Some(lane) = lane else { return frames.clear() };
        if lane.put(frames) {
            let mut ready = self.ready.lock();
            ready.push(lane);
            let first = ready.len() == 1;
            drop(ready);
            if first && self.attendance.post() {
                self.bell.step();
            }
        }
    }

    fn room(&self, source: [u8; 6]) -> usize {
        let lanes = self.lanes.read();
        let Some(lane) = lanes.get(&MacAddr(source)) else { return usize::MAX };
        let waiting = lane.waiting.lock().count;
        lane.account.room(FRAME_MAX + OVERHEAD, now_ns()).saturating_sub(waiting)
    }

    fn joins(&self) -> bool {
        self.joins.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::net::account::LIMIT;
    use crate::net::status::Kind;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn outbox() -> (Outbox, Arc<Event>, Arc<PortStatus>) {
        let bell = Arc::new(Event::new().expect("an event"));
        let outbox = Outbox::new(Arc::clone(&bell), Arc::default());
        let status = Arc::new(PortStatus::new("a", Kind::Function));
        outbox.add(MacAddr(MAC), 7, Arc::clone(&status));
        (outbox, bell, status)
    }

    fn frames(count: usize, len: usize) -> Vec<ethernet::Frame> {
        (0..count).map(|_| ethernet::Frame::new(vec![0; len])).collect()
    }

    #[test]
    fn the_bell_rings_once_for_all_that_waits() {
        let (outbox, bell, _) = outbox();
        for _ in 0..3 {
            let mut sent = frames(5, 60);
            outbox.send(MAC, &mut sent);
            assert!(sent.is_empty());
        }
        assert!(bell.wait(Duration::ZERO));
        bell.take();
        let mut taken = Vec::new();
        outbox.take(|port, _, frames| taken.push((port, frames.len())));
        assert_eq!(taken, [(7, 15)]);
        outbox.take(|_, _, _| panic!("nothing is left"));
        outbox.send(MAC, &mut frames(1, 60));
        assert!(bell.wait(Duration::ZERO), "the next frame rings again");
    }

    #[test]
    fn an_adapter_with_much_at_uplinks_waits_and_others_do_not() {
        let (outbox, bell, status) = outbox();
        const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
        outbox.add(MacAddr(OTHER), 8, status);
        outbox.send(MAC, &mut frames(1, 60));
        let mut charge = None;
        assert!(outbox.take(|_, account, _| charge = Some(account.charge(LIMIT))));
        assert_eq!(outbox.room(MAC), 0);
        assert!(outbox.room(OTHER) > 100);
        drop((charge, bell));
        assert!(outbox.room(MAC) > 100);
    }

    #[test]
    fn the_frames_of_many_adapters_are_taken_in_several_turns() {
        let (outbox, bell, status) = outbox();
        let macs = (0..20).map(|nth| [2, 0, 0, 0, 1, nth]);
        for mac in macs {
            outbox.add(MacAddr(mac), 9, Arc::clone(&status));
            outbox.send(mac, &mut frames(1, 60));
        }
        let mut turns = Vec::new();
        loop {
            bell.take();
            let mut taken = 0;
            if !outbox.take(|_, _, frames| taken += frames.len()) {
                break;
            }
            turns.push(taken);
            assert_eq!(bell.wait(Duration::ZERO), turns.iter().sum::<usize>() < 20);
        }
        assert_eq!(turns, [8, 8, 4]);
    }

    #[test]
    fn what_finds_no_room_is_lost_and_counted() {
        let (outbox, _, status) = outbox();
        let most = ROOM / (4096 + OVERHEAD);
        outbox.send(MAC, &mut frames(most + 3, 4096));
        let mut taken = 0;
        outbox.take(|_, _, frames| taken += frames.len());
        assert_eq!(taken, most);
        assert_eq!(status.view().dropped.get("outbox"), Some(&3));
        outbox.send([2; 6], &mut frames(1, 60));
        outbox.take(|_, _, _| panic!("nobody has this address"));
    }
}
