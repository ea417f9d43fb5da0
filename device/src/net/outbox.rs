//! Carries frames from adapters to the switch. Workers put them here without waiting; the thread or
//! worker that runs the switch takes them in batches. They enter the switch by the port of their
//! adapter.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use vrnic_adapter::ethernet::{self, Uplink};
use vrnic_roce::wire::build::FRAME_MAX;

use super::mac::MacAddr;
use super::status::{PortStatus, Reason};
use super::table::PortId;
use crate::worker::attendance::Attendance;
use crate::worker::event::Event;
use crate::worker::pool::now_ns;

/// Most bytes of an adapter that wait for the switch.
const ROOM: usize = 4 << 20;
/// Number of bytes that wait at an uplink from which on senders wait. A longer backlog would leave
/// the processor's cache before it is sent.
const BACKLOG: usize = 1 << 20;
/// Age in nanoseconds from which on a recorded backlog is ignored.
const STALE_NS: u64 = 100_000_000;
/// Counted for each frame beside its bytes.
const OVERHEAD: usize = 64;

/// The frames of all adapters.
pub struct Outbox {
    lanes: RwLock<HashMap<MacAddr, Arc<Lane>>>,
    /// The lanes in which frames wait.
    ready: Mutex<Vec<Arc<Lane>>>,
    bell: Arc<Event>,
    attendance: Arc<Attendance>,
    /// Number of bytes that wait at the uplink with the longest backlog.
    backlog: AtomicUsize,
    /// Time at which `backlog` was set.
    backlog_at: AtomicU64,
}

/// The frames of an adapter.
#[derive(Debug)]
struct Lane {
    port: PortId,
    status: Arc<PortStatus>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: Vec<ethernet::Frame>,
    bytes: usize,
}

impl Outbox {
    /// Creates an outbox that posts to `attendance` when it is not empty any more, and steps `bell`
    /// if the switch's thread has to take the frames.
    #[must_use]
    pub fn new(bell: Arc<Event>, attendance: Arc<Attendance>) -> Self {
        Self {
            lanes: RwLock::default(),
            ready: Mutex::default(),
            bell,
            attendance,
            backlog: AtomicUsize::new(0),
            backlog_at: AtomicU64::new(0),
        }
    }

    /// Sets the number of bytes that wait at the uplink with the longest backlog.
    pub fn set_backlog(&self, bytes: usize) {
        self.backlog_at.store(now_ns(), Ordering::Relaxed);
        self.backlog.store(bytes, Ordering::Relaxed);
    }

    /// Returns the number of bytes that may be sent to uplinks now. A backlog that has not been set
    /// for a while is ignored, because the uplink is stuck; its queue drops frames that do not fit.
    fn uplink_room(&self) -> usize {
        let backlog = self.backlog.load(Ordering::Relaxed);
        if backlog < BACKLOG {
            return BACKLOG - backlog;
        }
        let age = now_ns().saturating_sub(self.backlog_at.load(Ordering::Relaxed));
        if age > STALE_NS { BACKLOG } else { 0 }
    }

    /// Lets the adapter with this address send, by this port.
    pub fn add(&self, mac: MacAddr, port: PortId, status: Arc<PortStatus>) {
        let lane = Lane { port, status, waiting: Mutex::default() };
        self.lanes.write().insert(mac, Arc::new(lane));
    }

    /// Forgets the adapter with this address.
    pub fn remove(&self, mac: MacAddr) {
        self.lanes.write().remove(&mac);
    }

    /// Takes all frames that wait: `each` gets the port and the frames of each adapter. Returns
    /// whether any frames waited.
    pub fn take(&self, mut each: impl FnMut(PortId, Vec<ethernet::Frame>)) -> bool {
        if !self.attendance.has_work() {
            return false;
        }
        self.attendance.take();
        let ready = std::mem::take(&mut *self.ready.lock());
        let any = !ready.is_empty();
        for lane in ready {
            let waiting = std::mem::take(&mut *lane.waiting.lock());
            for frame in &waiting.frames {
                lane.status.received.count(frame.bytes().len());
            }
            each(lane.port, waiting.frames);
        }
        any
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

impl Lane {
    /// Takes frames as far as there is room. Returns whether they are the first.
    fn put(&self, frames: &mut Vec<ethernet::Frame>) -> bool {
        let mut waiting = self.waiting.lock();
        let was_empty = waiting.frames.is_empty();
        let mut lost = 0;
        for frame in frames.drain(..) {
            let len = frame.bytes().len() + OVERHEAD;
            if waiting.bytes + len > ROOM {
                lost += 1;
                continue;
            }
            waiting.bytes += len;
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
        let lane_room = ROOM.saturating_sub(lane.waiting.lock().bytes);
        lane_room.min(self.uplink_room()) / (FRAME_MAX + OVERHEAD)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
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
        outbox.take(|port, frames| taken.push((port, frames.len())));
        assert_eq!(taken, [(7, 15)]);
        outbox.take(|_, _| panic!("nothing is left"));
        outbox.send(MAC, &mut frames(1, 60));
        assert!(bell.wait(Duration::ZERO), "the next frame rings again");
    }

    #[test]
    fn senders_wait_while_an_uplink_is_backed_up_but_not_for_a_stuck_one() {
        let (outbox, ..) = outbox();
        assert!(outbox.room(MAC) > 100);
        outbox.set_backlog(BACKLOG);
        assert_eq!(outbox.room(MAC), 0);
        std::thread::sleep(Duration::from_nanos(2 * STALE_NS));
        assert!(outbox.room(MAC) > 100);
    }

    #[test]
    fn what_finds_no_room_is_lost_and_counted() {
        let (outbox, _, status) = outbox();
        let most = ROOM / (4096 + OVERHEAD);
        outbox.send(MAC, &mut frames(most + 3, 4096));
        let mut taken = 0;
        outbox.take(|_, frames| taken += frames.len());
        assert_eq!(taken, most);
        assert_eq!(status.view().dropped.get("outbox"), Some(&3));
        outbox.send([2; 6], &mut frames(1, 60));
        outbox.take(|_, _| panic!("nobody has this address"));
    }
}
