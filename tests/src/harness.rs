//! The program of all suites: runs the cases that are asked for, one after the other. Suites that
//! need equal guests share them.
//!
//! | module | what |
//! | --- | --- |
//! | `ahead` | snapshots of guests that later suites need, which are made while cases run |
//! | [`health`] | checks after every case: no kernel fault, no panic, a daemon that runs |
//! | [`report`] | what is known after a run: times, what has failed, JUnit |
//! | `selection` | the suites and cases that arguments select |
//! | `worker` | the thread on which cases run, with a limit in time for each |

mod ahead;
pub mod health;
pub mod report;
mod selection;
mod worker;

use std::any::Any;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libtest_mimic::{Failed, Trial};
use serde_json::json;
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::machine::paths::Paths;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair};

use ahead::Ahead;
use report::BEGINNING;
use selection::{Limits, Selection};
use worker::{Ended, Watchdog, Worker};

#[cfg(test)]
mod tests;

/// Time for a case to end after its guests were ended.
const GRACE: Duration = Duration::from_secs(30);
/// Time for what is done outside of cases, such as making the suites.
const OUTSIDE: Duration = Duration::from_secs(10 * 60);

/// The function of a case that uses the pair of guests.
type WithPair = dyn Fn(&mut Pair) -> Result<()> + Send + Sync;

/// The function of a case that boots guests by itself, or needs none.
type WithoutPair = dyn Fn() -> Result<()> + Send + Sync;

/// The function of a case.
enum Run {
    Pair(Box<WithPair>),
    Alone(Box<WithoutPair>),
}

/// A case of a suite.
pub struct Case {
    name: String,
    run: Run,
    /// True if the pair cannot be used afterwards.
    ruins: bool,
    /// True if the case runs only with `--include-ignored`.
    by_name_only: bool,
}

impl Case {
    /// Creates a case that leaves the pair as it was.
    pub fn new(
        name: impl Into<String>,
        run: impl Fn(&mut Pair) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::with(name.into(), Run::Pair(Box::new(run)))
    }

    /// Creates a case after which the pair is not used any more. The case itself checks the health
    /// of the guests that still run.
    pub fn ruinous(
        name: impl Into<String>,
        run: impl Fn(&mut Pair) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { ruins: true, ..Self::new(name, run) }
    }

    /// Creates a case without the pair.
    pub fn alone(
        name: impl Into<String>,
        run: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::with(name.into(), Run::Alone(Box::new(run)))
    }

    fn with(name: String, run: Run) -> Self {
        Self { name, run, ruins: false, by_name_only: false }
    }

    /// Sets whether the case is left out unless it is named.
    #[must_use]
    pub fn by_name_only(self, by_name_only: bool) -> Self {
        Self { by_name_only, ..self }
    }
}

/// Cases, and the guests that they need.
pub struct Suite {
    options: Options,
    cases: Vec<Case>,
    /// The least time limit, if it is not the usual one.
    limit: Option<Duration>,
    /// What must not be dropped before the cases have run.
    kept: Vec<Box<dyn Any>>,
    /// The reason for which nothing can be run here.
    skipped: Option<String>,
    /// True if the guests are different afterwards, so that no other suite uses them.
    changes_guests: bool,
    /// True if no case uses the pair of guests.
    alone: bool,
}

impl Suite {
    /// Creates a suite. With `VRNIC_FABRIC=wire` in the environment each guest has a separate
    /// daemon, so that the cases use packets. With `VRNIC_PERSONALITY=iwarp` the adapters are iWARP
    /// adapters.
    #[must_use]
    pub fn new(options: Options, cases: Vec<Case>) -> Self {
        let apart = options.apart || over_packets();
        let personality = if over_iwarp() { Transport::Iwarp } else { options.personality };
        let options = Options { apart, personality, ..options };
        let (kept, skipped) = (Vec::new(), None);
        Self { options, cases, limit: None, kept, skipped, changes_guests: false, alone: false }
    }

    /// Creates a suite whose guests get these kernel modules as files.
    ///
    /// # Errors
    /// If a module cannot be read.
    pub fn with_modules(names: &[&str], options: Options, cases: Vec<Case>) -> Result<Self> {
        Ok(Self::new(Options { files: modules::files(names)?, ..options }, cases))
    }

