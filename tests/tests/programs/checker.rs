//! The checker of programs that use verbs, in guests: with vrnic, and with the kernel's software
//! device (rxe) in the same guests. It finds what the table of its programs says, and nothing in
//! programs of others.
//!
//! Shows: tools

use std::fmt;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use vrnic_qemu::agent::Output;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::machine::paths::Paths;
use vrnic_qemu::pair::{Options, Pair, load_module};
use vrnic_qemu::roots::overlay::{CHECKER, checker};
use vrnic_qemu::traffic::perftest::{Case as Run, SET, case, with_sound_clocks};
use vrnic_stock::checked::{Mistake, NOTHING, Programs, Report};
use vrnic_tests::commands::{
    Ends, LONG_TIMEOUT, PINGPONG, SHORT_TIMEOUT, listens, said, serve, settles,
};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::repository::script::{self, top};

/// The file in a guest with the reports of a program.
const REPORTS: &str = "/tmp/checker.jsonl";
/// Part of the last line of a checked process in which nothing was found.
const NO_MISTAKE: &str = ": 0 mistakes in ";
/// Tests of perftest on rxe, which is slow in guests and loses datagrams of long messages.
const ON_RXE: &[Run] = &[
    case("ib_send_bw", "-s 4096 -n 200"),
    case("ib_send_bw", "-e -b -s 4096 -n 200"),
    case("ib_send_bw", "--use-srq -q 4 -s 4096 -n 100"),
    case("ib_send_lat", "-n 200"),
    case("ib_send_lat", "-c UD -n 200"),
    case("ib_write_bw", "-q 2 -s 4096 -n 200"),
    case("ib_write_lat", "-n 200"),
    case("ib_read_bw", "-s 4096 -n 200"),
    case("ib_read_lat", "-n 200"),
    case("ib_atomic_bw", "-n 200"),
    case("ib_atomic_lat", "-n 200"),
];
/// The part of a command in which perftest has a mistake, and the line that suppresses its report:
/// segments of receives of datagrams are longer than their region.
const KNOWN: (&str, &str) = ("-c UD --use-srq", "outside-region library=ib_send_bw\n");
/// The file in guests with this line.
const KNOWN_FILE: &str = "/vrnic/check_known";
/// Programs of librdmacm: the server, and the client, whose last word is the server's address.
const MANAGED: &[(&str, &str)] = &[
    ("rping -V -C 50 -s", "rping -V -C 50 -c -a"),
    ("ucmatose -c 4 -C 20", "ucmatose -c 4 -C 20 -s"),
    ("udaddy -c 4 -C 20", "udaddy -c 4 -C 20 -s"),
];

/// The RDMA device of both guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    Vrnic,
    Rxe,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vrnic => "vrnic",
            Self::Rxe => "rxe",
        })
    }
}

impl Device {
    /// Gives both guests the device, unless they have it.
    fn ready(self, pair: &Pair) -> Result<()> {
        let guests = [&pair.a, &pair.b];
        match self {
            Self::Vrnic => guests.into_iter().try_for_each(adapter),
            Self::Rxe => guests.into_iter().try_for_each(software_device),
        }
    }

    /// Returns the exit status of a program with a mistake.
    fn status(self, mistake: &Mistake) -> i32 {
        match self {
            Self::Vrnic => mistake.status,
            Self::Rxe => mistake.status_on_rxe.unwrap_or(mistake.status),
        }
    }

    /// Returns the tests of perftest that run with it.
    const fn perftest(self) -> &'static [Run] {
        match self {
            Self::Vrnic => SET,
            Self::Rxe => ON_RXE,
        }
    }
}

/// Lets a guest use its adapter.
fn adapter(guest: &Guest) -> Result<()> {
    let there =
        "[ ! -d /sys/class/infiniband/rxe0 ] || rdma link del rxe0; [ -d /sys/module/vrnic ]";
    if guest.agent().run(there, SHORT_TIMEOUT)?.ok() {
        return Ok(());
    }
    load_module(guest)
}

