//! Carries frames from adapters to the switch. Workers put them here without waiting; the thread or
//! worker that runs the switch takes them in batches. They enter the switch by the port of their
//! adapter.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use vrnic_adapter::ethernet::{self, Uplink};
use vrnic_control_api::source::SourceCheck;
use vrnic_packet::{MacAddr, ServiceFields, VlanMac};
use vrnic_roce::wire::build::FRAME_MAX;

use super::account::Account;
use super::queue::OVERHEAD;
use super::status::{PortStatus, Reason};
use super::table::{Places, PortId};
use crate::worker::attendance::Attendance;
use crate::worker::event::Event;
use crate::worker::pool::now;

/// Maximum number of bytes of an adapter that wait for the switch.
const BYTES_MAX: usize = 4 << 20;
/// Number of frames that are taken of an adapter before it is the turn of the next one.
const BATCH: usize = 64;

/// The frames of all adapters.
pub struct Outbox {
    lanes: RwLock<HashMap<MacAddr, Arc<Lane>>>,
    places: Arc<Places>,
    /// The lanes in which frames wait.
    ready: Mutex<VecDeque<Arc<Lane>>>,
    bell: Arc<Event>,
    attendance: Arc<Attendance>,
    /// True if a port passes joined frames on.
    joins: AtomicBool,
}

/// An adapter that may send.
#[derive(Debug)]
pub struct Sender {
    /// The port of its frames.
    pub port: PortId,
    /// The state of the port.
    pub status: Arc<PortStatus>,
    /// The addresses that it may use, in addition to those that are bound to its port.
    pub source: SourceCheck,
}

/// The frames of an adapter.
#[derive(Debug)]
struct Lane {
    sender: Sender,
    account: Arc<Account>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<ethernet::Frame>,
    bytes: usize,
    /// Number of frames, where a joined one counts as all those that it stands for.
    count: usize,
    /// True while the switch forwards the first frames.
    taken: bool,
}

/// Returns the bytes that a frame counts as.
fn size(frame: &ethernet::Frame) -> usize {
    frame.footprint() + OVERHEAD
}

impl Outbox {
    /// Creates an outbox that posts to `attendance` when it is not empty any more, and steps `bell`
    /// if the switch's thread has to take the frames.
    #[must_use]
    pub fn new(bell: Arc<Event>, attendance: Arc<Attendance>) -> Self {
        let (lanes, ready, joins) = (RwLock::default(), Mutex::default(), AtomicBool::default());
        Self { lanes, places: Arc::default(), ready, bell, attendance, joins }
    }

    /// Returns the places of stations, which the switch keeps up to date.
    #[must_use]
    pub const fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Allows the adapter with this address to send.
    pub fn add(&self, mac: MacAddr, sender: Sender) {
        let lane = Lane { sender, account: Arc::default(), waiting: Mutex::default() };
        self.lanes.write().insert(mac, Arc::new(lane));
    }

    /// Gives the adapter with this address `share` of `most`, the largest share of all adapters, at
    /// uplinks that are busy.
    pub fn share(&self, mac: MacAddr, share: u32, most: u32) {
        if let Some(lane) = self.lanes.read().get(&mac) {
            lane.account.limit(share, most);
        }
    }

    /// Sets whether a port passes joined frames on.
    pub fn set_joins(&self, joins: bool) {
        self.joins.store(joins, Ordering::Relaxed);
    }

    /// Forgets the adapter with this address.
    pub fn remove(&self, mac: MacAddr) {
        self.lanes.write().remove(&mac);
    }

    /// Takes frames of the adapters in turn: `each` receives the port, the account, and in `space`
    /// the next frames of one of them. It removes those that it forwards, and returns whether it
    /// wants more. The rest stays in order. Posts again if frames wait at the end. Returns whether
    /// any frames waited.
    pub fn take(
        &self,
        space: &mut VecDeque<ethernet::Frame>,
        mut each: impl FnMut(PortId, &Arc<Account>, &mut VecDeque<ethernet::Frame>) -> bool,
    ) -> bool {
        if !self.attendance.has_work() {
            return false;
        }
        self.attendance.take();
        let _end = Ending(self);
        let (mut any, mut more) = (false, true);
        while more && let Some(lane) = self.pop_ready() {
            any = true;
            lane.take(space);
            let taken = Taken { outbox: self, lane, space };
            more = each(taken.lane.sender.port, &taken.lane.account, taken.space);
        }
        any
    }

    fn pop_ready(&self) -> Option<Arc<Lane>> {
        self.ready.lock().pop_front()
    }
}

/// Posts again, when it is dropped, if frames wait.
struct Ending<'a>(&'a Outbox);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let left = !self.0.ready.lock().is_empty();
        if left && self.0.attendance.post() {
            self.0.bell.step();
        }
    }
}

