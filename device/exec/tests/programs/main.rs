//! Real programs below a supervisor. Those of verbs are the stock ones of the system, from the
//! packages ibverbs-utils and perftest. Without them, or without the plugin, their tests are left
//! out, unless `VRNIC_EXEC_PROGRAMS=1` demands them.
//!
//! This program is also the supervisor: with `supervise NUMBER PROGRAM…` it runs a program, and
//! with `--check-env` instead of a program it checks the host. Rules for faults are in
//! `VRNIC_RULES`, one a line, and must hit. `VRNIC_PCAP` and `VRNIC_TRACE` name files for a capture
//! and for timelines, `VRNIC_REPORT` one for a report, `VRNIC_ADDRESS` the first address,
//! `VRNIC_JOIN` the folder of a network, and `VRNIC_LIMITS` the most objects.
#![forbid(unsafe_code)]

mod connections;
mod joined;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use vrnic_device::exec_switch::start;
use vrnic_exec::environment::check;
use vrnic_exec::join::membership::Join;
use vrnic_exec::run::{Options, run};
use vrnic_stock::{built, is_installed, pair, plugin};

/// The first argument with which this program is a supervisor.
const SUPERVISE: &str = "supervise";
/// The environment variable with rules for faults.
const RULES: &str = "VRNIC_RULES";
/// The environment variables with files for a capture and for timelines.
const PCAP: &str = "VRNIC_PCAP";
const TRACE: &str = "VRNIC_TRACE";
/// The environment variables with the file for a report, the first address, and the most objects.
const REPORT: &str = "VRNIC_REPORT";
const ADDRESS: &str = "VRNIC_ADDRESS";
const LIMITS: &str = "VRNIC_LIMITS";
/// The environment variable with the folder of a network that is shared.
const JOIN: &str = "VRNIC_JOIN";
/// The environment variable that demands all programs.
const DEMANDED: &str = "VRNIC_EXEC_PROGRAMS";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [first, adapters, program, rest @ ..] = &arguments[..]
        && first == SUPERVISE
    {
        let adapters = adapters.to_str().and_then(|text| text.parse().ok()).unwrap_or(0);
        let (program, arguments) = (program.clone(), rest.to_vec());
        if program == "--check-env" {
            let (report, fits) = check();
            print!("{report}");
            return u8::from(!fits).into();
        }
        let rules = std::env::var(RULES).unwrap_or_default();
        let faults = rules.lines().map(|rule| rule.parse().expect("a rule")).collect();
        let [pcap, trace] = [PCAP, TRACE].map(|name| std::env::var_os(name).map(PathBuf::from));
        let report = std::env::var_os(REPORT).map(PathBuf::from);
        let address = std::env::var(ADDRESS).ok().map(|text| text.parse().expect("an address"));
        let limits = std::env::var(LIMITS).map(|text| text.parse().expect("limits"));
        let limits = limits.unwrap_or_default();
        let join = std::env::var_os(JOIN).map(|place| Join { place: place.into(), switch: start });
        let own = Options { adapters, address, join, limits, ..Options::default() };
        let own = Options { program, arguments, ..own };
        let options = Options { faults, must_hit: true, pcap, trace, report, ..own };
        return match run(&options) {
            Ok(ended) => ended.exit(),
            Err(error) => {
                eprintln!("{error:#}");
                125.into()
            }
        };
    }
    let mut trials = plain();
    trials.extend(verbs());
    trials.extend(faults());
    trials.extend(files());
    trials.extend(connections::trials(std::env::var_os(DEMANDED).is_some()));
    trials.extend(joined::trials(std::env::var_os(DEMANDED).is_some()));
    trials.push(cases());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A run below a supervisor, whose files are in a folder of its own.
struct Run {
    output: Output,
    /// The names of the files that it has left behind.
    left: Vec<OsString>,
}

/// Runs a script of the shell with this number of adapters.
fn shell(adapters: u32, script: &str) -> Result<Run, Failed> {
    shell_with(adapters, &[], script)
}