    /// Creates a suite without a pair of guests.
    #[must_use]
    pub fn alone(cases: Vec<Case>) -> Self {
        Self { alone: true, ..Self::new(Options::default(), cases) }
    }

    /// Creates a suite that cannot run here, with the reason.
    #[must_use]
    pub fn skipped(why: &str) -> Self {
        Self { skipped: Some(why.to_owned()), ..Self::alone(Vec::new()) }
    }

    /// Sets the time limit, which is longer if the suite's row says that it takes longer.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Keeps a value until all cases have run.
    #[must_use]
    pub fn keeping(mut self, value: impl Any) -> Self {
        self.kept.push(Box::new(value));
        self
    }

    /// Says that the guests are different afterwards.
    #[must_use]
    pub fn changing_guests(self) -> Self {
        Self { changes_guests: true, ..self }
    }

    /// Returns what guests must have in common with those of another suite that uses the same ones.
    /// Files can be added, so they do not count.
    fn guests(&self) -> String {
        if self.alone {
            return "none".to_owned();
        }
        format!("{:?}", Options { files: Vec::new(), ..self.options.clone() })
    }
}

/// The guests that cases use one after the other.
#[derive(Default)]
struct Guests {
    options: Options,
    pair: Option<Pair>,
    /// The reason for which the boot has failed, so that further cases do not wait for the same
    /// failure.
    broken: Option<String>,
    /// How long guests took to boot.
    booting: Duration,
}

impl Guests {
    fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    fn run(&mut self, case: &Case) -> Result<()> {
        let run = match &case.run {
            Run::Pair(run) => run,
            Run::Alone(run) => return run(),
        };
        let mut pair = self.take()?;
        let result = run(&mut pair)
            .and_then(|()| if case.ruins { Ok(()) } else { health::check(&mut pair) });
        match result {
            Ok(()) if case.ruins => Ok(()),
            Ok(()) => {
                self.pair = Some(pair);
                Ok(())
            }
            Err(error) => Err(error.context(pair.report())),
        }
    }

    /// Returns the pair. Boots it if there is none.
    fn take(&mut self) -> Result<Pair> {
        if let Some(pair) = self.pair.take() {
            return Ok(pair);
        }
        if let Some(why) = &self.broken {
            bail!("no guests: {why}");
        }
        let start = Instant::now();
        let booted = requirements().and_then(|()| Pair::boot(self.options.clone()));
        self.booting += start.elapsed();
        booted.map_err(|error| {
            self.broken = Some(format!("{error:#}"));
            error.context("booting the guests")
        })
    }
}

/// Keeps the pair between cases, and between suites whose guests have equal options.
struct Harness {
    guests: Guests,
    /// What the guests have in common with those of other suites that can use them.
    kind: String,
    worker: Worker,
    limits: Limits,
    /// The end of the time of the suite.
    end: Instant,
}

impl Harness {
    fn new(grace: Duration) -> Self {
        let (limits, end) = (Limits::default(), Instant::now());
        let (guests, kind) = (Guests::default(), String::new());
        Self { guests, kind, worker: Worker::start(grace), limits, end }
    }

    /// Begins a suite whose guests get these files.
    fn begin(&mut self, suite: &Suite, files: Vec<(String, Vec<u8>)>, limits: Limits) {
        let kind = suite.guests();
        if self.kind != kind {
            (self.guests, self.kind) = (Guests::default(), kind);
        }
        self.guests.options = Options { files, ..suite.options.clone() };
        self.guests.booting = Duration::ZERO;
        (self.limits, self.end) = (limits, Instant::now() + limits.suite);
    }