/// Lets a guest use a software device on its network card instead.
fn software_device(guest: &Guest) -> Result<()> {
    let make = "[ -d /sys/class/infiniband/rxe0 ] && echo there && exit; \
                rmmod vrnic && modprobe -a rdma_ucm rdma_rxe && \
                rdma link add rxe0 type rxe netdev eth0";
    if guest.check(make, SHORT_TIMEOUT)?.contains("there") {
        return Ok(());
    }
    let port = "/sys/class/infiniband/rxe0/ports/1";
    settles(guest, &format!("grep -qs ACTIVE {port}/state"), 30)?;
    settles(guest, &format!("grep -qs 0000:0000:0000:0000:0000:ffff {port}/gids/*"), 30)
}

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let paths = Paths::from_env()?;
    let programs = Programs::read()?;
    let mut files = vec![checker(&paths)?, (KNOWN_FILE.to_owned(), KNOWN.1.into())];
    for name in programs.right_ones() {
        let file = built(&paths, name);
        let data = fs::read(&file).with_context(|| format!("{} was not built", file.display()))?;
        files.push((place(name), data));
    }
    let mut cases = Vec::new();
    for device in [Device::Vrnic, Device::Rxe] {
        cases.extend(of_rules(&programs, device));
        cases.extend(of_others(device));
    }
    cases.push(Case::alone("the_lab_ends_with_the_status_of_a_mistake", lab));
    Ok(Suite::new(Options { files, ..Options::default() }, cases).changing_guests())
}

/// Returns the file of a program on this machine.
fn built(paths: &Paths, program: &str) -> std::path::PathBuf {
    paths.build.join("check").join(program)
}

/// Returns the path of a program in guests.
fn place(program: &str) -> String {
    format!("/vrnic/check_{program}")
}

/// Returns the cases of the programs that show rules.
fn of_rules(programs: &Programs, device: Device) -> Vec<Case> {
    let right = programs.right_ones().map(|name| {
        let program = name.to_owned();
        let run = move |pair: &mut Pair| find_nothing(pair, device, &program);
        Case::new(format!("{name}_right_on_{device}"), run)
    });
    let mut cases: Vec<_> = right.collect();
    cases.extend(programs.mistakes.iter().map(|mistake| {
        let name = format!("{}_wrong_on_{device}", mistake.program);
        let mistake = mistake.clone();
        Case::new(name, move |pair: &mut Pair| find(pair, device, &mistake))
    }));
    cases
}

/// Returns the cases of programs of others.
fn of_others(device: Device) -> Vec<Case> {
    let runs = device.perftest().iter().map(|run| {
        let command = format!("{} {}", run.tool, run.options);
        let is_known = command.contains(KNOWN.0);
        let known = if is_known { format!(",suppressions={KNOWN_FILE}") } else { String::new() };
        let started = checked(&format!("fail{known}"), &command);
        Case::new(format!("{command} on {device}"), move |pair: &mut Pair| {
            device.ready(pair)?;
            let once = || {
                let server = serve(&pair.b, &started, PINGPONG)?;
                let client = format!("exec {started} {}", pair.b.ip());
                Ends::of(server, pair.a.agent().run(&client, LONG_TIMEOUT)?)
            };
            let ends = with_sound_clocks(once, |ends| (!ends.ok()).then(|| ends.said()))?;
            quiet(ends, &command)
        })
    });
    let mut cases: Vec<_> = runs.collect();
    cases.extend(MANAGED.iter().map(|(serve, call)| {
        Case::new(format!("{serve} on {device}"), move |pair: &mut Pair| {
            device.ready(pair)?;
            let server = pair.b.agent().start(&format!("exec {}", checked("fail", serve)))?;
            listens(&pair.b)?;
            let client = format!("exec {} {}", checked("fail", call), pair.b.ip());
            quiet(Ends::of(server, pair.a.agent().run(&client, LONG_TIMEOUT)?)?, serve)
        })
    }));
    cases
}

