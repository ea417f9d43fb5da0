//! The lanes of a port of the switch: frames wait here by class, if an operator has set some, and
//! are passed on when it is their turn. A port without lanes has none of this.

use std::sync::Arc;

use parking_lot::Mutex;
use vrnic_control_api::lanes::LanesConfig;
use vrnic_control_api::port_view::LaneView;
use vrnic_lanes::{Class, Conflict, Lanes, Mapping, Mark, Next, PauseFrame, PerClass, ecn};
use vrnic_packet::{MacAddr, Nanos, ServiceFields};

use super::account::Account;
use super::frame::Frame;
use super::queue::OVERHEAD;

/// The source of PFC frames of ports without an adapter: a locally administered address.
const SOURCE: MacAddr = MacAddr([0x02, 0x76, 0x72, 0x6e, 0x69, 0x63]);

/// The lanes of a port, which the switch changes and others look at.
#[derive(Clone, Debug)]
pub struct PortLanes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    mapping: Mapping,
    lanes: Mutex<Lanes<Entry>>,
}

/// A frame in a lane.
#[derive(Debug)]
pub struct Entry {
    /// The frame.
    pub frame: Frame,
    /// The account of the adapter that has sent it.
    pub account: Option<Arc<Account>>,
    /// What the frame takes of the room for frames of the port that it came by.
    _held: Option<Held>,
}

/// A frame that came by a port with lanes and is still in the switch.
#[derive(Debug)]
struct Held {
    origin: PortLanes,
    class: Class,
    memory: u32,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.origin.0.lanes.lock().left(self.class, self.memory);
    }
}

impl vrnic_lanes::Frame for Entry {
    fn bytes(&self) -> u32 {
        length(&self.frame)
    }

    fn memory(&self) -> u32 {
        memory(&self.frame)
    }

    fn mark(&mut self) -> Mark {
        self.frame.mark()
    }
}

/// Returns the bytes of memory that a frame takes in a lane.
fn memory(frame: &Frame) -> u32 {
    u32::try_from(frame.footprint().saturating_add(OVERHEAD)).unwrap_or(u32::MAX)
}

fn length(frame: &Frame) -> u32 {
    u32::try_from(frame.bytes().len()).unwrap_or(u32::MAX)
}

impl Frame {
    /// Marks the frame, "congestion experienced", if its sender reacts to marks. Clones stay as
    /// they are.
    fn mark(&mut self) -> Mark {
        ecn::mark(self.bytes_mut())
    }
}

impl PortLanes {
    /// Creates the lanes of a port whose adapter, if there is one, has the address `mac`.
    ///
    /// # Errors
    /// The contradiction in the settings.
    pub fn new(settings: &LanesConfig, mac: Option<MacAddr>) -> Result<Self, Conflict> {
        let lanes = Lanes::new((*settings.config).clone(), mac.unwrap_or(SOURCE))?;
        let lanes = Mutex::new(lanes);
        Ok(Self(Arc::new(Shared { mapping: (*settings.mapping).clone(), lanes })))
    }

    /// Returns the class of frames with these fields.
    #[must_use]
    pub fn class(&self, fields: ServiceFields) -> Class {
        self.0.mapping.class(fields)
    }

    /// Queues a frame. `origin` are the lanes of the port that it came by. Returns false if the
    /// frame was dropped.
    pub fn push(
        &self,
        frame: Frame,
        account: Option<&Arc<Account>>,
        origin: Option<&Self>,
    ) -> bool {
        let held = match origin {
            None => None,
            Some(origin) => match origin.hold(&frame) {
                Some(held) => Some(held),
                None => return false,
            },
        };
        let class = self.0.mapping.class_of(frame.bytes());
        let entry = Entry { frame, account: account.map(Arc::clone), _held: held };
        // A frame that is dropped takes the lock of the port that it came by, which may be this
        // one.
        let pushed = self.0.lanes.lock().push(class, entry);
        pushed.is_ok()
    }