    /// Runs a case. If it does not end in time, its guests are ended, and the next case gets new
    /// ones.
    fn run(&mut self, case: Arc<Case>) -> Result<(), String> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let all = self.limits.suite.as_secs();
            return Err(format!("did not run: the suite has had {all} s, all of its time"));
        }
        let limit = self.limits.case.min(left);
        let next = Guests::new(self.guests.options.clone());
        let mut guests = std::mem::replace(&mut self.guests, next);
        let job = move || {
            let ran = catch_unwind(AssertUnwindSafe(|| guests.run(&case)));
            let told = |it: Result<()>| it.map_err(|error| explain(&error));
            (ran.map_or_else(|panic| Err(message(&*panic)), told), guests)
        };
        let (outcome, guests) = match self.worker.run(limit, job) {
            Ended::InTime((outcome, guests)) => {
                self.guests = guests;
                return outcome;
            }
            Ended::Late((outcome, guests)) => (outcome.err(), Some(guests)),
            Ended::Never => (None, None),
        };
        self.guests.booting = guests.map_or(Duration::ZERO, |guests| guests.booting);
        let rest = if limit < self.limits.case { ", the rest of its suite's time" } else { "" };
        let sentence = format!(
            "the case did not end within {} s{rest}, so its guests and all programs that it had \
             started were ended",
            limit.as_secs()
        );
        Err(outcome.map_or_else(|| sentence.clone(), |why| format!("{sentence}\n{why}")))
    }
}

/// Fails with a message if something was not built.
fn requirements() -> Result<()> {
    let paths = Paths::from_env()?;
    let made = [
        (paths.vrnicd(), "vrnicd"),
        (paths.module(), "vrnic.ko"),
        (paths.provider(), "the libibverbs plugin"),
        (paths.bin.join("vrnic-verify"), "vrnic-verify"),
        (paths.bin.join("vrnic-stress"), "vrnic-stress"),
    ];
    made.iter().try_for_each(|(file, what)| {
        paths.need(file, "scripts/test").with_context(|| format!("{what} was not built"))
    })
}

