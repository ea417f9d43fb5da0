//! The course of a run: commands, results, files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use vrnic_qemu::fleet::Fleet;
use vrnic_qemu::lab::artifacts::{collect, make_folder_of};
use vrnic_qemu::lab::captures::Captures;
use vrnic_qemu::lab::counters::{Counters, table};
use vrnic_qemu::lab::job::{self, Job};
use vrnic_qemu::lab::results::{Kernel, Results};
use vrnic_qemu::lab::scenario::{Scenario, drive};
use vrnic_qemu::lab::script::{SHELL_FILE, shell};
use vrnic_qemu::lab::{junit, summary};
use vrnic_qemu::machine::clock::sentence;
use vrnic_qemu::machine::progress::step;
use vrnic_qemu::machine::signals::{self, Deferral};
use vrnic_qemu::machine::terminal::attach;
use vrnic_qemu::traffic::timing::Timing;

use crate::args::Args;

/// Maximum number of lines of a kernel's faults that are printed.
const FAULTS: usize = 20;
/// Number of lines of a lost guest's log that are printed.
const LOG: usize = 25;
/// Time limit for writing a file into a guest.
const WRITING: Duration = Duration::from_secs(20);

/// The folder of an unpacked image of `scripts/image`, if the programs are from one.
const IMAGE_ROOT: &str = "VRNIC_IMAGE_ROOT";
/// Time between two looks at guests that are kept.
const WATCHING: Duration = Duration::from_secs(2);

