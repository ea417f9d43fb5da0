//! The queues and the flow control of a port.

use std::collections::VecDeque;

use vrnic_packet::{MacAddr, Nanos, Pacer};

use crate::class::{Class, ClassSet, PerClass};
use crate::config::{Config, Conflict};
use crate::counters::{Counters, Event};
use crate::ecn::Mark;
use crate::pause::asserted::Asserted;
use crate::pause::frame::{self, PauseFrame};
use crate::pause::obeyed::{Finding, Obeyed};
use crate::queue::{Queue, Size};
use crate::schedule::Schedule;

/// Maximum number of events that wait to be taken. The oldest one goes first.
const EVENTS: usize = 64;

/// The least number of bytes of memory that a frame counts for.
pub const MEMORY_MIN: u32 = 256;

/// A frame in a queue.
pub trait Frame {
    /// Returns the length, from the Ethernet header to the end.
    fn bytes(&self) -> u32;

    /// Returns the bytes of memory that the frame takes, for limits and the budget.
    fn memory(&self) -> u32 {
        self.bytes().max(MEMORY_MIN)
    }

    /// Sets the mark of congestion if the sender reacts to marks.
    fn mark(&mut self) -> Mark;
}

/// What a port does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<F> {
    /// The port sends this PFC frame.
    Pause(PauseFrame),
    /// The port sends this frame of the class.
    Frame(Class, F),
    /// The port drops this frame, because the class is stuck.
    Dropped(Class, F),
    /// The port does nothing before this time, unless something comes.
    Wait(Nanos),
    /// The port does nothing unless something comes.
    Nothing,
}

/// The lanes of a port: for each class a queue of frames that leave, the pauses that the station
/// behind the port asks for, and those that it is asked for.
#[derive(Debug)]
pub struct Lanes<F> {
    config: Config,
    /// The address in PFC frames of this port.
    source: MacAddr,
    queues: PerClass<Queue<F>>,
    /// The memory that classes with flow control may take, which others leave free.
    reserved: u64,
    /// The memory that the frames of all other classes take.
    open: u64,
    /// Number of all frames.
    count: usize,
    schedule: Schedule,
    pacer: Option<Pacer>,
    rng: fastrand::Rng,
    obeyed: PerClass<Obeyed>,
    asserted: Asserted,
    counters: PerClass<Counters>,
    events: VecDeque<Event>,
}