/// The name of a suite, and the function that returns it.
pub type Entry = (&'static str, fn() -> Result<Suite>);

/// Runs the suites and cases that the arguments of this program select.
#[must_use]
pub fn main(entries: &[Entry]) -> ExitCode {
    match Selection::from_args(entries.iter().map(|(name, _)| *name))
        .and_then(|it| run_with(entries, &it, GRACE))
    {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what is selected. Cases have so much time to end after their guests were ended. Returns
/// whether all cases have passed.
fn run_with(entries: &[Entry], selection: &Selection, grace: Duration) -> Result<bool> {
    let chosen = entries.iter().filter(|(name, _)| selection.has_suite(name));
    let mut suites: Vec<_> =
        chosen.map(|(name, suite)| (*name, select(name, *suite, selection))).collect();
    if suites.iter().all(|(_, suite)| suite.cases.is_empty() && suite.skipped.is_none()) {
        bail!("no case has such a name; --list prints the names of all cases");
    }
    side_by_side(&mut suites);
    let files: Vec<_> = (0..suites.len()).map(|at| files(&suites, at)).collect();
    let _ahead = (!selection.arguments.list).then(|| Ahead::start(&suites));
    let harness = Arc::new(Mutex::new(Harness::new(grace)));
    let watchdog = Watchdog::start(OUTSIDE);
    let mut passed = true;
    for ((name, mut suite), files) in suites.into_iter().zip(files) {
        let limits = selection.limits(name, suite.limit);
        watchdog.limit(name, limits.suite + OUTSIDE);
        locked(&harness).begin(&suite, files, limits);
        let start = Instant::now();
        let trials = trials(name, &mut suite, &harness);
        if trials.is_empty() {
            continue;
        }
        passed &= !libtest_mimic::run(&selection.arguments, trials).has_failed();
        let mut harness = locked(&harness);
        // A value that the suite keeps may be the network of its guests.
        if suite.changes_guests || !suite.kept.is_empty() {
            harness.guests.pair = None;
        }
        let (all, booting) = (start.elapsed().as_secs_f64(), harness.guests.booting.as_secs_f64());
        if !selection.arguments.list {
            println!(
                "suite {name}: {all:.1} s, of these {booting:.1} s until its guests were ready"
            );
        }
    }
    Ok(passed)
}

/// Returns the suite with those of its cases that are selected. If it cannot be made, it has one
/// case, which fails.
fn select(name: &str, suite: fn() -> Result<Suite>, selection: &Selection) -> Suite {
    let failing = |error: anyhow::Error| {
        let why = format!("{error:#}");
        Suite::alone(vec![Case::alone(BEGINNING, move || bail!("{why}"))])
    };
    let mut suite = match suite() {
        Ok(suite) => suite,
        Err(error) => return failing(error),
    };
    let names: Vec<_> = suite.cases.iter().map(|case| case.name.as_str()).collect();
    if let Some(unknown) = selection.unknown(name, &names).filter(|_| suite.skipped.is_none()) {
        return failing(anyhow::anyhow!("the suite {name} has no case '{unknown}'"));
    }
    suite.cases.retain(|case| selection.has(name, &case.name));
    suite
}

/// Moves suites whose guests have equal options next to the first one of them. Those that change
/// their guests become the last ones.
fn side_by_side(suites: &mut [(&str, Suite)]) {
    let guests: Vec<_> = suites.iter().map(|(_, suite)| suite.guests()).collect();
    suites.sort_by_cached_key(|(_, suite)| {
        let own = suite.guests();
        (guests.iter().position(|other| *other == own), suite.changes_guests)
    });
}

/// Returns the files of the guests of a suite: those of all suites that can use the same guests.
fn files(suites: &[(&str, Suite)], at: usize) -> Vec<(String, Vec<u8>)> {
    let guests = suites[at].1.guests();
    let same = suites.iter().filter(|(_, suite)| suite.guests() == guests);
    let mut files: Vec<_> = same.flat_map(|(_, suite)| suite.options.files.clone()).collect();
    files.sort();
    files.dedup();
    files
}

fn locked(harness: &Mutex<Harness>) -> MutexGuard<'_, Harness> {
    // No case runs on a thread that has the lock.
    harness.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether each guest has a separate daemon, so that all messages are packets.
#[must_use]
pub fn over_packets() -> bool {
    is_set("VRNIC_FABRIC", "wire")
}

/// Returns whether the adapters are iWARP adapters.
#[must_use]
pub fn over_iwarp() -> bool {
    is_set("VRNIC_PERSONALITY", Transport::Iwarp.name())
}

fn is_set(name: &str, value: &str) -> bool {
    std::env::var_os(name).is_some_and(|set| set == value)
}

/// Returns the tests of a suite, and takes its cases.
fn trials(name: &str, suite: &mut Suite, harness: &Arc<Mutex<Harness>>) -> Vec<Trial> {
    if let Some(why) = &suite.skipped {
        return vec![Trial::test(format!("{name}::{why}"), || Ok(())).with_ignored_flag(true)];
    }
    let cases = std::mem::take(&mut suite.cases).into_iter();
    cases.map(|case| trial(name.to_owned(), Arc::clone(harness), case)).collect()
}

fn trial(suite: String, harness: Arc<Mutex<Harness>>, case: Case) -> Trial {
    let (name, by_name_only) = (format!("{suite}::{}", case.name), case.by_name_only);
    let case = Arc::new(case);
    let run = move || {
        let start = Instant::now();
        let outcome = locked(&harness).run(Arc::clone(&case));
        let record = json!({
            "part": std::env::var("VRNIC_PART").unwrap_or_default(),
            "suite": suite,
            "case": case.name,
            "seconds": start.elapsed().as_secs_f64(),
            "failure": outcome.as_ref().err(),
        });
        note(&record).map_err(|error| Failed::from(format!("{error:#}")))?;
        outcome.map_err(|why| told(&suite, &case.name, why))
    };
    Trial::test(name, run).with_ignored_flag(by_name_only)
}

/// Returns what a case said that has panicked.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_default())
}

/// Prints the first failure at once. All failures are printed again after their suite.
fn told(suite: &str, case: &str, why: String) -> Failed {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        eprintln!("\nthe first case that fails is {suite}::{case}:\n{why}");
    }
    Failed::from(why)
}

/// Appends what a case has shown to the file that `VRNIC_RESULTS` names, for a report of all
/// suites.
fn note(record: &serde_json::Value) -> Result<()> {
    let Some(file) = std::env::var_os("VRNIC_RESULTS") else { return Ok(()) };
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&file)
        .with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(writeln!(file, "{record}")?)
}

/// Returns the innermost cause, then the logs, then the cause again, so that it can be seen at the
/// end, too.
fn explain(error: &anyhow::Error) -> String {
    let mut causes: Vec<_> = error.chain().rev().map(ToString::to_string).collect();
    if causes.len() > 1 {
        causes.push(format!("--- because\n{}", error.root_cause()));
    }
    causes.join("\n")
}