/// Runs a script of the shell with environment variables of the supervisor.
fn shell_with(adapters: u32, variables: &[(&str, &OsStr)], script: &str) -> Result<Run, Failed> {
    let folder = tempfile::tempdir()?;
    let plugin = plugin().unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let output = Command::new("timeout")
        .args(["180".into(), std::env::current_exe()?])
        .args([SUPERVISE, &adapters.to_string(), "sh", "-c", script])
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("VRNIC_PLUGIN", plugin)
        .envs(variables.iter().copied())
        .output()?;
    let left = std::fs::read_dir(folder.path())?.flatten().map(|entry| entry.file_name()).collect();
    Ok(Run { output, left })
}

impl Run {
    /// Returns what it has printed, if its exit status is this, and if it has left nothing behind.
    fn ended(&self, status: i32) -> Result<String, Failed> {
        let Output { stdout, stderr, status: ended } = &self.output;
        let texts = [stdout, stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        if ended.code() != Some(status) {
            return Err(format!("{ended} instead of {status}: {}{}", texts[0], texts[1]).into());
        }
        if !self.left.is_empty() {
            return Err(format!("left behind: {:?}", self.left).into());
        }
        Ok(texts[0].clone() + &texts[1])
    }
}

fn plain() -> Vec<Trial> {
    let status = |script: &'static str, status| {
        let name = format!("`{script}` ends with {status}");
        Trial::test(name, move || shell(1, script)?.ended(status).map(drop))
    };
    vec![
        status("exit 7", 7),
        status("kill -TERM $$", 143),
        status("kill -40 $$", 168),
        status("no-such-program-at-all", 127),
        status("sh -c 'sleep 0.1; exit 3' & wait $!", 3),
        status("test -c /dev/infiniband/rdma_cm", 0),
        // The shell moves the descriptor to this number.
        // A link of /proc opens another file.
        status(
            "exec 3</dev/infiniband/rdma_cm 4</proc/self/fd/3; \
             [ $(stat -L -c %i /proc/self/fd/3) != $(stat -L -c %i /proc/self/fd/4) ]",
            0,
        ),
        status("exec 3<>/dev/infiniband/rdma_cm && ! printf command 2>/dev/null >&3", 0),
        interrupted(),
        Trial::test("ordinary files are as without a supervisor", || {
            let read = "cat /proc/version /etc/passwd; ls -l /etc /sys/class/net /dev/null";
            let plain = Command::new("sh").args(["-c", read]).output()?;
            let below = shell(1, read)?;
            below.ended(0)?;
            let same = below.output.stdout == plain.stdout;
            if same { Ok(()) } else { Err("another output".into()) }
        }),
        Trial::test("sysfs has each adapter", || {
            let text = shell(3, "ls /sys/class/infiniband; cat /sys/class/infiniband/*/fw_ver")?;
            let text = text.ended(0)?;
            let all = ["vrnic0\n", "vrnic1\n", "vrnic2\n"].iter().all(|name| text.contains(name));
            if all { Ok(()) } else { Err(text.into()) }
        }),
        Trial::test("device files are character devices", || {
            let text = shell(1, "stat -c %F:%t:%T /dev/infiniband/uverbs0")?.ended(0)?;
            let expected = "character special file:e7:c0\n";
            if text == expected { Ok(()) } else { Err(text.into()) }
        }),
        Trial::test("files of the adapters cannot be changed", || {
            let write = "echo x >/sys/class/infiniband/vrnic0/fw_ver";
            shell(1, write)?.ended(2).map(drop)
        }),
        Trial::test("processes that are left behind are killed", || {
            shell(1, "sleep 1000 >/dev/null 2>&1 &")?.ended(0).map(drop)
        }),
        Trial::test("a host that can run programs is found to fit, also from inside", fits),
        Trial::test("an adapter has the address that is named", address),
        Trial::test("a report has the status, the adapters and the rules", report),
        Trial::test("a supervisor below another one leaves its work to it", || {
            let own = std::env::current_exe()?;
            let script = format!("{} {SUPERVISE} 1 sh -c 'exit 9'", own.display());
            shell(1, &script)?.ended(9).map(drop)
        }),
    ]
}