/// A lane whose first frames are being forwarded. When it is dropped, those that are left go back,
/// also if the switch has panicked.
struct Taken<'a> {
    outbox: &'a Outbox,
    lane: Arc<Lane>,
    space: &'a mut VecDeque<ethernet::Frame>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.lane.put_back(self.space) {
            self.outbox.ready.lock().push_back(Arc::clone(&self.lane));
        }
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

impl Lane {
    /// Takes frames while there is room. Returns whether the lane has to be announced as ready.
    fn put(&self, frames: &mut Vec<ethernet::Frame>) -> bool {
        let mut waiting = self.waiting.lock();
        let was_idle = waiting.frames.is_empty() && !waiting.taken;
        let mut lost = 0;
        for frame in frames.drain(..) {
            let len = size(&frame);
            if waiting.bytes + len > BYTES_MAX {
                lost += frame.count();
                continue;
            }
            waiting.bytes += len;
            waiting.count += frame.count();
            waiting.frames.push_back(frame);
        }
        if lost > 0 {
            self.sender.status.count_dropped(Reason::Outbox, lost);
        }
        was_idle && !waiting.frames.is_empty()
    }

    /// Moves the first frames to `space`, which is empty.
    fn take(&self, space: &mut VecDeque<ethernet::Frame>) {
        let mut waiting = self.waiting.lock();
        waiting.taken = true;
        let batch = BATCH.min(waiting.frames.len());
        space.extend(waiting.frames.drain(..batch));
        for frame in space.iter() {
            waiting.bytes -= size(frame);
            waiting.count -= frame.count();
        }
    }

    /// Takes frames back that were not forwarded. Returns whether any frames wait now.
    fn put_back(&self, space: &mut VecDeque<ethernet::Frame>) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.taken = false;
        while let Some(frame) = space.pop_back() {
            waiting.bytes += size(&frame);
            waiting.count += frame.count();
            waiting.frames.push_front(frame);
        }
        !waiting.frames.is_empty()
    }
}

impl Uplink for Outbox {
    fn send(&self, source: MacAddr, frames: &mut Vec<ethernet::Frame>) {
        let lane = self.lanes.read().get(&source).map(Arc::clone);
        let Some(lane) = lane else { return frames.clear() };
        if lane.put(frames) {
            let mut ready = self.ready.lock();
            ready.push_back(lane);
            let first = ready.len() == 1;
            drop(ready);
            if first && self.attendance.post() {
                self.bell.step();
            }
        }
    }

    fn room(&self, source: MacAddr, service: ServiceFields) -> usize {
        let lanes = self.lanes.read();
        let Some(lane) = lanes.get(&source) else { return usize::MAX };
        if lane.sender.status.pauses(service) {
            return 0;
        }
        let waiting = lane.waiting.lock().count;
        lane.account.room(FRAME_MAX + OVERHEAD, now()).saturating_sub(waiting)
    }

    fn pauses(&self, source: MacAddr, service: ServiceFields) -> bool {
        self.lanes.read().get(&source).is_some_and(|lane| lane.sender.status.pauses(service))
    }

    fn is_foreign(&self, own: MacAddr, at: VlanMac) -> bool {
        let lanes = self.lanes.read();
        lanes.get(&own).is_none_or(|lane| {
            let Sender { port, source, .. } = lane.sender;
            let place = self.places.port_of(at);
            place.map_or(source == SourceCheck::Own, |place| place != port)
        })
    }

