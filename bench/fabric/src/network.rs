//! The wires, the switch, and the run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use vrnic_lanes::{Class, Counters, Frame as _, Lanes, Mapping, Mark, Next, PauseFrame};
use vrnic_packet::{Ethernet, Nanos, Reader};
use vrnic_roce::wire::Qpn;

use crate::flow::{Numbers, Receiving, Sending, host_of, mac};
use crate::host::Host;
use crate::load::Load;
use crate::outcome::{Outcome, Sample};
use crate::scenario::{OTHER, Scenario};

/// The time between two samples.
const SAMPLE: Duration = Duration::from_micros(20);
/// The latest start of a sender. Real programs do not start at once.
const STAGGER: u64 = 20_000;
/// The number of the first queue pair.
const FIRST_QPN: usize = 0x11;

/// A place where frames arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Host(usize),
    /// A port of the switch.
    Port(usize),
}

/// Something that happens at a time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(Place, Vec<u8>),
    Wake(Place),
    Sample,
}

/// A frame in the switch.
#[derive(Debug)]
struct Transit {
    load: Load,
    /// The port by which the frame came.
    from: usize,
}

impl vrnic_lanes::Frame for Transit {
    fn bytes(&self) -> u32 {
        self.load.bytes()
    }

    fn mark(&mut self) -> Mark {
        self.load.mark()
    }
}

struct Network {
    now: Nanos,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Number of events so far, so that events of one time keep their order.
    count: u64,
    /// The time at which each place is woken next. Other events that wake it are out of date.
    wakes: BTreeMap<Place, u64>,
    latency: Duration,
    scenario: Scenario,
    hosts: Vec<Host>,
    ports: Vec<Lanes<Transit>>,
    mapping: Mapping,
    samples: Vec<Sample>,
}

/// Runs a scenario.
///
/// # Panics
/// If a connection fails, or the scenario has no valid configuration.
#[must_use]
pub fn run(scenario: &Scenario) -> Outcome {
    let mut network = Network::new(scenario);
    network.push(Nanos(0), Event::Sample);
    for host in 0..network.hosts.len() {
        network.serve_host(host);
    }
    let end = Nanos::default().plus(scenario.span);
    while let Some(Reverse((at, _, event))) = network.events.pop() {
        if at > end.0 {
            break;
        }
        network.now = Nanos(at);
        network.handle(event);
    }
    network.outcome()
}

impl Network {
    /// Makes the hosts: first the receivers, then the senders.
    fn new(scenario: &Scenario) -> Self {
        let mut rng = fastrand::Rng::with_seed(scenario.seed);
        let bystanders = if scenario.bystanders { scenario.senders } else { 0 };
        let count = 2 + scenario.senders;
        let mut hosts: Vec<Host> = (0..count)
            .map(|nth| {
                let pace = scenario.slow_receiver.filter(|_| nth == 0);
                Host::new(nth, scenario.ports(nth as u64), pace)
            })
            .collect();
        let flows = (0..scenario.senders).map(|nth| (nth, 0, Class::ROCE));
        let flows = flows.chain((0..bystanders).map(|nth| (nth, 1, OTHER)));
        for (nth, (sender, receiver, class)) in flows.enumerate() {
            // CAST: there are few flows.
            let qpn = Qpn::new((FIRST_QPN + nth) as u32);
            let numbers = Numbers { qpn, sender: 2 + sender, receiver, class };
            let start = Nanos(rng.u64(..STAGGER));
            if let Some(host) = hosts.get_mut(numbers.sender) {
                host.sending.push(Sending::new(numbers, scenario, start));
            }
            if let Some(host) = hosts.get_mut(receiver) {
                host.receiving.push(Receiving::new(numbers));
            }
        }
        let port = |nth: usize| {
            let config = scenario.ports(1000 + nth as u64);
            Lanes::new(config, mac(nth)).expect("a configuration")
        };
        Self {
            now: Nanos(0),
            events: BinaryHeap::new(),
            count: 0,
            wakes: BTreeMap::new(),
            latency: scenario.latency,
            scenario: scenario.clone(),
            ports: (0..count).map(port).collect(),
            hosts,
            mapping: Mapping::default(),
            samples: Vec::new(),
        }
    }