/// Checks the host, without a supervisor and below one.
fn fits() -> Result<(), Failed> {
    let own = std::env::current_exe()?;
    let script = format!("{} {SUPERVISE} 1 --check-env", own.display());
    let plugin = plugin().unwrap_or_else(|| own.clone());
    let mut plain = Command::new("sh");
    let plain = plain.args(["-c", &script]).env("VRNIC_PLUGIN", plugin).output()?;
    let inside = shell(1, &script)?.ended(0)?;
    let plain = String::from_utf8_lossy(&plain.stdout).into_owned();
    let fits = plain.contains("trial: a program has found an adapter\n");
    let fits = fits && inside.contains("trial: this is below another");
    if fits { Ok(()) } else { Err((plain + &inside).into()) }
}

fn address() -> Result<(), Failed> {
    let show = "cat /sys/class/infiniband/vrnic1/ports/1/gids/1";
    let named = |address: &'static str| shell_with(2, &[(ADDRESS, address.as_ref())], show);
    let text = named("127.0.1.7")?.ended(0)?;
    let lacks = named("127.255.255.255")?.ended(125)?;
    let right = text.ends_with(":7f00:0108\n") && lacks.contains("not all in 127.0.0.0/8");
    if right { Ok(()) } else { Err((text + &lacks).into()) }
}

fn report() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.json");
    let variables: [(&str, &OsStr); 2] =
        [(REPORT, file.as_os_str()), (RULES, "drop-message every=2".as_ref())];
    let missed = shell_with(2, &variables, "exit 7")?.ended(125)?;
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let right = missed.contains("has hit nothing")
        && report["status"] == 7
        && report["command"] == serde_json::json!(["sh", "-c", "exit 7"])
        && report["adapters"][1]["name"] == "vrnic1"
        && report["faults"][0]["rule"] == "drop-message every=2"
        && report["faults"][0]["hit"] == 0;
    if right { Ok(()) } else { Err(format!("{missed}{report:#}").into()) }
}

/// A program that SIGINT ends.
fn interrupted() -> Trial {
    Trial::test("a shell sees that SIGINT has ended the program", || {
        let mut command = Command::new(std::env::current_exe()?);
        let arguments = [SUPERVISE, "1", "sh", "-c", "kill -INT $$"];
        let plugin = plugin().unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
        let status = command.args(arguments).env("VRNIC_PLUGIN", plugin).status()?;
        if status.signal() == Some(2) { Ok(()) } else { Err(format!("{status}").into()) }
    })
}

/// Programs of verbs: a name, and a script.
const PROGRAMS: &[(&str, &str)] = &[
    ("ibv_devinfo", "ibv_devinfo -v | grep -q 'state:.*PORT_ACTIVE'"),
    ("ibv_rc_pingpong", "P -g 1 -c -n 100"),
    ("ibv_rc_pingpong with events", "ibv_rc_pingpong -g 1 -c -e -n 100"),
    ("ibv_uc_pingpong", "P -g 1 -n 100"),
    ("ibv_ud_pingpong", "P -g 1 -n 100"),
    ("ibv_srq_pingpong", "P -g 1 -n 100"),
    ("ib_write_bw", "P -x 1 -n 20"),
    ("ib_write_bw with XRC", "ib_write_bw -x 1 -n 20 -c XRC"),
    ("ib_send_lat with XRC", "ib_send_lat -x 1 -n 20 -c XRC"),
    ("ibv_xsrq_pingpong", "P -g 1 -n 100"),
    ("ib_write_bw of 8 MiB", "ib_write_bw -x 1 -n 5 -s 8388608"),
    ("ib_write_bw with UC", "ib_write_bw -x 1 -n 20 -c UC"),
    ("ib_read_bw", "P -x 1 -n 20"),
    ("ib_send_bw", "P -x 1 -n 20"),
    ("ib_send_bw with UD", "ib_send_bw -x 1 -n 20 -c UD -s 2048"),
    ("ib_send_bw with an SRQ", "ib_send_bw -x 1 -n 20 --use-srq -q 2"),
    ("ib_send_bw with events", "ib_send_bw -x 1 -n 20 -e"),
    ("ib_atomic_bw", "P -x 1 -n 20"),
    ("ib_write_lat", "P -x 1 -n 20"),
    ("ib_send_lat with events", "ib_send_lat -x 1 -n 20 -e"),
];

