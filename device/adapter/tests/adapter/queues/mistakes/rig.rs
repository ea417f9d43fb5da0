//! Two guests whose QPs reach each other by one of three paths.

use std::sync::atomic::Ordering;

use vrnic_abi::cq::Status;
use vrnic_abi::qp::Type;
use vrnic_simlink::{Faults, Link};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::cable::Cable;
use crate::world::World;

/// Time in nanoseconds that passes after the last completion.
const REST_NS: u64 = 10_000_000;
/// Time in nanoseconds in which all completions must come.
const LIMIT_NS: u64 = 10_000_000_000;

/// The path of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A copy in memory.
    Copy,
    /// Packets in a daemon.
    Packets,
    /// Packets between two daemons.
    Daemons,
}

/// The daemons of the guests.
enum Net {
    One(World),
    Two(Box<Cable>),
}

/// Two guests with a QP each.
pub(crate) struct Rig {
    net: Net,
    pub(crate) ga: Guest,
    pub(crate) gb: Guest,
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
}

impl Rig {
    /// Creates two guests with a QP of this type each.
    pub(crate) fn new(way: Way, kind: Type) -> Self {
        let (net, ga, gb) = match way {
            Way::Daemons => {
                let cable = Cable::new(1, Faults::default());
                // The link is so fast that requests which leave together arrive together. The peer
                // answers at once, and would otherwise answer each request before the next one
                // arrives.
                *cable.links[0].borrow_mut() = Link::new(1, 2_000, 10_000);
                let (ga, gb) = (cable.ga.clone(), cable.gb.clone());
                (Net::Two(Box::new(cable)), ga, gb)
            }
            _ => {
                let world = World::copying();
                if way == Way::Packets {
                    world.fabric.use_packets_only();
                }
                let (ga, gb) = (world.guest(1), world.guest(2));
                (Net::One(world), ga, gb)
            }
        };
        let setup = Setup { kind, ..Setup::default() };
        let (a, b) = (Endpoint::new(&ga, setup), Endpoint::new(&gb, setup));
        Self { net, ga, gb, a, b }
    }

    /// Posts work requests of A, all at once or each after the end of the one before it. Returns
    /// the statuses of their completions.
    pub(crate) fn run(&mut self, requests: &[Wr], one_by_one: bool) -> Vec<Status> {
        let mut sent = Vec::new();
        for (request, count) in requests.iter().zip(1..) {
            self.a.store_send(request);
            if one_by_one || count == requests.len() {
                self.a.ring();
                self.complete(&mut sent, count);
            }
        }
        let end = self.now() + REST_NS;
        self.run_until(|now| now >= end);
        sent
    }

    /// Moves the clock until A has this many completions.
    fn complete(&mut self, sent: &mut Vec<Status>, count: usize) {
        let end = self.now() + LIMIT_NS;
        while sent.len() < count && self.now() < end {
            let step = self.now() + REST_NS;
            self.run_until(|now| now >= step);
            sent.extend(std::iter::from_fn(|| self.a.send_cq.poll()).map(|cqe| status(&cqe)));
        }
    }

    fn now(&self) -> u64 {
        match &self.net {
            Net::One(world) => world.clock.load(Ordering::Acquire),
            Net::Two(cable) => cable.now(),
        }
    }

    /// Runs everything and moves the clock, until `done` returns true or nothing is left to wait
    /// for.
    fn run_until(&self, done: impl Fn(u64) -> bool) {
        let world = match &self.net {
            Net::Two(cable) => {
                cable.run_until(|| done(self.now()));
                &cable.world
            }
            Net::One(world) => world,
        };
        while !done(self.now()) {
            world.settle(&[&self.ga, &self.gb]);
            let deadlines = [&self.ga, &self.gb].map(|guest| guest.adapter.poll(0).deadline);
            let soon = self.now() + REST_NS;
            let next = deadlines.into_iter().flatten().fold(soon, |next, at| next.min(at.0));
            world.clock.fetch_max(next, Ordering::AcqRel);
        }
    }
}