    fn joins(&self) -> bool {
        self.joins.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use vrnic_control_api::port_view::Kind;

    use super::*;
    use crate::net::account::LIMIT;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn outbox() -> (Outbox, Arc<Event>, Arc<PortStatus>) {
        let bell = Arc::new(Event::new().expect("an event"));
        let outbox = Outbox::new(Arc::clone(&bell), Arc::default());
        let status = Arc::new(PortStatus::new("a", Kind::Function));
        let sender = Sender { port: 7, status: Arc::clone(&status), source: SourceCheck::Strict };
        outbox.add(MAC, sender);
        (outbox, bell, status)
    }

    fn frames(count: usize, len: usize) -> Vec<ethernet::Frame> {
        (0..count).map(|_| ethernet::Frame::new(vec![0; len])).collect()
    }

    fn room(outbox: &Outbox, source: MacAddr) -> usize {
        outbox.room(source, ServiceFields::default())
    }

    /// Takes all frames in turns of this many frames, and returns the port of each.
    fn take(outbox: &Outbox, limit: usize) -> Vec<PortId> {
        let mut ports = Vec::new();
        outbox.take(&mut VecDeque::new(), |port, _, frames| {
            let room = limit - ports.len();
            ports.extend(frames.drain(..room.min(frames.len())).map(|_| port));
            ports.len() < limit
        });
        ports
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
        assert_eq!(take(&outbox, 99), [7; 15]);
        assert!(take(&outbox, 99).is_empty(), "nothing is left");
        outbox.send(MAC, &mut frames(1, 60));
        assert!(bell.wait(Duration::ZERO), "the next frame rings again");
    }

    #[test]
    fn an_adapter_with_much_at_uplinks_waits_and_others_do_not() {
        let (outbox, bell, status) = outbox();
        const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
        outbox.add(OTHER, Sender { port: 8, status, source: SourceCheck::Strict });
        outbox.send(MAC, &mut frames(1, 60));
        let mut charge = None;
        assert!(outbox.take(&mut VecDeque::new(), |_, account, frames| {
            frames.clear();
            charge = Some(account.charge(LIMIT));
            true
        }));
        assert_eq!(room(&outbox, MAC), 0);
        assert!(room(&outbox, OTHER) > 100);
        drop((charge, bell));
        assert!(room(&outbox, MAC) > 100);
    }

    #[test]
    fn adapters_with_many_frames_take_turns_and_keep_their_order() {
        let (outbox, bell, status) = outbox();
        let macs = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1]];
        for (mac, port) in macs.into_iter().zip(20..) {
            let status = Arc::clone(&status);
            outbox.add(MacAddr(mac), Sender { port, status, source: SourceCheck::Strict });
        }
        const EACH: usize = 5 * BATCH;
        let mut numbers = (0..).map(|n: u64| ethernet::Frame::new(n.to_be_bytes().to_vec()));
        for mac in macs {
            outbox.send(MacAddr(mac), &mut numbers.by_ref().take(EACH).collect());
        }
        let (mut taken, mut ports) = (Vec::new(), Vec::new());
        while taken.len() < 2 * EACH {
            assert!(bell.wait(Duration::ZERO), "frames wait, and the bell is silent");
            bell.take();
            // Some frames of each batch are left.
            outbox.take(&mut VecDeque::new(), |port, _, frames| {
                ports.push(port);
                taken.extend(frames.drain(..frames.len().min(BATCH - 1)));
                false
            });
        }
        assert_eq!(ports.get(..4), Some(&[20, 21, 20, 21][..]));
        assert!(!bell.wait(Duration::ZERO), "the bell rings, and no frame waits");
        let mut sorted = taken.clone();
        sorted.sort_by_key(|frame| frame.bytes().to_vec());
        let of = |first: bool| {
            move |frame: &&ethernet::Frame| {
                (frame.bytes() < (EACH as u64).to_be_bytes().as_slice()) == first
            }
        };
        for first in [true, false] {
            assert!(taken.iter().filter(of(first)).eq(sorted.iter().filter(of(first))));
        }
        sorted.dedup();
        assert_eq!(sorted.len(), 2 * EACH);
    }

    #[test]
    fn a_frame_that_comes_while_others_are_forwarded_is_not_forgotten() {
        let (outbox, bell, _) = outbox();
        outbox.send(MAC, &mut frames(1, 60));
        bell.take();
        outbox.take(&mut VecDeque::new(), |_, _, frames| {
            frames.clear();
            outbox.send(MAC, &mut self::frames(1, 60));
            false
        });
        assert!(bell.wait(Duration::ZERO));
        assert_eq!(take(&outbox, 99), [7]);
    }

    /// The frame for which the switch panicked is lost.
    ///
    /// Shows: hostile: a panic while the switch forwards frames
    #[test]
    fn a_panic_of_the_switch_ends_no_lane() {
        let (outbox, bell, status) = outbox();
        const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
        outbox.add(OTHER, Sender { port: 8, status, source: SourceCheck::Strict });
        for mac in [MAC, OTHER] {
            outbox.send(mac, &mut frames(3, 60));
        }
        bell.take();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            outbox.take(&mut VecDeque::new(), |_, _, frames| {
                frames.pop_front();
                panic!("a fault");
            })
        }));
        assert!(panicked.is_err());
        assert!(bell.wait(Duration::ZERO), "frames wait, and the bell is silent");
        bell.take();
        assert_eq!(take(&outbox, 99), [8, 8, 8, 7, 7]);
        outbox.send(MAC, &mut frames(1, 60));
        assert!(bell.wait(Duration::ZERO));
        assert_eq!(take(&outbox, 99), [7]);
    }

    #[test]
    fn what_finds_no_room_is_lost_and_counted() {
        let (outbox, _, status) = outbox();
        let count = BYTES_MAX / (4096 + OVERHEAD);
        outbox.send(MAC, &mut frames(count + 3, 4096));
        assert_eq!(take(&outbox, 2 * count).len(), count);
        assert_eq!(status.view().dropped.get("outbox"), Some(&3));
        outbox.send(MacAddr([2; 6]), &mut frames(1, 60));
        assert!(take(&outbox, 99).is_empty(), "no station has this address");
    }
}