impl<F: Frame> Lanes<F> {
    /// Creates the lanes of a port, which sends PFC frames with the address `source`.
    ///
    /// # Errors
    /// The contradiction in the configuration.
    pub fn new(config: Config, source: MacAddr) -> Result<Self, Conflict> {
        config.check()?;
        Ok(Self {
            source,
            queues: PerClass::default(),
            reserved: config.reserved(),
            open: 0,
            count: 0,
            schedule: Schedule::new(&config.classes),
            pacer: config.rate.map(|rate| Pacer::new(rate, config.burst)),
            rng: fastrand::Rng::with_seed(config.seed),
            obeyed: PerClass::default(),
            asserted: Asserted::new(
                PerClass::from_fn(|class| config.classes[class].pfc),
                config.link,
            ),
            counters: PerClass::default(),
            events: VecDeque::new(),
            config,
        })
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Queues a frame, and marks it if its queue is long. A frame that refuses the mark is dropped,
    /// except in a class with flow control.
    ///
    /// # Errors
    /// The frame, if it is dropped. The drop has been counted.
    pub fn push(&mut self, class: Class, mut frame: F) -> Result<(), F> {
        let (config, queue) = (&self.config.classes[class], &mut self.queues[class]);
        let counters = &mut self.counters[class];
        let bytes = frame.bytes().max(1);
        let size = Size { bytes, memory: frame.memory().max(bytes) };
        let memory = u64::from(size.memory);
        if self.obeyed[class].is_stuck() {
            counters.storm_drops += 1;
            return Err(frame);
        }
        let is_open = config.pfc.is_none();
        let fits = queue.memory() + memory <= u64::from(config.limit)
            && (!is_open || self.reserved + self.open + memory <= u64::from(self.config.budget));
        if !fits {
            counters.drops += 1;
            return Err(frame);
        }
        if let Some(red) = &config.ecn
            && red.marks(queue.bytes(), &mut self.rng)
        {
            match frame.mark() {
                Mark::Set => counters.marks += 1,
                Mark::Refused if is_open => {
                    counters.early_drops += 1;
                    return Err(frame);
                }
                Mark::Kept | Mark::Refused => {}
            }
        }
        queue.push(frame, size);
        counters.deepest = counters.deepest.max(queue.bytes());
        self.open += if is_open { memory } else { 0 };
        self.count += 1;
        Ok(())
    }

    /// Returns what the port does next. The caller calls this until there is nothing to do now.
    pub fn pop(&mut self, now: Nanos) -> Next<F> {
        if let Some(times) = self.asserted.take_due(now) {
            let pause = PauseFrame { source: self.source, times };
            for (class, _) in pause.classes() {
                self.counters[class].pfc_sent += 1;
            }
            self.spend(now, frame::LEN as u64);
            return Next::Pause(pause);
        }
        self.watch(now);
        if let Some((class, frame)) = self.victim() {
            return Next::Dropped(class, frame);
        }
        let mut wait = self.asserted.due_at(now);
        let sooner = |wait: &mut Option<Nanos>, at: Option<Nanos>| {
            *wait = (*wait).into_iter().chain(at).min();
        };
        if self.config.watchdog.is_some() {
            sooner(&mut wait, self.watch_at());
        }
        if self.count > 0 {
            let mut paused = ClassSet::default();
            for class in Class::ALL {
                if !self.queues[class].is_empty()
                    && let Some(until) = self.obeyed[class].waits_until(now)
                {
                    paused.insert(class);
                    sooner(&mut wait, Some(until));
                }
            }
            match self.pacer.as_mut().and_then(|pacer| pacer.waits_until(now)) {
                Some(at) => sooner(&mut wait, Some(at)),
                None => {
                    let first = |class| self.queues[class].first();
                    if let Some(class) = self.schedule.next(paused, first)
                        && let Some(frame) = self.take(class, now)
                    {
                        return Next::Frame(class, frame);
                    }
                }
            }
        }
        wait.map_or(Next::Nothing, Next::Wait)
    }

    /// Counts a frame that has arrived by the port, and stays in the switch until [`Self::left`].
    /// `bytes` is what it takes of the limit of a queue: [`Frame::memory`]. Returns false if the
    /// station behind the port has sent more than it may. Then the caller drops the frame.
    #[must_use]
    pub fn arrived(&mut self, class: Class, bytes: u32) -> bool {
        let fits = self.asserted.arrived(class, bytes);
        if !fits {
            self.counters[class].headroom_drops += 1;
        }
        fits
    }

    /// Records that a PFC frame of [`Self::pop`] was not sent, so that the station behind the port
    /// is told again soon.
    pub fn not_sent(&mut self, now: Nanos, pause: &PauseFrame) {
        for (class, _) in pause.classes() {
            self.counters[class].pfc_sent = self.counters[class].pfc_sent.saturating_sub(1);
            self.asserted.not_told(now, class);
        }
    }

    /// Counts a frame that came by this port and has left the switch, or was dropped in it.
    pub fn left(&mut self, class: Class, bytes: u32) {
        self.asserted.left(class, bytes);
    }

    /// Obeys a PFC frame of the station behind the port. Classes without flow control ignore it.
    pub fn obey(&mut self, now: Nanos, pause: &PauseFrame) {
        for (class, units) in pause.classes() {
            self.counters[class].pfc_received += 1;
            if self.config.classes[class].pfc.is_some() {
                self.obeyed[class].obey(now, frame::duration(units, self.config.link));
            }
        }
    }

    /// Ends all pauses that the station behind the port has asked for, because its link is down.
    pub fn link_down(&mut self, now: Nanos) {
        for class in Class::ALL {
            if self.obeyed[class].is_stuck() {
                self.note(Event::Recovered(class));
            }
            self.obeyed[class].forget(now);
        }
    }

    /// Returns the counters of a class.
    #[must_use]
    pub fn counters(&self, now: Nanos, class: Class) -> Counters {
        Counters { paused: self.obeyed[class].total(now), ..self.counters[class] }
    }

    /// Returns the bytes in the queue of a class.
    #[must_use]
    pub fn depth(&self, class: Class) -> u64 {
        self.queues[class].bytes()
    }

    /// Returns the number of frames in the queue of a class.
    #[must_use]
    pub fn waiting(&self, class: Class) -> usize {
        self.queues[class].len()
    }

    /// Returns the bytes of a class that came by this port and are still in the switch.
    #[must_use]
    pub fn held(&self, class: Class) -> u64 {
        self.asserted.bytes(class)
    }

    /// Returns the time at which [`Self::pop`] has a PFC frame, which may be in the past.
    #[must_use]
    pub fn pause_at(&self) -> Option<Nanos> {
        self.asserted.due_at(Nanos::default())
    }

    /// Returns whether no frame waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes all frames, those of the highest class first.
    #[must_use]
    pub fn drain(&mut self) -> Vec<F> {
        let mut frames = Vec::new();
        for class in Class::ALL.into_iter().rev() {
            frames.extend(std::iter::from_fn(|| self.remove(class)).map(|(frame, _)| frame));
        }
        frames
    }

    /// Returns the next event that an operator is told.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn take(&mut self, class: Class, now: Nanos) -> Option<F> {
        let (frame, Size { bytes, .. }) = self.remove(class)?;
        self.obeyed[class].sent(now);
        let counters = &mut self.counters[class];
        counters.frames += 1;
        counters.bytes += u64::from(bytes);
        self.spend(now, bytes.into());
        Some(frame)
    }