/// What a test with rules for faults shows, the rules, the arguments of ibv_rc_pingpong, the exit
/// status, and a part of the output.
type Fault = (&'static str, &'static str, &'static str, i32, &'static str);

/// Tests with rules for faults.
const FAULTS: &[Fault] = &[
    ("lost packets are sent again", "drop every=20 times=10", "-n 100", 0, "100 iters"),
    ("late packets arrive", "delay by=2ms every=30", "-n 100", 0, "100 iters"),
    ("a request fails", "fail-request status=rem-access-err nth=20", "-n 100", 1, "status"),
    (
        "a rule that hits nothing fails",
        "drop opcode=rc-read-request",
        "-n 10",
        125,
        "has hit nothing",
    ),
];

fn faults() -> Vec<Trial> {
    let ignored = plugin().is_none() || !is_installed("ibv_rc_pingpong");
    let ignored = ignored && std::env::var_os(DEMANDED).is_none();
    let trial = |&(name, rules, arguments, status, part): &'static Fault| {
        let run = move || {
            let program = format!("ibv_rc_pingpong -g 1 -c {arguments}");
            let text = shell_with(1, &[(RULES, rules.as_ref())], &pair(&program, &program)?)?
                .ended(status)?;
            if text.contains(part) { Ok(()) } else { Err(text.into()) }
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    };
    FAULTS.iter().map(trial).collect()
}

/// Runs a pair of ibv_rc_pingpong with files for a capture and for timelines. Returns the files.
fn pingpong(rules: &str, timelines: &str) -> Result<[Vec<u8>; 2], Failed> {
    let folder = tempfile::tempdir()?;
    let [pcap, trace] = ["a.pcapng", timelines].map(|name| folder.path().join(name));
    let variables: [(&str, &OsStr); 3] =
        [(RULES, rules.as_ref()), (PCAP, pcap.as_ref()), (TRACE, trace.as_ref())];
    let program = "ibv_rc_pingpong -g 1 -n 50";
    shell_with(1, &variables, &pair(program, program)?)?.ended(0)?;
    Ok([std::fs::read(pcap)?, std::fs::read(trace)?])
}

