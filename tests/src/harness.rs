//! The pair of guests that all cases of a test binary use, and the code that runs and reports
//! cases.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_qemu::paths::Paths;

use crate::health;
use vrnic_qemu::modules;

/// Time limit of a test binary. Each step has its own limit; this one is for hangs outside of them.
const LIMIT: Duration = Duration::from_secs(25 * 60);

/// The function of a case.
type Run = dyn Fn(&mut Pair) -> Result<()> + Send + Sync;

/// A case with a pair of guests.
pub struct Case {
    name: String,
    run: Box<Run>,
    /// True if the pair cannot be used afterwards.
    ruins: bool,
}

impl Case {
    /// Creates a case that leaves the pair as it was.
    pub fn new(
        name: impl Into<String>,
        run: impl Fn(&mut Pair) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), run: Box::new(run), ruins: false }
    }

    /// Creates a case after which the pair is not used any more. The case itself checks the health
    /// of the guests that still run.
    pub fn ruinous(
        name: impl Into<String>,
        run: impl Fn(&mut Pair) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { ruins: true, ..Self::new(name, run) }
    }
}

/// Keeps the pair between cases.
struct Harness {
    options: Options,
    pair: Option<Pair>,
    /// The reason for which the boot has failed, so that further cases do not wait for the same
    /// failure.
    broken: Option<String>,
}

impl Harness {
    fn run(&mut self, case: &Case) -> Result<()> {
        let mut pair = self.take()?;
        let result = (case.run)(&mut pair)
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
            anyhow::bail!("no guests: {why}");
        }
        let start = Instant::now();
        match requirements().and_then(|()| Pair::boot(self.options.clone())) {
            Ok(pair) => {
                eprintln!("guests booted in {:.1} s", start.elapsed().as_secs_f64());
                Ok(pair)
            }
            Err(error) => {
                self.broken = Some(format!("{error:#}"));
                Err(error.context("booting the guests"))
            }
        }
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

/// Runs a test binary as its main function. With `VRNIC_FABRIC=wire` in the environment each guest
/// has a separate daemon, so that the cases use packets. With `VRNIC_PERSONALITY=iwarp` the
/// adapters are iWARP adapters.
#[must_use]
pub fn main(options: Options, cases: Vec<Case>) -> ExitCode {
    main_within(LIMIT, options, cases)
}

/// Like [`main`], with this time limit.
#[must_use]
pub fn main_within(limit: Duration, options: Options, cases: Vec<Case>) -> ExitCode {
    let apart = options.apart || over_packets();
    let personality = if over_iwarp() { Transport::Iwarp } else { options.personality };
    let options = Options { apart, personality, ..options };
    let mut arguments = Arguments::from_args();
    // There is one pair and one case at a time. With one thread, the trials run on the calling
    // thread.
    arguments.test_threads = Some(1);
    watchdog(limit);
    let harness = Arc::new(Mutex::new(Harness { options, pair: None, broken: None }));
    let trials = cases.into_iter().map(|case| trial(Arc::clone(&harness), case)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    harness.lock().unwrap_or_else(PoisonError::into_inner).pair = None;
    conclusion.exit_code()
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

/// Runs a test binary whose guests get these kernel modules as files.
#[must_use]
pub fn main_with_modules(names: &[&str], options: Options, cases: Vec<Case>) -> ExitCode {
    match modules::files(names) {
        Ok(files) => main(Options { files, ..options }, cases),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Reports a test as skipped, for a binary that cannot run here.
#[must_use]
pub fn skipped(name: &str) -> ExitCode {
    let trial = Trial::test(name, || Ok(())).with_ignored_flag(true);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn trial(harness: Arc<Mutex<Harness>>, case: Case) -> Trial {
    Trial::test(case.name.clone(), move || {
        // A case that has panicked has taken the pair with it. The harness itself is still valid.
        let mut harness = harness.lock().unwrap_or_else(PoisonError::into_inner);
        harness.run(&case).map_err(|error| Failed::from(explain(&error)))
    })
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

/// Ends the process if it takes far too long. The guests end with it.
fn watchdog(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("the tests did not end within {limit:?}: giving up");
        std::process::abort();
    });
}
