//! The program of all suites: runs the cases that are asked for, one after the other. Suites whose
//! guests have equal options share a pair of guests.

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
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_qemu::paths::Paths;

use crate::health;
use crate::report::BEGINNING;
use crate::selection::Selection;

/// Time limit of a suite. Each step has its own limit; this one is for hangs outside of them.
const LIMIT: Duration = Duration::from_secs(25 * 60);

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
    limit: Duration,
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
        Self { options, cases, limit: LIMIT, kept, skipped, changes_guests: false, alone: false }
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

    /// Sets the time limit.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
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

/// Keeps the pair between cases, and between suites whose guests have equal options.
#[derive(Default)]
struct Harness {
    options: Options,
    guests: String,
    pair: Option<Pair>,
    /// The reason for which the boot has failed, so that further cases do not wait for the same
    /// failure.
    broken: Option<String>,
    /// How long guests took to boot.
    booting: Duration,
}

impl Harness {
    /// Begins a suite whose guests get these files.
    fn begin(&mut self, suite: &Suite, files: Vec<(String, Vec<u8>)>) {
        let guests = suite.guests();
        if self.guests != guests {
            (self.pair, self.broken) = (None, None);
        }
        (self.options, self.guests) = (Options { files, ..suite.options.clone() }, guests);
        self.booting = Duration::ZERO;
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
        .and_then(|it| run(entries, &it))
    {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what is selected. Returns whether all cases have passed.
fn run(entries: &[Entry], selection: &Selection) -> Result<bool> {
    let chosen = entries.iter().filter(|(name, _)| selection.has_suite(name));
    let mut suites: Vec<_> =
        chosen.map(|(name, suite)| (*name, select(name, *suite, selection))).collect();
    if suites.iter().all(|(_, suite)| suite.cases.is_empty() && suite.skipped.is_none()) {
        bail!("no case has such a name; --list prints the names of all cases");
    }
    side_by_side(&mut suites);
    let files: Vec<_> = (0..suites.len()).map(|at| files(&suites, at)).collect();
    let harness = Arc::new(Mutex::new(Harness::default()));
    let watchdog = Watchdog::start();
    let mut passed = true;
    for ((name, mut suite), files) in suites.into_iter().zip(files) {
        watchdog.limit(name, suite.limit.max(selection.limit(name)));
        locked(&harness).begin(&suite, files);
        let start = Instant::now();
        let trials = trials(name, &mut suite, &harness);
        if trials.is_empty() {
            continue;
        }
        passed &= !libtest_mimic::run(&selection.arguments, trials).has_failed();
        let mut harness = locked(&harness);
        // A value that the suite keeps may be the network of its guests.
        if suite.changes_guests || !suite.kept.is_empty() {
            harness.pair = None;
        }
        let (all, booting) = (start.elapsed().as_secs_f64(), harness.booting.as_secs_f64());
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
    // A case that has panicked has taken the pair with it. The harness itself is still valid.
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
    let run = move || {
        let start = Instant::now();
        let ran = catch_unwind(AssertUnwindSafe(|| locked(&harness).run(&case)));
        let outcome =
            ran.map_or_else(|panic| Err(message(&*panic)), |it| it.map_err(|it| explain(&it)));
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

/// Ends the process if a suite takes far too long. The guests end with it.
struct Watchdog(Arc<Mutex<(String, Instant)>>);

impl Watchdog {
    fn start() -> Self {
        let watched = Arc::new(Mutex::new((String::new(), Instant::now() + LIMIT)));
        let seen = Arc::clone(&watched);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let (suite, end) = &*seen.lock().unwrap_or_else(PoisonError::into_inner);
                if Instant::now() > *end {
                    eprintln!("the suite {suite} did not end in time: giving up");
                    std::process::abort();
                }
            }
        });
        Self(watched)
    }

    /// Begins the time of a suite.
    fn limit(&self, suite: &str, limit: Duration) {
        let watched = (suite.to_owned(), Instant::now() + limit);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = watched;
    }
}
