//! What must hold after each round, when nothing runs.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use vrnic_qemu::pair::Pair;
use vrnic_tests::harness::health;
use vrnic_tests::object_counts::ObjectCounts;

use crate::figures::{Counters, Memory, Process};
use crate::growth::Series;
use crate::plan::{Action, GUESTS, Side};

/// Time in which everything that a round has left must end, such as connections in TIME_WAIT.
const QUIET: Duration = Duration::from_secs(60);
/// KiB by which the daemon's memory, a guest's slab and the memory that it uses may grow.
const DAEMON_SLACK: u64 = 8 << 10;
const SLAB_SLACK: u64 = 4 << 10;
const USED_SLACK: u64 = 16 << 10;
/// Number of descriptors and threads by which a daemon may grow.
const DESCRIPTOR_SLACK: u64 = 4;

/// The state at the start, and figures since then.
pub(crate) struct Invariants {
    guests: Vec<GuestState>,
    daemons: Vec<DaemonState>,
}

struct GuestState {
    objects: ObjectCounts,
    programs: String,
    slab: Series,
    used: Series,
}

struct DaemonState {
    counters: Counters,
    memory: Series,
    descriptors: Series,
    threads: Series,
}

impl Invariants {
    /// Begins with the present state.
    pub(crate) fn begin(pair: &mut Pair) -> Result<Self> {
        let new = |guest| {
            let objects = ObjectCounts::take(pair, guest)?;
            let programs = Memory::of(guest)?.programs;
            anyhow::Ok(GuestState {
                objects,
                programs,
                slab: Series::default(),
                used: Series::default(),
            })
        };
        let guests = pair.guests().map(new).collect::<Result<Vec<_>>>()?;
        ensure!(guests.len() == GUESTS, "{} guests", guests.len());
        let new = |daemon: &mut vrnic_qemu::daemon::Daemon| {
            let counters = Counters::parse(&daemon.ask(&["metrics"])?);
            ensure!(counters.sum() > 0, "the daemon has no counters");
            Ok(DaemonState {
                counters,
                memory: Series::default(),
                descriptors: Series::default(),
                threads: Series::default(),
            })
        };
        let daemons = pair.daemons().map(new).collect::<Result<Vec<_>>>()?;
        Ok(Self { guests, daemons })
    }

    /// Checks the state after a round. Returns the figures in a line.
    pub(crate) fn check(&mut self, pair: &mut Pair, sides: &[Side; 2]) -> Result<String> {
        let clients = |which: fn(&Action) -> bool| {
            let sides = sides.iter().filter(move |side| side.actions.iter().any(which));
            sides.map(|side| side.client).collect::<Vec<_>>()
        };
        let booted = clients(|action| *action == Action::PowerCut);
        let renewed = clients(Action::renews);
        health::check(pair)?;
        let mut line = String::new();
        for (number, (state, guest)) in self.guests.iter_mut().zip(pair.guests()).enumerate() {
            let name = &guest.setup().name;
            if booted.contains(&number) {
                (state.slab, state.used) = (Series::default(), Series::default());
            }
            state
                .objects
                .unchanged_within(pair, guest, QUIET)
                .with_context(|| format!("objects are left in guest {name}, or in its adapter"))?;
            let memory = Memory::of(guest)?;
            let (was, is) = (&state.programs, &memory.programs);
            ensure!(was == is, "guest {name} has the programs {is}; at the start {was}");
            bounded(&mut state.slab, memory.slab, SLAB_SLACK, || {
                format!("the slab of guest {name}")
            })?;
            let what = || format!("the memory in use of guest {name}");
            bounded(&mut state.used, memory.used, USED_SLACK, what)?;
            write!(line, " {name} {}+{}", memory.used >> 10, memory.slab >> 10)?;
        }
        line += " MiB;";
        let names: Vec<String> = renewed
            .iter()
            .filter_map(|guest| Some(pair.guests().nth(*guest)?.setup().adapter.name.clone()))
            .collect();
        for (number, (state, daemon)) in self.daemons.iter_mut().zip(pair.daemons()).enumerate() {
            let process = Process::of(daemon)?;
            let what = |figure: &str| format!("the {figure} of daemon {number}");
            bounded(&mut state.memory, process.memory, DAEMON_SLACK, || what("memory"))?;
            let slack = DESCRIPTOR_SLACK;
            bounded(&mut state.descriptors, process.descriptors, slack, || what("descriptors"))?;
            bounded(&mut state.threads, process.threads, slack, || what("threads"))?;
            let counters = Counters::parse(&daemon.ask(&["metrics"])?);
            counters.only_grow(&state.counters, &names)?;
            ensure!(counters != state.counters, "no counter of daemon {number} has moved");
            state.counters = counters;
            let Process { memory, descriptors, threads } = process;
            write!(line, " vrnicd {number} {memory} KiB {descriptors} fds {threads} threads")?;
        }
        Ok(line)
    }
}

/// Adds a figure to a series, which must not grow without end.
fn bounded(series: &mut Series, figure: u64, slack: u64, what: impl Fn() -> String) -> Result<()> {
    series.add(figure);
    match series.growth(slack) {
        Some(growth) => bail!("{} grows: by {growth} since the start, now {figure}", what()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of a daemon that loses 1 MiB in each round is a finding; memory that varies is none.
    #[test]
    fn a_figure_that_grows_is_a_finding() {
        let run = |figure: fn(u64) -> u64| -> Result<()> {
            let mut series = Series::default();
            let what = || "the memory of daemon 0".to_owned();
            (0..60).try_for_each(|round| bounded(&mut series, figure(round), DAEMON_SLACK, what))
        };
        let found = run(|round| 50_000 + (round << 10) + 300 * (round % 5));
        assert!(
            found.is_err_and(|error| error.to_string().starts_with("the memory of daemon 0 grows"))
        );
        assert!(run(|round| 50_000 + 3000 * (round % 5)).is_ok());
    }
}