/// Returns a command with the checker.
fn checked(options: &str, command: &str) -> String {
    format!("env LD_PRELOAD={CHECKER} VRNIC_CHECK={options} {command}")
}

/// Checks that both ends have succeeded, and that nothing was found in them.
fn quiet(ends: Ends, what: &str) -> Result<()> {
    let said = ends.said();
    ends.succeed(what)?;
    let count = said.matches(NO_MISTAKE).count();
    ensure!(count == 2, "{count} processes say that there is no mistake: {said}");
    Ok(())
}

/// Runs a program of the table in guest a. Returns its output and the reports.
fn run(pair: &Pair, program: &str, form: &str, options: &str) -> Result<(Output, Vec<Report>)> {
    let command = format!("{} {form}", place(program));
    let command = checked(&format!("{options},json={REPORTS}"), &command);
    let variables = format!("export VRNIC_ADDRESS={}", pair.a.ip());
    let script = format!("rm -f {REPORTS}; {variables}; {command}");
    let output = pair.a.agent().run(&script, SHORT_TIMEOUT)?;
    let lines = pair.a.check(&format!("cat {REPORTS}"), SHORT_TIMEOUT)?;
    Ok((output, Report::parse(&lines)?))
}

/// The right form of a program has no report, also no hint.
fn find_nothing(pair: &Pair, device: Device, program: &str) -> Result<()> {
    device.ready(pair)?;
    let (output, reports) = run(pair, program, "right", "hints,fail,strict")?;
    let text = said(&output);
    ensure!(output.ok(), "ended with {}: {text}", output.code);
    ensure!(text.contains(NOTHING) && reports.is_empty(), "{text}");
    Ok(())
}

/// A mistake is found, at its two places.
fn find(pair: &Pair, device: Device, mistake: &Mistake) -> Result<()> {
    device.ready(pair)?;
    let (output, reports) = run(pair, &mistake.program, "wrong", "hints,fail")?;
    let (status, text) = (device.status(mistake), said(&output));
    ensure!(output.code == status, "ended with {} instead of {status}: {text}", output.code);
    if !mistake.is_in(&reports) {
        bail!("{} is not in {reports:?}: {text}", mistake.rule);
    }
    Ok(())
}

/// `scripts/lab --check` ends with the status of a program with a mistake, and keeps its report.
fn lab() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (copied, kept) = (folder.path().join("copied"), folder.path().join("kept"));
    fs::create_dir(&copied)?;
    fs::copy(built(&Paths::from_env()?, "changed"), copied.join("changed"))?;
    let (copied, output) = (copied.to_string_lossy(), kept.to_string_lossy());
    let ran = |form: &str| {
        let options = ["--guests", "1", "--memory", "512M", "--check", "hints"];
        let options = [&options[..], &["--copy", &copied, "--output", &output, "--"]].concat();
        let mut command = std::process::Command::new(top()?.join("scripts/lab"));
        script::run(command.args(options).args(["./changed", form]))
    };
    let right = ran("right")?;
    let text = script::said(&right);
    ensure!(right.status.success() && text.contains(NOTHING), "{text}");
    let wrong = ran("wrong")?;
    let text = script::said(&wrong);
    ensure!(wrong.status.code() == Some(66), "{}: {text}", wrong.status);
    ensure!(text.contains("main at changed.c:"), "{text}");
    let lines = fs::read_to_string(kept.join("a/checker.jsonl"))?;
    let programs = Programs::read()?;
    let changed = programs.mistakes.iter().find(|mistake| mistake.program == "changed");
    let is_kept = changed.context("no program")?.is_in(&Report::parse(&lines)?);
    ensure!(is_kept, "{lines}");
    Ok(())
}