    fn push(&mut self, at: Nanos, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at.0, self.count, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Sample => {
                self.sample();
                self.push(self.now.plus(SAMPLE), Event::Sample);
            }
            Event::Arrival(Place::Host(host), bytes) => {
                if let Some(host) = self.hosts.get_mut(host) {
                    host.receive(self.now, Load(bytes));
                }
                self.serve_host(host);
            }
            Event::Arrival(Place::Port(port), bytes) => self.enter(port, Load(bytes)),
            Event::Wake(place) if self.wakes.get(&place) == Some(&self.now.0) => {
                self.wakes.remove(&place);
                match place {
                    Place::Host(host) => self.serve_host(host),
                    Place::Port(port) => self.serve_port(port),
                }
            }
            Event::Wake(_) => {}
        }
    }

    /// Sends a frame over a wire: it arrives when its last bit does.
    fn send(&mut self, to: Place, load: Load) {
        let at = self.now.plus(self.scenario.link.time(load.bytes().into())).plus(self.latency);
        self.push(at, Event::Arrival(to, load.0));
    }

    fn serve_host(&mut self, nth: usize) {
        let mut frames = Vec::new();
        let Some(host) = self.hosts.get_mut(nth) else { return };
        let wait = host.serve(self.now, |load| frames.push(load));
        for load in frames {
            self.send(Place::Port(nth), load);
        }
        self.wake(Place::Host(nth), wait);
    }

    fn wake(&mut self, place: Place, at: Option<Nanos>) {
        let Some(at) = at.filter(|at| *at > self.now) else { return };
        if self.wakes.get(&place).is_none_or(|present| at.0 < *present) {
            self.wakes.insert(place, at.0);
            self.push(at, Event::Wake(place));
        }
    }

    /// Takes a frame into the switch.
    fn enter(&mut self, from: usize, load: Load) {
        let Some(port) = self.ports.get_mut(from) else { return };
        if let Some(pause) = PauseFrame::parse(&load.0) {
            port.obey(self.now, &pause);
            return self.serve_port(from);
        }
        let class = self.mapping.class_of(&load.0);
        let Ok((ethernet, _)) = Ethernet::parse(&mut Reader::new(&load.0)) else { return };
        let (to, bytes) = (host_of(ethernet.destination), load.memory());
        if !port.arrived(class, bytes) {
            // The station may have to be paused again.
            return self.serve_port(from);
        }
        let queue = self.ports.get_mut(to);
        if queue.is_none_or(|port| port.push(class, Transit { load, from }).is_err()) {
            self.leave(from, class, bytes);
        }
        self.serve_port(to);
        self.serve_port(from);
    }

    /// Counts a frame that has left the switch, which may let its sender go on.
    fn leave(&mut self, from: usize, class: Class, bytes: u32) {
        if let Some(port) = self.ports.get_mut(from) {
            port.left(class, bytes);
        }
    }

    fn serve_port(&mut self, nth: usize) {
        let mut sources = Vec::new();
        let wait = loop {
            let Some(port) = self.ports.get_mut(nth) else { return };
            match port.pop(self.now) {
                Next::Pause(pause) => self.send(Place::Host(nth), Load(pause.bytes().to_vec())),
                Next::Frame(class, Transit { load, from }) => {
                    self.leave(from, class, load.memory());
                    self.send(Place::Host(nth), load);
                    sources.push(from);
                }
                Next::Dropped(class, Transit { load, from }) => {
                    self.leave(from, class, load.memory());
                    sources.push(from);
                }
                Next::Wait(at) => break Some(at),
                Next::Nothing => break None,
            }
        };
        self.wake(Place::Port(nth), wait);
        for from in sources {
            if from != nth {
                self.serve_port(from);
            }
        }
    }

    fn sample(&mut self) {
        let of_receiver = self.ports.first();
        let delivered = self.hosts.iter().flat_map(|host| &host.receiving);
        self.samples.push(Sample {
            at: self.now,
            depth: of_receiver.map_or(0, |port| port.depth(Class::ROCE)),
            delivered: delivered.map(|flow| flow.bytes).collect(),
        });
    }

    fn outcome(self) -> Outcome {
        let counters = |of: &Lanes<Load>, class| of.counters(self.now, class);
        let senders = || self.hosts.iter().skip(2);
        let flows = || senders().flat_map(|host| &host.sending);
        Outcome {
            senders: self.scenario.senders,
            port: self.ports.first().map(|port| port.counters(self.now, Class::ROCE)),
            paused: senders().map(|host| counters(&host.port, Class::ROCE).paused).collect(),
            paused_other: senders().map(|host| counters(&host.port, OTHER).paused).collect(),
            drops: self
                .ports
                .iter()
                .map(|port| {
                    let Counters { drops, early_drops, headroom_drops, storm_drops, .. } =
                        port.counters(self.now, Class::ROCE);
                    drops + early_drops + headroom_drops + storm_drops
                })
                .sum::<u64>()
                + self.hosts.iter().map(|host| host.lost).sum::<u64>(),
            notified: flows().map(|flow| flow.counters().notified).sum(),
            resent: flows().map(|flow| flow.counters().resent).sum(),
            samples: self.samples,
        }
    }
}
