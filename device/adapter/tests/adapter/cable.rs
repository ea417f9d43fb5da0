//! Two daemons, with an adapter each, at the ends of a simulated cable.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use vrnic_abi::cq::Cqe;
use vrnic_abi::qp::Attr;
use vrnic_adapter::ethernet::{Frame, Uplink};
use vrnic_packet::{MacAddr, ServiceFields};
use vrnic_simlink::{Faults, Link};
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::polls::Polls;
use crate::world::World;

/// Nanoseconds that a frame takes from one end to the other.
const LATENCY: u64 = 2_000;
/// Nanoseconds after which a test fails if the adapters still have work.
const MAX_TIME_NS: u64 = 100_000_000_000;

/// A daemon's end of the cable: frames that leave it wait here for the link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plug {
    /// The frames that wait.
    pub(crate) waiting: Arc<Mutex<Vec<Frame>>>,
    /// True if the link takes no further frames.
    full: Arc<AtomicBool>,
    /// The DSCP whose frames are paused, if one is.
    paused: Arc<Mutex<Option<u8>>>,
}

impl Plug {
    /// Pauses frames with this DSCP, and no others.
    pub(crate) fn pause(&self, dscp: Option<u8>) {
        *self.paused.lock() = dscp;
    }

    fn holds_back(&self, service: ServiceFields) -> bool {
        let dscp = service.traffic_class.map(|class| class >> 2);
        dscp.is_some() && *self.paused.lock() == dscp
    }
}

impl Uplink for Plug {
    fn send(&self, _source: MacAddr, frames: &mut Vec<Frame>) {
        self.waiting.lock().append(frames);
    }

    fn room(&self, _source: MacAddr, service: ServiceFields) -> usize {
        let is_full = self.full.load(Ordering::Acquire) || self.holds_back(service);
        if is_full { 0 } else { usize::MAX }
    }

    fn pauses(&self, _source: MacAddr, service: ServiceFields) -> bool {
        self.holds_back(service)
    }
}

/// Two guests, each with an adapter in a daemon of its own.
pub(crate) struct Cable {
    pub(crate) world: World,
    /// The daemon of B.
    pub(crate) other: World,
    pub(crate) ga: Guest,
    pub(crate) gb: Guest,
    /// The polls of both.
    pub(crate) polls: Polls,
    pub(crate) plugs: [Plug; 2],
    /// Frames from A, and frames from B.
    pub(crate) links: [RefCell<Link>; 2],
}

impl Cable {
    /// Returns a cable whose faults follow from the seed.
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let world = World::copying();
        let other = World { clock: Arc::clone(&world.clock), ..World::copying() };
        let link = |seed| {
            let mut link = Link::new(seed, LATENCY, 100);
            link.faults(faults);
            RefCell::new(link)
        };
        let plugs = [Plug::default(), Plug::default()];
        world.fabric.attach(Arc::new(plugs[0].clone()));
        other.fabric.attach(Arc::new(plugs[1].clone()));
        let (ga, gb) = (world.guest(1), other.guest(2));
        let polls = Polls::new(&world.clock);
        Self { world, other, ga, gb, polls, plugs, links: [link(seed), link(seed ^ 0x5555)] }
    }

    /// Returns two connected endpoints.
    pub(crate) fn connected(&self, setup: Setup, tune: impl Fn(&mut Attr)) -> (Endpoint, Endpoint) {
        let (a, b) = (Endpoint::new(&self.ga, setup), Endpoint::new(&self.gb, setup));
        a.connect(self.gb.mac(), b.qpn, &tune);
        b.connect(self.ga.mac(), a.qpn, &tune);
        (a, b)
    }

    /// Runs the adapters and the cable, and moves the clock, until `done` returns true or nothing
    /// is left to wait for.
    pub(crate) fn run_until(&self, mut done: impl FnMut() -> bool) {
        let start = self.now();
        while !done() {
            let polls = [&self.ga, &self.gb].map(|guest| self.polls.poll(guest));
            let mut busy = polls.iter().any(|polled| polled.busy);
            let ways = self.plugs.iter().zip(&self.links).zip([&self.gb, &self.ga]);
            for ((plug, link), to) in ways {
                let mut link = link.borrow_mut();
                plug.waiting
                    .lock()
                    .drain(..)
                    .for_each(|frame| link.send(self.now(), frame.bytes()));
                while let Some(bytes) = link.receive(self.now()) {
                    busy = true;
                    let _not_roce = to.adapter.offer(Frame::new(bytes));
                }
            }
            if busy {
                continue;
            }
            let arrivals = self.links.iter().filter_map(|link| link.borrow().next_arrival());
            let deadlines = polls.iter().filter_map(|polled| polled.deadline).map(|at| at.0);
            let Some(next) = arrivals.chain(deadlines).min() else { return };
            assert!(next < start + MAX_TIME_NS, "the adapters still have work");
            self.world.clock.fetch_max(next, Ordering::AcqRel);
        }
    }

    /// Runs for this time.
    pub(crate) fn pass(&self, time: u64) {
        let end = self.now() + time;
        self.run_until(|| self.now() >= end);
        self.world.clock.fetch_max(end, Ordering::AcqRel);
    }

    pub(crate) fn now(&self) -> u64 {
        self.world.clock.load(Ordering::Acquire)
    }

    /// Sets whether the cable refuses frames from A.
    pub(crate) fn set_full(&self, full: bool) {
        self.plugs[0].full.store(full, Ordering::Release);
    }

    /// Posts a work request. Returns its completion.
    pub(crate) fn complete(&self, on: &mut Endpoint, wr: &Wr) -> Cqe {
        on.post_send(wr);
        let mut found = None;
        self.run_until(|| {
            found = found.or_else(|| on.send_cq.poll());
            found.is_some()
        });
        found.expect("a completion")
    }

    /// Runs until nothing is left to wait for.
    pub(crate) fn settle(&self) {
        self.run_until(|| false);
    }
}