    /// Counts a frame that came by this port, until the result is dropped. Returns `None` if the
    /// station behind the port has sent more than it may.
    fn hold(&self, frame: &Frame) -> Option<Held> {
        let (class, memory) = (self.0.mapping.class_of(frame.bytes()), memory(frame));
        let fits = self.0.lanes.lock().arrived(class, memory);
        fits.then(|| Held { origin: self.clone(), class, memory })
    }

    /// Returns a class whose frames may be lost although they have flow control, because the class
    /// has less room here than other ports may send before they are paused, and the bytes that it
    /// needs.
    #[must_use]
    pub fn lacks_room<'a>(&self, others: impl Iterator<Item = &'a Self>) -> Option<(Class, u64)> {
        let mut needs = PerClass::<u64>::default();
        for other in others.filter(|other| !Arc::ptr_eq(&self.0, &other.0)) {
            for (class, config) in other.0.lanes.lock().config().classes.iter() {
                let most = config.pfc.map(|it| u64::from(it.xoff) + u64::from(it.headroom));
                needs[class] += most.unwrap_or(0);
            }
        }
        let lanes = self.0.lanes.lock();
        let mut lossless = lanes.config().classes.iter().filter(|(_, it)| it.pfc.is_some());
        let lacking = lossless.find(|(class, it)| needs[*class] > u64::from(it.limit));
        lacking.map(|(class, _)| (class, needs[class]))
    }

    /// Returns what the port does next.
    #[must_use]
    pub fn pop(&self, now: Nanos) -> Next<Entry> {
        self.0.lanes.lock().pop(now)
    }

    /// Returns the time at which the station behind the port has to be told that it is paused, or
    /// goes on.
    #[must_use]
    pub fn pause_at(&self) -> Option<Nanos> {
        self.0.lanes.lock().pause_at()
    }

    /// Records that a PFC frame was not sent.
    pub fn not_sent(&self, now: Nanos, pause: &PauseFrame) {
        self.0.lanes.lock().not_sent(now, pause);
    }

    /// Ends the pauses that the station behind the port has asked for, because its link is down.
    pub fn link_down(&self, now: Nanos) {
        self.0.lanes.lock().link_down(now);
    }

    /// Removes all frames.
    #[must_use]
    pub fn drain(&self) -> Vec<Entry> {
        self.0.lanes.lock().drain()
    }

    /// Obeys a PFC frame.
    pub fn obey(&self, now: Nanos, pause: &PauseFrame) {
        self.0.lanes.lock().obey(now, pause);
    }

    /// Returns the duration of this number of units of a PFC frame of the port.
    #[must_use]
    pub fn duration(&self, units: u16) -> std::time::Duration {
        vrnic_lanes::pause::frame::duration(units, self.0.lanes.lock().config().link)
    }

    /// Returns the next event that an operator is told.
    #[must_use]
    pub fn take_event(&self) -> Option<vrnic_lanes::Event> {
        self.0.lanes.lock().take_event()
    }

    /// Returns the classes that have had frames.
    #[must_use]
    pub fn views(&self, now: Nanos) -> Vec<LaneView> {
        let lanes = self.0.lanes.lock();
        let view = |class: Class| {
            let of = lanes.counters(now, class);
            LaneView {
                class: class.number(),
                frames: of.frames,
                bytes: of.bytes,
                depth: lanes.depth(class),
                deepest: of.deepest,
                drops: of.drops + of.early_drops + of.storm_drops + of.headroom_drops,
                marks: of.marks,
                paused_us: u64::try_from(of.paused.as_micros()).unwrap_or(u64::MAX),
                pfc_sent: of.pfc_sent,
                pfc_received: of.pfc_received,
                storms: of.storms,
            }
        };
        let none = |class| LaneView { class, ..LaneView::default() };
        Class::ALL.into_iter().map(view).filter(|view| *view != none(view.class)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame of IPv4 with this traffic class.
    fn frame(traffic_class: u8, len: usize) -> Frame {
        let mut bytes = vec![0; len];
        bytes[12..16].copy_from_slice(&[8, 0, 0x45, traffic_class]);
        Frame::new(bytes).expect("a frame")
    }

    fn lanes(settings: &str) -> PortLanes {
        PortLanes::new(&settings.parse().expect("settings"), None).expect("lanes")
    }

    fn lane(lanes: &PortLanes, class: u8) -> LaneView {
        let found = lanes.views(Nanos(0)).into_iter().find(|view| view.class == class);
        found.unwrap_or_default()
    }

    #[test]
    fn frames_wait_by_class_and_clones_are_not_marked() {
        let lanes = lanes("port=a,ecn=3:1-2-100");
        let roce = frame(26 << 2 | 2, 1000);
        let kept = roce.clone();
        for frame in [roce.clone(), roce, frame(0, 100), frame(48 << 2, 100)] {
            assert!(lanes.push(frame, None, None));
        }
        let mut order = Vec::new();
        while let Next::Frame(class, entry) = lanes.pop(Nanos(0)) {
            order.push((class.number(), entry.frame.bytes()[15] & 3));
        }
        order.sort_unstable();
        assert_eq!(order, [(0, 0), (3, 2), (3, 3), (6, 0)], "the second one found a queue");
        assert_eq!(kept.bytes()[15] & 3, 2);
        assert_eq!((lane(&lanes, 3).marks, lane(&lanes, 3).frames), (1, 2));
        assert_eq!(lanes.views(Nanos(0)).len(), 3);
    }

    #[test]
    fn a_port_is_paused_by_what_it_has_sent_to_another_one() {
        let (origin, to) = (lanes("port=a,pfc=3:3k-2k"), lanes("port=b,pfc=none,ecn=none"));
        let sent = || to.push(frame(26 << 2, 1000), None, Some(&origin));
        assert!((0..4).all(|_| sent()));
        let paused = |next: Next<Entry>| match next {
            Next::Pause(pause) => pause.times[Class::ROCE],
            _ => None,
        };
        assert_eq!(paused(origin.pop(Nanos(0))), Some(u16::MAX));
        for _ in 0..3 {
            assert!(matches!(to.pop(Nanos(0)), Next::Frame(..)));
        }
        assert_eq!(paused(origin.pop(Nanos(0))), Some(0));
        // Room for what is under way.
        let passed = (0..500).filter(|_| sent()).count();
        // A frame takes 1064 bytes, and the first one is still in the switch.
        assert_eq!(passed, (3000 + (256 << 10)) / 1064 - 1);
        assert_eq!(lane(&origin, 3).drops, 500 - passed as u64);
    }

    #[test]
    fn a_frame_that_a_port_sends_to_itself_may_be_dropped() {
        let lanes = lanes("port=a,limits=0:70k,pfc=none");
        let own = lanes.clone();
        let passed = (0..100).filter(|_| lanes.push(frame(0, 1000), None, Some(&own))).count();
        assert_eq!((passed, lane(&lanes, 0).drops), (65, 35), "a frame takes 1064 bytes");
    }

    /// Shows: network: nothing is lost in a class with PFC
    #[test]
    fn a_port_has_room_for_what_others_may_send_or_says_what_it_needs() {
        let (to, others) = (lanes("port=a"), [0; 9].map(|_| lanes("port=b,pfc=3:256k-192k")));
        let of = |count| to.lacks_room(others.iter().take(count).chain([&to]));
        let each = 256_000 + (256 << 10);
        assert_eq!(of(8), None, "4 MiB have room for them");
        assert_eq!(of(9), Some((Class::ROCE, 9 * each)));
        let without = lanes("port=a,pfc=none");
        assert_eq!(without.lacks_room(others.iter()), None);
    }
}
