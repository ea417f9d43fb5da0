//! Programs below the checker, with adapters of `vrnic exec`. For each rule a program in C has the
//! mistake, which is found, or its right form, in which nothing is. Stock programs of verbs, from
//! the packages ibverbs-utils and perftest, are all right. Without libibverbs or the plugin these
//! tests are left out, unless `VRNIC_EXEC_PROGRAMS=1` demands them.
//!
//! This program is also the supervisor: with `supervise PROGRAM…` it runs a program.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use vrnic_exec::run::{Options, run};
use vrnic_stock::checked::{Mistake, NOTHING, Programs, Report};
use vrnic_stock::{is_installed, pair, plugin};

/// The first argument with which this program is a supervisor.
const SUPERVISE: &str = "supervise";
/// The environment variable that demands all programs.
const DEMANDED: &str = "VRNIC_EXEC_PROGRAMS";
/// The exit status of a program with a mistake.
const MISTAKE: i32 = 66;
/// The folder of the programs in C, which are in a folder for each group of rules.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [first, program, rest @ ..] = &arguments[..]
        && first == SUPERVISE
    {
        let (program, arguments) = (program.clone(), rest.to_vec());
        return match run(&Options { adapters: 1, program, arguments, ..Options::default() }) {
            Ok(ended) => ended.exit(),
            Err(error) => {
                eprintln!("{error:#}");
                125.into()
            }
        };
    }
    let mut trials = rules();
    trials.extend(stock());
    trials.extend(options());
    trials.extend(forms());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A run of a program below the checker.
struct Run {
    output: Output,
    reports: Vec<Report>,
}

impl Run {
    fn text(&self) -> String {
        let Output { stdout, stderr, .. } = &self.output;
        [stdout, stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
    }

    fn ended(&self, status: i32) -> Result<String, Failed> {
        let text = self.text();
        if self.output.status.code() == Some(status) {
            return Ok(text);
        }
        Err(format!("{} instead of {status}: {text}", self.output.status).into())
    }
}

/// Runs a script of the shell, with these options of the checker for all of its programs.
fn checked(options: &str, script: &str) -> Result<Run, Failed> {
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("reports");
    let options = format!("{options},json={}", json.display());
    let library = library().ok_or("the checker has not been built")?;
    let plugin = plugin().ok_or("the plugin has not been built")?;
    let script = format!("export LD_PRELOAD='{}'; {script}", library.display());
    let output = Command::new("timeout")
        .args(["180".into(), std::env::current_exe()?])
        .args([SUPERVISE, "sh", "-c", &script])
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("VRNIC_PLUGIN", plugin)
        .env("VRNIC_CHECK", options)
        .output()?;
    let lines = std::fs::read_to_string(&json).unwrap_or_default();
    Ok(Run { output, reports: Report::parse(&lines)? })
}

/// Builds a program in C. Returns its file.
fn build(name: &str, folder: &Path) -> Result<PathBuf, Failed> {
    let program = folder.join(name);
    let folders = std::fs::read_dir(SOURCES)?.filter_map(Result::ok);
    let files = folders.map(|group| group.path().join(name).with_extension("c"));
    let source = files.into_iter().find(|file| file.exists());
    let output = Command::new("gcc")
        .args(["-g", "-O0", "-Wall", "-Wextra", "-Werror", "-I", SOURCES, "-idirafter"])
        .args([env!("VRNIC_CHECK_INCLUDE"), "-o"])
        .arg(&program)
        .arg(source.ok_or_else(|| format!("there is no program {name}"))?)
        .args(["-l:libibverbs.so.1", "-l:librdmacm.so.1"])
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(program) } else { Err(text.into()) }
}

/// Returns whether tests with programs of verbs are left out.
fn is_left_out() -> bool {
    let is_there = plugin().is_some() && is_installed("ibv_rc_pingpong") && is_installed("gcc");
    !is_there && std::env::var_os(DEMANDED).is_none()
}

