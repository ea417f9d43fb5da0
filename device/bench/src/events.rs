//! Completion events: from a completion to a handler that slept, over as many handlers as
//! processors or over one; and queues armed at random, of which none may lose an event.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use vrnic_abi::eq::Kind;
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_abi::uar::ARM_NEXT;
use vrnic_testdriver::arming::{self, Outcome, Setup};
use vrnic_testdriver::endpoint::{Endpoint, EndpointSetup};
use vrnic_testdriver::eq::EventQueue;
use vrnic_testdriver::guest::Guest;
use vrnic_testdriver::qp::Send;

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
    (repeats, span): (u32, Duration),
) -> anyhow::Result<()> {
    for work in WORK {
        for handlers in [QUEUES, 1] {
            let rig = Rig::start(daemon, 1, None)?;
            let [near, far] = &rig.guests;
            let vectors = (1..).take(handlers as usize);
            let made = vectors.map(|vector| Handler::new((near, far), vector, QUEUES / handlers));
            let mut made = made.collect::<anyhow::Result<Vec<_>>>()?;
            let mut best = Rate::default();
            for _ in 0..repeats {
                let rate = run(near, &mut made, (work, span))?;
                best = if rate.events > best.events { rate } else { best };
            }
            let us = work.as_micros();
            let name =
                format!("events of {QUEUES} CQs on {handlers} vectors, {us} µs of work each");
            report.figure(&format!("{name}, thousand/s"), best.events / 1e3);
            report.figure(&format!("{name}, events for an interrupt"), best.per_interrupt);
        }
    }
    let rig = Rig::start(daemon, 1, None)?;
    let start = Instant::now();
    let all = armed_at_random(&rig.guests, count)?;
    report.figure("CQs armed at random, million events, none lost", all.events as f64 / 1e6);
    report.figure("CQs armed at random, million completions", all.completions as f64 / 1e6);
    let rate = all.events as f64 / start.elapsed().as_secs_f64();
    report.figure("CQs armed at random, thousand events/s", rate / 1e3);
    Ok(())
}

/// Joins threads and adds up what they give.
fn join<T>(
    threads: Vec<std::thread::ScopedJoinHandle<'_, anyhow::Result<T>>>,
) -> anyhow::Result<Vec<T>> {
    let join = |thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<T>>| {
        thread.join().map_err(|_| anyhow!("a handler panicked"))?
    };
    threads.into_iter().map(join).collect()
}

fn armed_at_random([near, far]: &[Guest; 2], count: u64) -> anyhow::Result<Outcome> {
    let (handlers, queues) = ARMING;
    let events = count / u64::from(handlers);
    std::thread::scope(|scope| {
        let threads = (0..handlers).map(|nth| {
            let (vector, seed) = (1 + nth, u64::from(nth));
            let setup = Setup { vector, queues, events, sleeps: false, seed };
            scope.spawn(move || arming::run(near, far, &setup))
        });
        let mut all = Outcome::default();
        join(threads.collect())?.into_iter().for_each(|outcome| all += outcome);
        Ok(all)
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

/// All queues of these handlers, each a thread that sleeps until its vector is raised.
fn run(
    guest: &Guest,
    handlers: &mut [Handler<'_>],
    (work, span): (Duration, Duration),
) -> anyhow::Result<Rate> {
    let before = guest.stats()?.interrupts.get();
    let start = Instant::now();
    let events: u64 = std::thread::scope(|scope| {
        let threads = handlers
            .iter_mut()
            .map(|handler| scope.spawn(move || handler.run(work, span).context("a handler")));
        anyhow::Ok(join(threads.collect())?.into_iter().sum())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    // Less the one of QUERY_STATS itself.
    let interrupts = guest.stats()?.interrupts.get() - before - 1;
    let events = events as f64;
    Ok(Rate { events: events / seconds, per_interrupt: events / interrupts.max(1) as f64 })
}

/// An event queue with its vector, and the completion queues that it serves.
struct Handler<'a> {
    vector: u16,
    events: EventQueue,
    flows: Vec<Flow<'a>>,
}

impl<'a> Handler<'a> {
    fn new((near, far): (&'a Guest, &'a Guest), vector: u16, queues: u32) -> anyhow::Result<Self> {
        let setup = EndpointSetup {
            buffer: 4096,
            log_cqes: 4,
            log_wqes: 4,
            log_stride: 7,
            vector,
            ..EndpointSetup::default()
        };
        let (first, there) = (Endpoint::new(near, &setup)?, Endpoint::new(far, &setup)?);
        let flows = (0..queues).map(|_| Flow::new(&first, &there, &setup));
        let flows = flows.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { vector, events: first.events, flows })
    }

    /// For each event takes the queue's completion, works, and lets the queue go on.
    fn run(&mut self, work: Duration, span: Duration) -> anyhow::Result<u64> {
        let start = Instant::now();
        for flow in &mut self.flows {
            flow.next()?;
        }
        let (mut events, mut waiting) = (0, self.flows.len());
        while waiting > 0 {
            let guest = self.flows.first().context("a queue")?.from.guest;
            let Some((kind, cqn)) = self.events.poll(guest)? else {
                ensure!(guest.sleep(self.vector, LIMIT)?, "no interrupt within {LIMIT:?}");
                continue;
            };
            ensure!(kind == Kind::Completion, "event {kind:?}");
            let flow = self.flows.iter_mut().find(|flow| flow.from.send_cq.cqn == cqn);
            let flow = flow.context("event of another's CQ")?;
            flow.from.send_cq.poll_success(guest)?;
            events += 1;
            let until = Instant::now() + work;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            if start.elapsed() < span {
                flow.next()?;
            } else {
                waiting -= 1;
            }
        }
        Ok(events)
    }
}

/// A completion queue and what completes there.
struct Flow<'a> {
    from: Endpoint<'a>,
    /// The far end lives as long as the near one.
    _to: Endpoint<'a>,
    wqe: Vec<u8>,
}

impl<'a> Flow<'a> {
    fn new(near: &Endpoint<'a>, far: &Endpoint<'a>, setup: &EndpointSetup) -> anyhow::Result<Self> {
        let (from, to) = (Endpoint::beside(near, setup)?, Endpoint::beside(far, setup)?);
        Endpoint::connect(&from, &to)?;
        let wr = Send::new(Opcode::Write, 1).remote(to.buffer, to.key).flags(Flags::SIGNALED);
        let wqe = wr.sges(&[from.sge(0, 8)]).encode();
        Ok(Self { from, _to: to, wqe })
    }

    /// Arms the queue for the completion of the message that is sent then.
    fn next(&mut self) -> anyhow::Result<()> {
        let Endpoint { send_cq, qp, guest, .. } = &mut self.from;
        send_cq.arm(guest, ARM_NEXT)?;
        qp.store_encoded(guest, &self.wqe)?;
        qp.ring(guest)
    }
}