    fn remove(&mut self, class: Class) -> Option<(F, Size)> {
        let (frame, size) = self.queues[class].pop()?;
        if self.config.classes[class].pfc.is_none() {
            self.open -= u64::from(size.memory);
        }
        self.count -= 1;
        Some((frame, size))
    }

    fn spend(&mut self, now: Nanos, bytes: u64) {
        if let Some(pacer) = &mut self.pacer {
            pacer.spend(now, bytes);
        }
    }

    /// Lets the watchdog look at all classes.
    fn watch(&mut self, now: Nanos) {
        let Some(dog) = self.config.watchdog else { return };
        for class in Class::ALL {
            let waits = !self.queues[class].is_empty();
            let event = match self.obeyed[class].watch(now, &dog, waits) {
                None => continue,
                Some(Finding::Stuck) => {
                    self.counters[class].storms += 1;
                    Event::Stuck(class)
                }
                Some(Finding::Recovered) => Event::Recovered(class),
            };
            self.note(event);
        }
    }

    fn note(&mut self, event: Event) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn watch_at(&self) -> Option<Nanos> {
        let dog = self.config.watchdog?;
        self.obeyed.iter().filter_map(|(_, obeyed)| obeyed.watch_at(&dog)).min()
    }

    /// Takes a frame of a class that is stuck.
    fn victim(&mut self) -> Option<(Class, F)> {
        let is_victim =
            |class: &Class| self.obeyed[*class].is_stuck() && !self.queues[*class].is_empty();
        let class = Class::ALL.into_iter().find(is_victim)?;
        let (frame, _) = self.remove(class)?;
        self.counters[class].storm_drops += 1;
        Some((class, frame))
    }
}
