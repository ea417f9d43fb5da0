//! Applies the rules to packets between an adapter and its network.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use vrnic_faults::delay::Waits;
use vrnic_faults::{Delayed, Fate, Opcode, Refused, Rule, RuleId, Rules, Site, Subject, corrupt};
use vrnic_packet::{MacAddr, Nanos};
use vrnic_roce::wire;

use crate::datapath::transport::peers::Fabric;
use crate::ethernet::Frame;
use crate::host::{Clock, Host};
use crate::watch::Sender;

/// Maximum time for which a packet waits for later packets to overtake it, because none may follow.
const OVERTAKE: Duration = Duration::from_millis(100);

/// The most packets that are taken at once from those that wait, because senders wait meanwhile.
const AT_ONCE: usize = 256;

/// The rules, and the packets that wait.
#[derive(Debug)]
pub struct Gate<H: Host, C> {
    fabric: Weak<Fabric<H>>,
    clock: C,
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

impl<H: Host, C: Clock> Gate<H, C> {
    /// Creates a gate for the adapters of a fabric, with the clock of their hosts.
    #[must_use]
    pub fn new(fabric: &Arc<Fabric<H>>, clock: C) -> Self {
        let (rules, fabric) = (Arc::clone(&fabric.faults), Arc::downgrade(fabric));
        Self { fabric, clock, rules, state: Mutex::default(), bell: Condvar::new() }
    }

    /// Adds a rule; returns its number.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn add(&self, rule: Rule) -> Result<RuleId, Refused> {
        self.rules.add(rule, self.now())
    }

    /// Removes a rule; returns whether it existed.
    pub fn remove(&self, id: RuleId) -> bool {
        self.rules.remove(id)
    }

    /// Removes all rules, and sends the packets that wait.
    pub fn clear(&self) {
        self.rules.clear();
        let mut state = self.state.lock();
        let late = std::iter::from_fn(|| state.waiting.flush()).collect();
        drop(state);
        self.send(late);
    }

    /// Requests the packets of the adapters while a rule looks at packets. Must be called after
    /// each change of the rules.
    pub fn want(&self) {
        // The last caller sees the last change.
        let _one_at_a_time = self.state.lock();
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.watch.want_frames(self.rules.look_at(Site::Packet));
        }
    }

    /// Returns the rules for faults.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Returns the number of packets that wait, and of those for which there was no room.
    #[must_use]
    pub fn waiting(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.waiting.len() as u64, state.overflowed)
    }

    /// Sends packets whose wait is over, until [`Self::end`] is called.
    pub fn send_late(&self) {
        let mut state = self.state.lock();
        while !state.ended {
            let time = self.now();
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
    pub fn end(&self) {
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
    pub fn leaving(&self, from: &Sender<'_>, frames: &mut Vec<Frame>) {
        if !from.has_rules {
            return;
        }
        let time = self.now();
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
