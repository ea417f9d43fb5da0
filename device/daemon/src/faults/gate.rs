//! Applies the rules to packets between an adapter and its network.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex, MutexGuard};
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::ethernet::Frame;
use vrnic_adapter::watch::Sender;
use vrnic_control_api::faults::{FaultsView, RuleView};
use vrnic_faults::delay::Waits;
use vrnic_faults::{Delayed, Fate, Opcode, Rule, RuleId, Rules, Site, Subject, corrupt};
use vrnic_packet::{MacAddr, Nanos};
use vrnic_roce::wire;

use crate::host::vfio_host::VfioHost;
use crate::worker::pool::now;

/// Maximum time for which a packet waits for later packets to overtake it, because none may follow.
const OVERTAKE: Duration = Duration::from_millis(100);

/// The most packets that are taken at once from those that wait, because senders wait meanwhile.
const AT_ONCE: usize = 256;

/// The rules, and the packets that wait.
#[derive(Debug)]
pub(super) struct Gate {
    fabric: Weak<Fabric<VfioHost>>,
    rules: Arc<Rules>,
    state: Mutex<State>,
    /// Notified when the earliest due time becomes earlier, and at the end.
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Delayed<Waiting>,
    overflowed: u64,
    ended: bool,
}

/// A packet that waits.
#[derive(Debug)]
struct Waiting {
    stream: Stream,
    frame: Frame,
}

/// The MAC of an adapter, and the number of its QP.
type Stream = (MacAddr, vrnic_abi::Qpn);

impl Waits for Waiting {
    type Stream = Stream;

    fn bytes(&self) -> usize {
        self.frame.bytes().len()
    }

    fn stream(&self) -> Stream {
        self.stream
    }
}

impl Gate {
    /// Creates a gate without rules.
    pub(super) fn new(fabric: Weak<Fabric<VfioHost>>, rules: Arc<Rules>) -> Self {
        Self { fabric, rules, state: Mutex::default(), bell: Condvar::new() }
    }

    /// Adds a rule; returns its number.
    pub(super) fn add(&self, rule: Rule) -> anyhow::Result<RuleId> {
        Ok(self.rules.add(rule, now())?)
    }

    /// Removes a rule; returns whether it existed.
    pub(super) fn remove(&self, id: RuleId) -> bool {
        self.rules.remove(id)
    }

    /// Removes all rules, and sends the packets that wait.
    pub(super) fn clear(&self) {
        self.rules.clear();
        let mut state = self.state.lock();
        let late = std::iter::from_fn(|| state.waiting.flush()).collect();
        drop(state);
        self.send(late);
    }