fn rules() -> Vec<Trial> {
    let programs = match Programs::read() {
        Ok(programs) => programs,
        Err(error) => {
            return vec![Trial::test("the table of programs is read", move || {
                Err(error.to_string().into())
            })];
        }
    };
    let right = programs.right_ones().map(|name| {
        let program = name.to_owned();
        let run = move || find_nothing(&program);
        let name = format!("nothing is found in the right form of {name}");
        Trial::test(name, run).with_ignored_flag(is_left_out())
    });
    let mut trials: Vec<_> = right.collect();
    trials.extend(programs.mistakes.iter().map(|mistake| {
        let name = format!("{} is found in {}", mistake.rule, mistake.program);
        let mistake = mistake.clone();
        Trial::test(name, move || find(&mistake)).with_ignored_flag(is_left_out())
    }));
    trials
}

/// Checks that nothing is found in the right form of a program.
fn find_nothing(name: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let program = build(name, folder.path())?;
    let run = checked("hints,fail,strict", &format!("{} right", program.display()))?;
    let text = run.ended(0)?;
    if text.contains(NOTHING) && run.reports.is_empty() { Ok(()) } else { Err(text.into()) }
}

/// Checks that a mistake is found, at its two places.
fn find(mistake: &Mistake) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let program = build(&mistake.program, folder.path())?;
    let run = checked("hints,fail", &format!("{} wrong", program.display()))?;
    let text = run.ended(mistake.status)?;
    if mistake.is_in(&run.reports) {
        return Ok(());
    }
    Err(format!("{} is not in {:?}: {text}", mistake.rule, run.reports).into())
}

/// Stock programs, which are right.
const PROGRAMS: &[&str] = &[
    "ibv_rc_pingpong -g 1 -c -n 100",
    "ibv_rc_pingpong -g 1 -c -e -n 100",
    "ibv_uc_pingpong -g 1 -n 100",
    "ibv_ud_pingpong -g 1 -n 100",
    "ibv_srq_pingpong -g 1 -n 100",
    "ibv_xsrq_pingpong -g 1 -n 100",
    "ib_write_bw -x 1 -n 500",
    "ib_write_bw -x 1 -n 500 -b",
    "ib_write_bw -x 1 -n 5 -s 8388608",
    "ib_write_bw -x 1 -n 500 -c UC -s 4096",
    "ib_read_bw -x 1 -n 500",
    "ib_send_bw -x 1 -n 500 -b",
    "ib_send_bw -x 1 -n 500 -c UD -s 2048",
    "ib_send_bw -x 1 -n 100 --use-srq -q 2",
    "ib_send_bw -x 1 -n 100 -e",
    "ib_atomic_bw -x 1 -n 100",
    "ib_write_lat -x 1 -n 100",
    "ib_send_lat -x 1 -n 100",
    "ib_send_lat -x 1 -n 100 -e",
];

/// The line with which the one mistake of these programs is not printed: as a client, ib_send_bw
/// leaves the completion queue of its receives.
const KNOWN: &str = "closed-with-objects library=ib_send_bw\n";

fn stock() -> Vec<Trial> {
    let is_demanded = std::env::var_os(DEMANDED).is_some();
    let trial = |program: &&'static str| {
        let command = *program;
        let run = move || {
            let folder = tempfile::tempdir()?;
            let known = folder.path().join("known");
            std::fs::write(&known, KNOWN)?;
            let options = format!("fail,suppressions={}", known.display());
            let run = checked(&options, &pair(command, command)?)?;
            let text = run.ended(0)?;
            let checked = text.matches(": 0 mistakes in ").count();
            if checked == 2 && run.reports.is_empty() { Ok(()) } else { Err(text.into()) }
        };
        let name = command.split(' ').next().unwrap_or_default();
        let is_there = is_installed(name) && !is_left_out();
        Trial::test(format!("nothing is found in {command}"), run)
            .with_ignored_flag(!is_there && !is_demanded)
    };
    PROGRAMS.iter().map(trial).collect()
}

