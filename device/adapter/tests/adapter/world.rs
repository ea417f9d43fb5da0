//! Adapters that reach each other, and two connected QPs on two of them.
//!
//! By default, data is copied from one guest's memory to the other's. With `VRNIC_FABRIC=wire` in
//! the environment, the adapters of a test exchange packets instead. A test that needs memory
//! copies says so ([`World::copying`], [`Pair::local`]), and why. A test whose result differs over
//! packets checks [`by_packets`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi::admin::TagForm;
use vrnic_abi::cq::Cqe;
use vrnic_abi::qp::{Attr, State};
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::limits::Limits;
use vrnic_adapter::memory::tpt::Denied;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest, InProcess};
use crate::host::TestHost;

/// Returns whether adapters exchange packets in these tests.
pub(crate) fn by_packets() -> bool {
    std::env::var_os("VRNIC_FABRIC").is_some_and(|fabric| fabric == "wire")
}

/// Returns the `vendor_err` of a work request that the peer has refused for this reason. Packets do
/// not contain it.
pub(crate) fn told_by_peer(why: Denied) -> u32 {
    if by_packets() { 0 } else { why as u32 }
}

/// Returns the state of the idle peer of a QP that has failed by itself. Over packets, the peer
/// notices the failure at its next request.
pub(crate) fn state_of_failed_peer() -> State {
    if by_packets() { State::Rts } else { State::Err }
}

/// A fabric with a clock.
pub(crate) struct World {
    pub(crate) fabric: Arc<Fabric<TestHost>>,
    pub(crate) clock: Arc<AtomicU64>,
}

impl Default for World {
    fn default() -> Self {
        let world = Self::copying();
        if by_packets() {
            world.fabric.use_packets_only();
        }
        world
    }
}

impl World {
    /// Returns a daemon whose adapters copy data in memory.
    pub(crate) fn copying() -> Self {
        Self { fabric: Arc::default(), clock: Arc::default() }
    }

    /// Returns a guest with this number whose driver has enabled its adapter.
    pub(crate) fn guest(&self, number: u8) -> Guest {
        self.guest_with(number, 1, Limits::default())
    }

    /// Returns a guest whose adapter has this number of workers, and these limits of objects.
    pub(crate) fn guest_with(&self, number: u8, workers: usize, limits: Limits) -> Guest {
        let host = TestHost::new(&self.clock);
        host.set_workers(workers);
        InProcess::guest(host, number, &self.fabric, workers, limits)
    }

    /// Polls all guests, without moving the clock, until none of them has work.
    pub(crate) fn settle(&self, guests: &[&Guest]) {
        for _ in 0..100_000 {
            if !guests.iter().fold(false, |busy, guest| guest.adapter.poll(0).busy | busy) {
                return;
            }
        }
        panic!("the adapters still have work");
    }

    /// Lets the time-out after the last try end, with which an unanswered request fails over
    /// packets. With memory copies, the request fails at the last try.
    pub(crate) fn last_timeout(&self, guests: &[&Guest], timeout: u64) {
        if by_packets() {
            self.advance(timeout);
            self.settle(guests);
        }
    }

    /// Moves the clock.
    pub(crate) fn advance(&self, ns: u64) {
        self.clock.fetch_add(ns, Ordering::AcqRel);
    }
}

/// Returns a guest in a new world, without an address.
pub(crate) fn guest() -> Guest {
    World::copying().guest(1)
}

/// Two connected endpoints on two adapters.
pub(crate) struct Pair {
    pub(crate) world: World,
    pub(crate) ga: Guest,
    pub(crate) gb: Guest,
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(Setup::default(), |_| {})
    }

    pub(crate) fn with(setup: Setup, tune: impl Fn(&mut Attr)) -> Self {
        Self::connected(World::default(), setup, tune)
    }

    /// Returns two connected endpoints that always use memory copies.
    pub(crate) fn local(setup: Setup, tune: impl Fn(&mut Attr)) -> Self {
        Self::connected(World::copying(), setup, tune)
    }

    pub(crate) fn connected(world: World, setup: Setup, tune: impl Fn(&mut Attr)) -> Self {
        let p = Self::apart(world, setup);
        p.a.connect(p.gb.mac(), p.b.qpn, &tune);
        p.b.connect(p.ga.mac(), p.a.qpn, &tune);
        p
    }

    /// Returns two endpoints that are not connected. Side A sends commands.
    pub(crate) fn apart(world: World, setup: Setup) -> Self {
        let (ga, gb) = (world.guest(1), world.guest(2));
        let responds = Setup { tags: (TagForm::None, 0), ..setup };
        let (a, b) = (Endpoint::new(&ga, setup), Endpoint::new(&gb, responds));
        Self { world, ga, gb, a, b }
    }

    /// Makes each call of the adapters move the clock from now on, by the time that it takes.
    pub(crate) fn take_time(&self) {
        self.ga.host.take_time();
        self.gb.host.take_time();
    }

    pub(crate) fn settle(&self) {
        self.world.settle(&[&self.ga, &self.gb]);
    }

    /// Posts on A and lets both sides work.
    pub(crate) fn run(&mut self, wr: &Wr) {
        self.a.post_send(wr);
        self.settle();
    }

    /// Posts on A. Returns the completion.
    pub(crate) fn complete(&mut self, wr: &Wr) -> Cqe {
        self.run(wr);
        self.sent().expect("no completion")
    }

    pub(crate) fn sent(&mut self) -> Option<Cqe> {
        self.a.send_cq.poll()
    }

    pub(crate) fn received(&mut self) -> Option<Cqe> {
        self.b.recv_cq.poll()
    }
}