    /// Requests the packets of the adapters while a rule looks at packets. Must be called after
    /// each change of the rules.
    pub(super) fn want(&self) {
        // The last caller sees the last change.
        let _one_at_a_time = self.state.lock();
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.watch.want_frames(self.rules.look_at(Site::Packet));
        }
    }

    /// Returns the rules with their counters.
    pub(super) fn view(&self) -> FaultsView {
        let state = self.state.lock();
        let (time, clock) = (now(), Clock::now());
        let rules = self.rules.list(time, |listed| RuleView {
            guest: listed.guest.map(str::to_owned),
            id: listed.id.get(),
            rule: listed.rule.to_string(),
            seen: listed.seen,
            hit: listed.hit,
            armed: clock.of(listed.armed),
            last_hit: listed.last.map(|last| clock.of(last)),
            over: listed.is_over,
        });
        FaultsView {
            now: clock.of(time),
            rules,
            waiting: state.waiting.len() as u64,
            overflowed: state.overflowed,
        }
    }

    /// Sends packets whose wait is over, until [`Self::end`] is called.
    pub(super) fn send_late(&self) {
        let mut state = self.state.lock();
        while !state.ended {
            let time = now();
            let late = std::iter::from_fn(|| state.waiting.next(time));
            let late: Vec<_> = late.take(AT_ONCE).collect();
            match state.waiting.deadline() {
                _ if !late.is_empty() => MutexGuard::unlocked(&mut state, || self.send(late)),
                None => self.bell.wait(&mut state),
                Some(at) => {
                    let wait = at.0.saturating_sub(time.0);
                    let _over = self.bell.wait_for(&mut state, Duration::from_nanos(wait));
                }
            }
        }
    }

    /// Ends [`Self::send_late`].
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.bell.notify_all();
    }

    fn send(&self, late: Vec<Waiting>) {
        let Some(fabric) = self.fabric.upgrade() else { return };
        for Waiting { stream: (mac, _), frame } in late {
            let _copies = fabric.deliver(mac, &mut vec![frame]);
        }
    }

    /// Applies the rules to frames that leave. Packets whose time is over are sent by
    /// [`Self::send_late`], so that no sender pays for those of others.
    pub(super) fn leaving(&self, from: &Sender<'_>, frames: &mut Vec<Frame>) {
        if !from.has_rules {
            return;
        }
        let time = now();
        let mut state = self.state.lock();
        let before = state.waiting.deadline();
        for frame in std::mem::take(frames) {
            state.pass(&self.rules, from, frame, time, frames);
            let overtaken = std::iter::from_fn(|| state.waiting.overtaken());
            frames.extend(overtaken.map(|waiting| waiting.frame));
        }
        let next = state.waiting.deadline();
        drop(state);
        if next.is_some_and(|next| before.is_none_or(|before| next < before)) {
            self.bell.notify_one();
        }
    }
}

impl State {
    /// Applies the rules to a packet, and appends it to `out` if it is to be sent now.
    fn pass(
        &mut self,
        rules: &Rules,
        from: &Sender<'_>,
        frame: Frame,
        time: Nanos,
        out: &mut Vec<Frame>,
    ) {
        let stream = (from.mac, from.qpn);
        let subject = subject(from, &frame);
        let fate = subject.map_or(Fate::Pass, |subject| rules.decide(&subject, time));
        match fate {
            Fate::Drop => return,
            Fate::Delay(by) => {
                let kept = self.waiting.for_time(Waiting { stream, frame }, time, by);
                return self.overflowed += u64::from(kept.is_err());
            }
            Fate::Reorder(packets) => {
                let (waiting, until) = (Waiting { stream, frame }, time.plus(OVERTAKE));
                let kept = self.waiting.for_frames(waiting, packets, until);
                return self.overflowed += u64::from(kept.is_err());
            }
            Fate::Duplicate => out.extend([frame.clone(), frame]),
            Fate::Corrupt { crc, random } => {
                let mut frame = frame;
                // A packet of an adapter is always long enough to have a bit flipped.
                let _changed = corrupt(frame.bytes_mut(), crc, random);
                out.push(frame);
            }
            Fate::Pass => out.push(frame),
        }
        self.waiting.passed(&stream);
    }
}

/// Returns the properties of a packet that rules use.
fn subject<'a>(from: &Sender<'a>, frame: &Frame) -> Option<Subject<'a>> {
    let (opcode, psn) = Opcode::of_frame(frame.bytes())?;
    let qp = wire::Qpn::new(from.qpn.get());
    let opcode = Some(opcode);
    Some(Subject { qp, opcode, psn, ..Subject::new(Site::Packet, from.function) })
}

/// The clock of the daemon's threads, and that of the world, at the same moment.
#[derive(Clone, Copy, Debug)]
struct Clock {
    own: Nanos,
    /// Microseconds since 1970.
    world: u64,
}

impl Clock {
    fn now() -> Self {
        let world = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        Self { own: now(), world: u64::try_from(world).unwrap_or(u64::MAX) }
    }

    /// Returns the time of the world for a moment that is past.
    const fn of(self, past: Nanos) -> u64 {
        self.world.saturating_sub(self.own.0.saturating_sub(past.0) / 1000)
    }
}