/// Returns the trials of options that show more, or in another form.
fn forms() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<(), Failed>| {
        Trial::test(name, run).with_ignored_flag(is_left_out())
    };
    vec![
        trial("a guarded buffer shows the store that changes it", || {
            let folder = tempfile::tempdir()?;
            let program = build("guarded", folder.path())?;
            let script = format!("{0} right && {0} wrong", program.display());
            let run = checked("fail,guard", &script)?;
            let text = run.ended(MISTAKE)?;
            let store = "seen by the store that changed it\n    #0 prepare_next at guarded.c:13";
            if text.contains(store) && run.reports.len() == 1 { Ok(()) } else { Err(text.into()) }
        }),
        trial("a document for forges has the reports of all processes", || {
            let folder = tempfile::tempdir()?;
            let program = build("changed", folder.path())?;
            let document = folder.path().join("out.sarif");
            let script = format!("{0} right; {0} wrong; {0} wrong", program.display());
            let run = checked(&format!("fail,sarif={}", document.display()), &script)?;
            let text = run.ended(MISTAKE)?;
            let document = std::fs::read_to_string(&document)?;
            let found = vrnic_stock::sarif::results(&document)?;
            let is_place = |result: &String| {
                result.starts_with("send-buffer-changed ") && result.contains("/two.h:")
            };
            if found.len() == 2 && found.iter().all(is_place) {
                return Ok(());
            }
            Err(format!("{found:?}: {text}").into())
        }),
    ]
}

fn options() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<(), Failed>| {
        Trial::test(name, run).with_ignored_flag(is_left_out())
    };
    vec![
        trial("an unknown option ends before the program starts", || {
            let library = library().ok_or("the checker has not been built")?;
            let output = Command::new("echo")
                .arg("started")
                .env("LD_PRELOAD", library)
                .env("VRNIC_CHECK", "quick")
                .output()?;
            let run = Run { output, reports: Vec::new() };
            let text = run.ended(2)?;
            let is_said = text.contains("unknown option 'quick'") && text.lines().count() == 1;
            if is_said { Ok(()) } else { Err(text.into()) }
        }),
        trial("a report has the line that suppresses it", || {
            let folder = tempfile::tempdir()?;
            let program = build("changed", folder.path())?;
            let script = format!("{} wrong", program.display());
            let text = checked("fail", &script)?.ended(MISTAKE)?;
            let line = text.lines().find_map(|line| line.trim().strip_prefix("suppress: "));
            let file = folder.path().join("suppressions");
            std::fs::write(&file, line.ok_or("there is no such line")?)?;
            let options = format!("fail,suppressions={}", file.display());
            let run = checked(&options, &script)?;
            let text = run.ended(0)?;
            let is_counted = text.contains("0 mistakes in 1 request; 1 report suppressed");
            if is_counted && run.reports.is_empty() { Ok(()) } else { Err(text.into()) }
        }),
        trial("a program that fails itself keeps its exit status", || {
            let folder = tempfile::tempdir()?;
            let program = build("changed", folder.path())?;
            // The mistake of the left one does not change the status of the right one.
            let script = format!("{} wrong; exit 7", program.display());
            checked("fail", &script)?.ended(7).map(drop)
        }),
        trial("without `fail` the exit status is that of the program", || {
            let folder = tempfile::tempdir()?;
            let program = build("changed", folder.path())?;
            let run = checked("", &format!("{} wrong", program.display()))?;
            run.ended(0)?;
            if run.reports.len() == 1 { Ok(()) } else { Err(run.text().into()) }
        }),
    ]
}

/// Returns the library of the checker, which cargo builds before this program.
fn library() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folder = own.parent()?;
    let places = [folder.to_path_buf(), folder.parent()?.to_path_buf()];
    let files = places.iter().map(|place| place.join("libvrnic_check.so"));
    files
        .filter(|file| file.exists())
        .max_by_key(|file| file.metadata().and_then(|of| of.modified()).ok())
}
