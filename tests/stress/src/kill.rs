//! Processes that are killed with all of their objects. The caller of this program counts the
//! objects that are left.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::child::{Child, Shared};
use crate::workload::Workload;
use vrnic_verbs::prng::Rng;

/// Minimum and maximum number of objects that a process creates, unless it is killed before.
const OBJECTS: (u64, u64) = (20, 160);

/// Number of processes, and how long they live.
#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// Processes in all.
    #[arg(long, default_value_t = 100)]
    processes: usize,
    /// Processes at the same time.
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// Maximum lifetime in milliseconds.
    #[arg(long, default_value_t = 200)]
    life: u64,
    /// Seed of the random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Counts of the processes by the way in which they ended.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    killed: usize,
    /// Number of these that were killed while they created objects.
    making: usize,
    objects: u64,
    took: Duration,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { killed, making, objects, took } = self;
        let seconds = took.as_secs_f64();
        write!(f, "{killed} killed, {making} while making, {objects} objects, {seconds:.1} s")
    }
}

/// A process that is to be killed.
struct Member {
    child: Child,
    end: Instant,
    index: usize,
    wanted: u64,
}

/// Starts processes and kills each of them at a random time.
pub(crate) fn run(options: &Kill) -> Result<Fate> {
    let shared = Shared::new(options.processes)?;
    let mut rng = Rng::new(options.seed);
    let (start, mut fate) = (Instant::now(), Fate::default());
    let (mut started, mut alive) = (0, Vec::new());
    while fate.killed < options.processes {
        if started < options.processes && alive.len() < options.at_once {
            alive.push(member(&shared, started, options.life, &mut rng)?);
            started += 1;
            continue;
        }
        let (next, _) = alive
            .iter()
            .enumerate()
            .min_by_key(|(_, member)| member.end)
            .context("no process is left")?;
        let member = alive.swap_remove(next);
        thread::sleep(member.end.saturating_duration_since(Instant::now()));
        let made = shared.words()[member.index].load(Relaxed);
        member.child.kill()?;
        let status = member.child.wait()?;
        ensure!(status.terminating_signal() == Some(9), "a process ended by itself: {status:?}");
        fate.killed += 1;
        fate.making += usize::from(made < member.wanted);
        fate.objects += made;
    }
    fate.took = start.elapsed();
    Ok(fate)
}

/// Starts a process.
fn member(shared: &Shared, index: usize, life: u64, rng: &mut Rng) -> Result<Member> {
    let wanted = OBJECTS.0 + rng.below(OBJECTS.1 - OBJECTS.0);
    let (seed, life) = (rng.word(), Duration::from_millis(rng.below(life)));
    let made = &shared.words()[index];
    let record = |n| {
        made.store(n, Relaxed);
        Ok(())
    };
    let child = Child::fork(|| Workload::new(seed)?.live(wanted, record))?;
    Ok(Member { child, end: Instant::now() + life, index, wanted })
}
