//! Completion queues that are armed at random while completions come: each arm request must raise
//! its event.
//!
//! A handler serves some queues that share an event queue, as a driver's interrupt handler and its
//! users do together. When the event of a queue comes, the handler takes some completions or all,
//! posts more, in any order, and arms the queue for the next completion or a solicited one, which
//! is sure to come. If a queue waits for ever, it has lost an event.

use std::time::{Duration, Instant};

use vrnic_abi::admin::{ModifyCq, command};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_abi::uar::{ARM_NEXT, ARM_SOLICITED};

use crate::qp;
use crate::vmm::vfio::{Endpoint, Guest};
use crate::wr::Wr;

/// If an event takes longer, it is lost. The limit allows for loaded machines.
const LIMIT: Duration = Duration::from_secs(20);
/// log2 of the entries of work queues.
const LOG_WQES: u8 = 6;
/// Maximum number of outstanding messages of a queue.
const MAX_OUTSTANDING: u64 = 48;
/// Maximum number of messages that are posted together.
const BATCH: u64 = 4;
/// Number of polls of an empty event queue before the clock is read.
const POLLS_PER_CLOCK_READ: u32 = 1 << 12;

/// Settings of a handler.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// MSI-X vector.
    pub vector: u16,
    /// Completion queues.
    pub queues: u32,
    /// Number of events after which the handler ends.
    pub events: u64,
    /// True if the handler sleeps until the vector is raised; false if it polls the event queue.
    pub sleeps: bool,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Counts of a handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of arm requests.
    pub arms: u64,
    /// Number of events.
    pub events: u64,
    /// Number of completions.
    pub completions: u64,
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.arms += other.arms;
        self.events += other.events;
        self.completions += other.completions;
    }
}

/// Runs a handler of `guest`, to whose queues `peer` sends. Panics if an event or a completion is
/// lost or out of order.
#[must_use]
pub fn run(guest: &Guest, peer: &Guest, setup: &Setup) -> Outcome {
    let mut random = fastrand::Rng::with_seed(setup.seed);
    let ends = qp::Setup {
        region: 4096,
        log_cqes: LOG_WQES,
        log_wqes: LOG_WQES,
        log_stride: 7,
        vector: setup.vector,
        ..qp::Setup::default()
    };
    let (mut first, far) = (Endpoint::new(guest, ends), Endpoint::new(peer, ends));
    let mut lanes: Vec<_> =
        (0..setup.queues).map(|nth| Lane::new(&first, &far, ends, nth % 4 == 3)).collect();
    lanes.iter_mut().for_each(|lane| lane.act(&mut random));
    let mut seen = Outcome::default();
    let mut polls = 0u32;
    while seen.events < setup.events {
        if let Some((kind, cqn)) = first.events.poll() {
            assert_eq!(kind, Kind::Completion, "event of {cqn}");
            let lane = lanes.iter_mut().find(|lane| lane.to.recv_cq.cqn == cqn);
            lane.expect("an event of one of these CQs").act(&mut random);
            seen.events += 1;
            continue;
        }
        if setup.sleeps {
            let raised = guest.sleep(setup.vector, LIMIT);
            assert!(raised, "no interrupt within {LIMIT:?}: {}", waiting(&lanes));
            continue;
        }
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_CLOCK_READ) {
            std::thread::yield_now();
            let late = lanes.iter().any(|lane| lane.since.elapsed() > LIMIT);
            assert!(!late, "no event within {LIMIT:?}: {}", waiting(&lanes));
        }
    }
    for lane in &mut lanes {
        lane.finish();
        seen.arms += lane.arms;
        seen.completions += lane.taken;
    }
    assert!(seen.events <= seen.arms, "more events than requests: {seen:?}");
    seen
}

/// Describes the queues and the events that they wait for.
fn waiting(lanes: &[Lane]) -> String {
    let one = |lane: &Lane| {
        let (cqn, owed) = (lane.to.recv_cq.cqn, lane.posted - lane.taken);
        format!("CQ {cqn}: armed {} for {:.0?}, {owed} to come", lane.arms, lane.since.elapsed())
    };
    lanes.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// A completion queue, and the sender of its messages.
struct Lane {
    from: Endpoint,
    to: Endpoint,
    plain: Vec<u8>,
    solicited: Vec<u8>,
    posted: u64,
    taken: u64,
    arms: u64,
    since: Instant,
}

impl Lane {
    fn new(near: &Endpoint, far: &Endpoint, setup: qp::Setup, moderated: bool) -> Self {
        let (from, to) = (far.apart(setup), near.apart(setup));
        Endpoint::connect_pair(&from, &to);
        if moderated {
            let params = ModifyCq::new(to.recv_cq.cqn, 3, 20);
            to.guest.command::<command::ModifyCq>(&params).expect("MODIFY_CQ");
        }
        let send = |flags| Wr::new(Opcode::Send, &[from.sge(0, 8)]).flags(flags).encode();
        let (plain, solicited) = (send(Flags::empty()), send(Flags::SOLICITED));
        let since = Instant::now();
        Self { from, to, plain, solicited, posted: 0, taken: 0, arms: 0, since }
    }

    /// Takes completions, posts messages and arms, in such a way that an event is sure to come.
    fn act(&mut self, random: &mut fastrand::Rng) {
        let some = random.u8(..4) == 0;
        self.take(if some { random.u64(..BATCH) } else { u64::MAX });
        let room = MAX_OUTSTANDING - (self.posted - self.taken);
        let solicited = room > 0 && random.bool();
        let least = u64::from(solicited || self.posted == self.taken);
        let posts = random.u64(least..=room.min(BATCH).max(least));
        // Posts before arming, after it, or both. The last of these messages must raise the event.
        let early = random.u64(..=posts);
        self.post(early, solicited && early == posts, random);
        if random.u8(..16) == 0 {
            // An arm request that the next one adds to.
            self.arm(ARM_NEXT);
        }
        self.arm(if solicited { ARM_SOLICITED } else { ARM_NEXT });
        self.post(posts - early, solicited, random);
    }

    /// Sends messages. The last one is solicited if `last` is true, the others at random.
    fn post(&mut self, count: u64, last: bool, random: &mut fastrand::Rng) {
        for left in (0..count).rev() {
            self.to.post_recv(self.posted, &[self.to.sge(0, 8)]);
            let solicited = random.u8(..4) == 0 || last && left == 0;
            self.from.store_encoded(if solicited { &self.solicited } else { &self.plain });
            self.posted += 1;
        }
        if count > 0 {
            self.from.ring();
        }
    }

    fn arm(&mut self, kind: u32) {
        self.arms += 1;
        self.since = Instant::now();
        self.to.recv_cq.arm(kind);
    }

    /// Takes up to `limit` completions, which must come in the order of their receives.
    fn take(&mut self, limit: u64) {
        let end = self.taken.saturating_add(limit);
        while self.taken < end {
            let Some(entry) = self.to.recv_cq.poll() else { return };
            let found = (entry.wr_id.get(), entry.status);
            assert_eq!(found, (self.taken, Status::Success as u8), "a completion");
            self.taken += 1;
        }
    }

    /// Takes all outstanding completions.
    fn finish(&mut self) {
        let start = Instant::now();
        while self.taken < self.posted {
            self.take(u64::MAX);
            assert!(start.elapsed() < LIMIT, "{} completions lost", self.posted - self.taken);
            std::thread::yield_now();
        }
    }
}