/// The steps of the start, and the time that each took.
pub(crate) type Steps = Vec<(&'static str, Duration)>;

/// What runs in the guests, and the faults during it.
pub(crate) struct Work {
    /// The commands.
    pub(crate) job: Job,
    /// The faults, if there are any.
    pub(crate) scenario: Option<Scenario>,
}

/// Runs the commands in guests that are up, and writes the files that the options ask for. Returns
/// the status.
pub(crate) fn run(args: &Args, fleet: &Fleet, work: &Work, mut steps: Steps) -> Result<i32> {
    let job = &work.job;
    steps.extend_from_slice(fleet.steps());
    let whole: Duration = steps.iter().map(|(_, took)| *took).sum();
    step(format!("ready after {:.1} s: {}", whole.as_secs_f64(), sentence(&steps)));
    let strict = !args.no_fail_on_warning;
    // A person's shell, and guests that are kept, save nothing.
    let saving = (!args.shell && args.saves()).then(Deferral::start);
    let mut results = Results { strict, start: steps, ..Results::default() };
    let captures = args.pcap.as_deref().map(|file| Captures::start(fleet, file)).transpose();
    let captures = captures.inspect_err(|error| not_started(args, &format!("{error:#}")))?;
    let before = counters(fleet);
    let ran = if args.shell {
        enter(fleet, job, &mut results)
    } else {
        timed(fleet, work, args.timing, &mut results)
    };
    if let (Some(before), Some(after)) = (before, counters(fleet)) {
        results.counters = before.changes(&after);
    }
    let captured = captures.map_or(Ok(()), Captures::stop);
    look(fleet, &mut results);
    results.broken = match (&ran, &captured) {
        (Err(error), _) => Some(format!("{error:#}")),
        (_, Err(error)) => Some(format!("{error:#}")),
        _ => fleet.ended(),
    };
    if let Some(broken) = results.broken.as_ref().filter(|_| ran.is_ok()) {
        step(broken);
    }
    // If a command has failed, the files and the logs are needed most. Its failure is reported, and
    // not a failure to copy them.
    let kept = keep_files(args, fleet, &results);
    drop(saving);
    if let Some(signal) = signals::noted() {
        if let Err(error) = kept.and(captured) {
            step(format!("{error:#}"));
        }
        return Ok(128 + signal);
    }
    let code = ran?;
    if args.keep {
        wait(fleet, job)?;
    }
    kept?;
    captured?;
    Ok(if code == 0 && results.failed() { i32::from(crate::BROKEN) } else { code })
}

/// Reads the counters. Says so if that fails.
fn counters(fleet: &Fleet) -> Option<Counters> {
    let read = Counters::read(fleet);
    if let Err(error) = &read {
        step(format!("the adapters' counters cannot be read: {error:#}"));
    }
    read.ok()
}

/// Runs the commands. Returns the status.
fn timed(fleet: &Fleet, work: &Work, timing: bool, results: &mut Results) -> Result<i32> {
    let timing = timing.then(|| Timing::start(fleet)).transpose()?;
    let mut commands = || job::run(fleet, &work.job, results);
    let (code, checks) = match &work.scenario {
        Some(scenario) => drive::beside(fleet, scenario, commands),
        None => (commands(), Vec::new()),
    };
    results.checks = checks;
    let code = code?;
    if signals::noted().is_none() {
        step(format!("the command ended with {code}"));
    }
    if let Some(timing) = timing {
        step(timing.end(fleet)?);
    }
    Ok(code)
}

/// Connects the terminal with a shell of guest a, while the commands of the peers run.
fn enter(fleet: &Fleet, job: &Job, results: &mut Results) -> Result<i32> {
    job::with_peers(fleet, job, results, |_| {
        write_shells(fleet, job)?;
        eprintln!("shell in guest a; Ctrl-] leaves and ends all guests");
        attach(&fleet.first()?.shell_socket(), &format!(". {SHELL_FILE}"))?;
        Ok(0)
    })
}

/// Writes the file from which a person's shell gets its variables and its root into each guest.
fn write_shells(fleet: &Fleet, job: &Job) -> Result<()> {
    for guest in fleet.guests() {
        let text = shell(fleet, guest, &job.place);
        let script = format!("cat >{SHELL_FILE} <<'END-OF-SHELL'\n{text}\nEND-OF-SHELL");
        guest.agent().check(&script, WRITING)?;
    }
    Ok(())
}

/// Returns the command that runs scripts/lab: in a clone, or in an unpacked image in this folder.
fn script(image: Option<PathBuf>) -> String {
    image.map_or_else(
        || "scripts/lab".to_owned(),
        |root| {
            let script = root.join("opt/vrnic/scripts/lab");
            format!("{IMAGE_ROOT}={} {}", root.display(), script.display())
        },
    )
}

/// Leaves the guests running, until this process gets a signal.
fn wait(fleet: &Fleet, job: &Job) -> Result<()> {
    write_shells(fleet, job)?;
    let script = script(std::env::var_os(IMAGE_ROOT).map(PathBuf::from));
    step("the guests keep running until Ctrl-C. Enter them from other terminals:");
    for guest in fleet.guests() {
        let (name, socket) = (&guest.setup().name, guest.shell_socket());
        eprintln!("  {script} --enter {}   # guest {name}", socket.display());
    }
    eprintln!("In them, '. {SHELL_FILE}' sets the variables of commands, and enters --root.");
    // The signal ends the process, with the guests and their folder.
    loop {
        std::thread::sleep(WATCHING);
        if let Some(gone) = fleet.ended() {
            step(gone);
            return Ok(());
        }
    }
}

/// Prints the faults of all kernels, and the end of the log of each guest that is gone or does not
/// answer.
fn look(fleet: &Fleet, results: &mut Results) {
    for guest in fleet.guests() {
        let name = guest.setup().name.clone();
        let faults = guest.kernel_faults();
        let ended = guest.ended();
        if ended || !guest.answers() {
            let what = if ended { "has ended" } else { "does not answer" };
            step(format!("guest {name} {what}. Its console ended with"));
            eprintln!("{}", guest.console_end(LOG));
        } else if !faults.is_empty() {
            step(format!("the kernel of guest {name} reported {} faults:", faults.len()));
            faults.iter().take(FAULTS).for_each(|line| eprintln!("{name}: {line}"));
        }
        results.kernels.push(Kernel { guest: name, faults });
    }
}

/// Writes the files that the options ask for.
fn keep_files(args: &Args, fleet: &Fleet, results: &Results) -> Result<()> {
    // Writes as many of the files as possible, and first those that take no time.
    let reported = report(args, results);
    let collected = match &args.output {
        Some(output) => collect(fleet, &table(&results.counters), output),
        None => Ok(()),
    };
    collected.and(reported)
}

/// Writes what the commands have shown.
fn report(args: &Args, results: &Results) -> Result<()> {
    let junit = match &args.junit {
        Some(file) => junit::document(results).and_then(|text| write(file, &text)),
        None => Ok(()),
    };
    let summary = match &args.output {
        Some(output) => write(&output.join("summary.md"), &summary::document(results)),
        None => Ok(()),
    };
    junit.and(summary)
}

/// Writes these files for a run whose commands have not started.
pub(crate) fn not_started(args: &Args, why: &str) {
    let results = Results { broken: Some(why.to_owned()), ..Results::default() };
    if let Err(error) = report(args, &results) {
        step(format!("{error:#}"));
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    make_folder_of(file)?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_entered_by_the_script_that_runs_them() {
        assert_eq!(script(None), "scripts/lab");
        let script = script(Some("/cache/image".into()));
        assert_eq!(script, "VRNIC_IMAGE_ROOT=/cache/image /cache/image/opt/vrnic/scripts/lab");
    }
}