/// Returns the number of packets in a capture.
fn packets(mut file: &[u8]) -> usize {
    let mut count = 0;
    while let [a, b, c, d, e, f, g, h, ..] = *file {
        let [kind, length] = [[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes);
        count += usize::from(kind == 6);
        let Some(rest) = file.get(length.max(12) as usize..) else { break };
        file = rest;
    }
    count
}

fn files() -> Vec<Trial> {
    let ignored = plugin().is_none() || !is_installed("ibv_rc_pingpong");
    let ignored = ignored && std::env::var_os(DEMANDED).is_none();
    let trials = vec![
        Trial::test("messages that are copied are in captures and timelines", || {
            let [pcap, trace] = pingpong("", "a.txt")?;
            let (packets, text) = (packets(&pcap), String::from_utf8(trace)?);
            let count = |name: &str| {
                let parts = [name, "function=vrnic0", "qp="];
                text.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
            };
            let counts = [count(" fetch "), count(" copy "), count(" completion ")];
            // 50 messages in each direction, in packets of 1,024 bytes, and their receives.
            let right = packets >= 400 && counts[0] >= 100 && counts[1] >= 100 && counts[2] >= 200;
            if right { Ok(()) } else { Err(format!("{packets} {counts:?}\n{text}").into()) }
        }),
        Trial::test("packets of faults are in captures and timelines", || {
            let [pcap, trace] = pingpong("drop every=50", "a.json")?;
            let (packets, text) = (packets(&pcap), String::from_utf8(trace)?);
            let right = packets >= 400
                && text.starts_with("{\"displayTimeUnit\"")
                && text.ends_with("]}\n")
                && text.contains("\"name\":\"sent\"")
                && text.contains("\"ph\":\"X\"");
            if right { Ok(()) } else { Err(format!("{packets}\n{text}").into()) }
        }),
    ];
    trials.into_iter().map(|trial| trial.with_ignored_flag(ignored)).collect()
}

/// The cases of vrnic-verify that need nothing that is missing here, by parts of their names.
const CASES: &str = "data/ datagrams/ async_events/ inline/ isolation/ local_errors/ loopback/ mistakes/ \
                     order/ queues/ remote_errors/ retry/ rnr/ segments/ states/ regions/ windows/ \
                     xrc/ srq/ credits/resize device_memory/ multicast/ lifecycle/ events/ extended/";
/// Some of these that need raw packets, DMA buffers, two adapters, or pinned memory.
const WITHOUT: &str = "states/raw_packet dmabuf blocked_loopback mr_outlives_mapping";

/// The cases of vrnic-verify, if it has been built.
fn cases() -> Trial {
    let program = built("vrnic-verify");
    let ignored = plugin().is_none() || program.is_none();
    let run = move || {
        let program = program.ok_or("vrnic-verify has not been built")?;
        let options = |name: &str, parts: &str| -> String {
            parts.split_whitespace().map(|part| format!(" {name} {part}")).collect()
        };
        let (only, skip) = (options("--only", CASES), options("--skip", WITHOUT));
        let script = format!("{} run{skip}{only}", program.display());
        shell(1, &script)?.ended(0).map(drop)
    };
    Trial::test("cases of vrnic-verify", run).with_ignored_flag(ignored)
}

fn verbs() -> Vec<Trial> {
    let is_demanded = std::env::var_os(DEMANDED).is_some();
    let mut trials: Vec<_> = PROGRAMS
        .iter()
        .map(|(name, script)| {
            let program = name.split(' ').next().unwrap_or_default();
            let is_there = plugin().is_some() && is_installed(program);
            let ignored = !is_there && !is_demanded;
            let command = script.replacen("P ", &format!("{program} "), 1);
            let run = move || {
                let is_whole = command.contains("| ");
                let script = if is_whole { command } else { pair(&command, &command)? };
                shell(1, &script)?.ended(0).map(drop)
            };
            Trial::test(*name, run).with_ignored_flag(ignored)
        })
        .collect();
    let ignored = plugin().is_none() || !is_installed("ibv_rc_pingpong");
    let two = || {
        let program = |device| format!("ibv_rc_pingpong -d vrnic{device} -g 1 -c -n 100");
        shell(2, &pair(&program(0), &program(1))?)?.ended(0).map(drop)
    };
    let few = || {
        let program = "ibv_rc_pingpong -g 1 -c -n 100";
        let limits: [(&str, &OsStr); 1] = [(LIMITS, "qp:1".as_ref())];
        let text = shell_with(1, &limits, &pair(program, program)?)?.ended(1)?;
        if text.contains("Couldn't create QP") { Ok(()) } else { Err(text.into()) }
    };
    let few = Trial::test("an adapter has no more queue pairs than its limit", few);
    trials.push(few.with_ignored_flag(ignored && !is_demanded));
    let two = Trial::test("two adapters exchange messages", two);
    trials.push(two.with_ignored_flag(ignored && !is_demanded));
    trials
}
