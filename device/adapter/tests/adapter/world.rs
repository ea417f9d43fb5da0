//! Adapters that reach each other, and two connected QPs on two of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi::admin::TagForm;
use vrnic_abi::cq::Cqe;
use vrnic_abi::qp::Attr;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::limits::Limits;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest, InProcess};
use crate::host::TestHost;

/// A fabric with a clock. With `VRNIC_FABRIC=wire` in the environment its adapters reach each other
/// by packets.
pub(crate) struct World {
    pub(crate) fabric: Arc<Fabric<TestHost>>,
    pub(crate) clock: Arc<AtomicU64>,
}

impl Default for World {
    fn default() -> Self {
        let world = Self::alone();
        if std::env::var_os("VRNIC_FABRIC").is_some_and(|fabric| fabric == "wire") {
            world.fabric.use_packets_only();
        }
        world
    }
}

impl World {
    /// A daemon whose adapters reach each other by one copy.
    pub(crate) fn alone() -> Self {
        Self { fabric: Arc::default(), clock: Arc::default() }
    }

    /// A guest with this number whose driver has enabled its adapter.
    pub(crate) fn guest(&self, number: u8) -> Guest {
        self.guest_with(number, 1, Limits::default())
    }

    /// A guest whose adapter has so many workers, or room for fewer objects.
    pub(crate) fn guest_with(&self, number: u8, workers: usize, limits: Limits) -> Guest {
        let host = TestHost::new(&self.clock);
        InProcess::guest(host, number, &self.fabric, workers, limits)
    }

    /// Polls all guests, without moving the clock, until none has anything to do.
    pub(crate) fn settle(&self, guests: &[&Guest]) {
        for _ in 0..100_000 {
            if !guests.iter().fold(false, |busy, guest| guest.adapter.poll(0).busy | busy) {
                return;
            }
        }
        panic!("the adapters never come to rest");
    }

    /// Moves the clock.
    pub(crate) fn advance(&self, ns: u64) {
        self.clock.fetch_add(ns, Ordering::AcqRel);
    }
}

/// A guest of a world that it has for itself.
pub(crate) fn guest() -> Guest {
    World::default().guest(1)
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
        let p = Self::apart(setup);
        p.a.connect(p.gb.mac(), p.b.qpn, &tune);
        p.b.connect(p.ga.mac(), p.a.qpn, &tune);
        p
    }

    /// Two endpoints that are not connected; side A sends commands.
    pub(crate) fn apart(setup: Setup) -> Self {
        let world = World::default();
        let (ga, gb) = (world.guest(1), world.guest(2));
        let responds = Setup { tags: (TagForm::None, 0), ..setup };
        let (a, b) = (Endpoint::new(&ga, setup), Endpoint::new(&gb, responds));
        Self { world, ga, gb, a, b }
    }

    /// From now on the clock moves by what each call of the adapters takes.
    pub(crate) fn take_time(&self) {
        self.ga.host.take_time();
        self.gb.host.take_time();
    }

    pub(crate) fn settle(&self) {
        self.world.settle(&[&self.ga, &self.gb]);
    }

    /// Posts on side A and lets both sides work.
    pub(crate) fn run(&mut self, wr: &Wr) {
        self.a.post_send(wr);
        self.settle();
    }

    /// Posts on side A; its completion.
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
