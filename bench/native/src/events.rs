//! Completion events: from a completion to a handler that slept, over as many handlers as
//! processors or over one; and queues armed at random, of which none may lose an event.

use std::path::Path;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use vrnic_abi::eq::Kind;
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::ARM_NEXT;
use vrnic_figures::{Quantity, Subject};
use vrnic_testdriver::eq::EventQueue;
use vrnic_testdriver::qp;
use vrnic_testdriver::vmm::arming::{self, Outcome, Setup};
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wr::Wr;

use crate::rate::Runs;
use crate::report::Report;
use crate::rig::Rig;

/// Completion queues.
const QUEUES: u32 = 4;
/// Work of a handler for each event.
const WORK: [Duration; 2] = [Duration::ZERO, Duration::from_micros(20)];
/// An event that takes longer is lost.
const LIMIT: Duration = Duration::from_secs(20);
/// Handlers of queues that are armed at random, and their queues.
const ARMING: (u16, u32) = (2, 16);

/// Measures the rate of events, and runs `count` of queues armed at random.
///
/// # Errors
/// When an event is lost, or an operation fails.
pub(crate) fn measure(
    report: &mut Report,
    daemon: &Path,
    count: u64,
    Runs { repeats, span }: Runs,
) -> anyhow::Result<()> {
    for work in WORK {
        for handlers in [QUEUES, 1] {
            let rig = Rig::start(daemon, 1, None)?;
            let [near, far] = &rig.guests;
            let vectors = (1..).take(handlers as usize);
            let made = vectors.map(|vector| Handler::new(near, far, vector, QUEUES / handlers));
            let mut made: Vec<_> = made.collect();
            let mut best = Rate::default();
            for _ in 0..repeats {
                let rate = run(near, &mut made, work, span);
                best = if rate.events > best.events { rate } else { best };
            }
            let us = work.as_micros();
            let subject = Subject::Events(QUEUES, handlers, us);
            report.figure(subject, Quantity::Thousands, best.events / 1e3);
            report.figure(subject, Quantity::EventsForInterrupt, best.per_interrupt);
        }
    }
    let rig = Rig::start(daemon, 1, None)?;
    let start = Instant::now();
    let all = armed_at_random(&rig.guests, count);
    let (events, completions) = (all.events as f64, all.completions as f64);
    let rate = events / start.elapsed().as_secs_f64();
    report.figure(Subject::Armed, Quantity::MillionEvents, events / 1e6);
    report.figure(Subject::Armed, Quantity::MillionCompletions, completions / 1e6);
    report.figure(Subject::Armed, Quantity::ThousandEvents, rate / 1e3);
    Ok(())
}

/// Joins threads; gives what they give.
fn join<T>(threads: Vec<ScopedJoinHandle<'_, T>>) -> impl Iterator<Item = T> {
    threads.into_iter().map(|thread| thread.join().expect("a handler"))
}

fn armed_at_random([near, far]: &[Guest; 2], count: u64) -> Outcome {
    let (handlers, queues) = ARMING;
    let events = count / u64::from(handlers);
    std::thread::scope(|scope| {
        let threads = (0..handlers).map(|nth| {
            let (vector, seed) = (1 + nth, u64::from(nth));
            let setup = Setup { vector, queues, events, sleeps: false, seed };
            scope.spawn(move || arming::run(near, far, &setup))
        });
        let mut all = Outcome::default();
        join(threads.collect()).for_each(|outcome| all += outcome);
        all
    })
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// Events per second.
    events: f64,
    /// Events for each interrupt.
    per_interrupt: f64,
}

/// Runs all of these handlers for `span`, each in a thread that sleeps until its vector is raised.
fn run(guest: &Guest, handlers: &mut [Handler], work: Duration, span: Duration) -> Rate {
    let before = guest.stats().interrupts.get();
    let start = Instant::now();
    let events: u64 = std::thread::scope(|scope| {
        let threads =
            handlers.iter_mut().map(|handler| scope.spawn(move || handler.run(work, span)));
        join(threads.collect()).sum()
    });
    let seconds = start.elapsed().as_secs_f64();
    // QUERY_STATS itself raises one interrupt, which does not count.
    let interrupts = guest.stats().interrupts.get() - before - 1;
    let events = events as f64;
    Rate { events: events / seconds, per_interrupt: events / interrupts.max(1) as f64 }
}

/// An event queue with its vector, and the completion queues that it serves.
struct Handler {
    vector: u16,
    events: EventQueue,
    flows: Vec<Flow>,
}

impl Handler {
    fn new(near: &Guest, far: &Guest, vector: u16, queues: u32) -> Self {
        let setup = qp::Setup {
            region: 4096,
            log_cqes: 4,
            log_wqes: 4,
            log_stride: 7,
            vector,
            ..qp::Setup::default()
        };
        let (first, there) = (Endpoint::new(near, setup), Endpoint::new(far, setup));
        let flows = (0..queues).map(|_| Flow::new(&first, &there, setup)).collect();
        Self { vector, events: first.events, flows }
    }

    /// For each event, takes the queue's completion, works, and lets the queue go on.
    fn run(&mut self, work: Duration, span: Duration) -> u64 {
        let start = Instant::now();
        for flow in &mut self.flows {
            flow.next();
        }
        let (mut events, mut waiting) = (0, self.flows.len());
        while waiting > 0 {
            let Some((kind, cqn)) = self.events.poll() else {
                let raised = self.flows[0].from.guest.sleep(self.vector, LIMIT);
                assert!(raised, "no interrupt within {LIMIT:?}");
                continue;
            };
            assert_eq!(kind, Kind::Completion);
            let flow = self.flows.iter_mut().find(|flow| flow.from.send_cq.cqn == cqn);
            let flow = flow.expect("an event of a CQ of ours");
            flow.from.send_cq.poll_success();
            events += 1;
            let until = Instant::now() + work;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            if start.elapsed() < span {
                flow.next();
            } else {
                waiting -= 1;
            }
        }
        events
    }
}

/// A completion queue and what completes there.
struct Flow {
    from: Endpoint,
    /// The far end lives as long as the near one.
    _to: Endpoint,
    wqe: Vec<u8>,
}

impl Flow {
    fn new(near: &Endpoint, far: &Endpoint, setup: qp::Setup) -> Self {
        let (from, to) = (near.apart(setup), far.apart(setup));
        Endpoint::connect_pair(&from, &to);
        let wqe = Wr::new(Opcode::Write, &[from.sge(0, 8)]).to(to.buffer, to.key).encode();
        Self { from, _to: to, wqe }
    }

    /// Arms the queue for the completion of the message that is sent then.
    fn next(&mut self) {
        self.from.send_cq.arm(ARM_NEXT);
        self.from.store_encoded(&self.wqe);
        self.from.ring();
    }
}
