//! Boots the pair of guests and runs perftest in them, or gives a shell in one.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_qemu::perftest::{SET, run_set, summary};
use vrnic_qemu::progress::step;

/// Boots two guests with a stock Debian kernel, each with a vrnic adapter, loads vrnic.ko and runs
/// perftest between them.
#[derive(Debug, Parser)]
struct Args {
    /// Open a shell in this guest instead of running tests. Ctrl-] leaves it and ends both guests
    #[arg(long, value_name = "GUEST")]
    shell: Option<Name>,

    /// Run this shell command in guest a instead of tests, or in guest b with 'b:' before it.
    /// Repeat the option for more commands
    #[arg(long, value_name = "COMMAND")]
    exec: Vec<String>,

    /// Copy this program into both guests, to /usr/bin. Repeat the option for more programs
    #[arg(long, value_name = "PROGRAM")]
    file: Vec<PathBuf>,

    /// Run only tests whose tool and options contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,

    /// Also print perftest's output of each test
    #[arg(long)]
    verbose: bool,

    /// Number of virtual processors of each guest
    #[arg(long, default_value_t = 1)]
    cpus: u32,

    /// Memory of each guest in MiB
    #[arg(long, default_value_t = 1536)]
    memory: u32,

    /// Number of adapters of each guest
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
    adapters: u8,

    /// Give each guest a daemon of its own, joined by a trunk, so that the guests reach each other
    /// by packets
    #[arg(long)]
    wire: bool,

    /// Do not load vrnic.ko
    #[arg(long)]
    no_module: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    A,
    B,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let start = Instant::now();
    let options = Options {
        cpus: args.cpus,
        memory: args.memory,
        adapters: args.adapters,
        apart: args.wire,
        module: !args.no_module,
        files: args.file.iter().map(|program| program_file(program)).collect::<Result<_>>()?,
        ..Options::default()
    };
    step("booting two guests");
    let pair = Pair::boot(options)?;
    step(format!(
        "both guests are up after {:.1} s, under {:?}",
        start.elapsed().as_secs_f64(),
        pair.accel()
    ));
    if let Some(name) = args.shell {
        return shell(match name {
            Name::A => &pair.a,
            Name::B => &pair.b,
        });
    }
    if !args.exec.is_empty() {
        return exec(&pair, &args.exec);
    }
    let set: Vec<_> = SET
        .iter()
        .filter(|case| format!("{} {}", case.tool, case.options).contains(&args.only))
        .cloned()
        .collect();
    ensure!(!set.is_empty(), "there is no test whose tool and options contain '{}'", args.only);
    let outcomes = run_set(&pair, &set, args.verbose)?;
    println!("\n{}", summary(&outcomes));
    let failed = outcomes.iter().filter(|outcome| !outcome.passed()).count();
    println!("{} passed, {failed} failed", outcomes.len() - failed);
    if failed > 0 {
        eprintln!("{}", pair.report());
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Path in the guests and content of a program of this machine.
fn program_file(program: &Path) -> Result<(String, Vec<u8>)> {
    let told = || format!("cannot copy {} into the guests", program.display());
    let name = program.file_name().and_then(OsStr::to_str).with_context(told)?;
    let content = fs::read(program).with_context(told)?;
    Ok((format!("/usr/bin/{name}"), content))
}

/// Runs commands in order and shows what they say; the exit code is that of the last.
fn exec(pair: &Pair, commands: &[String]) -> Result<ExitCode> {
    let mut code = 0;
    for command in commands {
        let (guest, script) = match command.strip_prefix("b:") {
            Some(script) => (&pair.b, script),
            None => (&pair.a, command.as_str()),
        };
        let output = guest.agent().run(script, Duration::from_secs(300))?;
        print!("{}", output.stdout);
        eprint!("{}", output.stderr);
        code = output.code;
    }
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Joins this terminal with the guest's second serial line.
fn shell(guest: &Guest) -> Result<ExitCode> {
    const LEAVE: u8 = 0x1d;
    let mut line = UnixStream::connect(guest.shell_socket())?;
    eprintln!("shell in guest {}; Ctrl-] leaves and ends both guests", guest.setup().name);
    let _raw = RawTerminal::new();
    let mut output = line.try_clone()?;
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = output.read(&mut buffer) {
            let mut stdout = io::stdout();
            let shown = stdout.write_all(buffer.get(..len).unwrap_or_default());
            if shown.and_then(|()| stdout.flush()).is_err() {
                break;
            }
        }
    });
    line.write_all(b"\r")?;
    let mut buffer = [0; 256];
    while let Ok(len @ 1..) = io::stdin().read(&mut buffer) {
        let typed = buffer.get(..len).unwrap_or_default();
        if typed.contains(&LEAVE) {
            break;
        }
        line.write_all(typed)?;
    }
    // Input that is no terminal may end before its commands do.
    std::thread::sleep(Duration::from_millis(500));
    Ok(ExitCode::SUCCESS)
}

/// The terminal in raw mode, put back on drop.
struct RawTerminal(Option<Termios>);

impl RawTerminal {
    fn new() -> Self {
        let stdin = io::stdin();
        let Ok(before) = tcgetattr(stdin.as_fd()) else { return Self(None) };
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        let set = tcsetattr(stdin.as_fd(), SetArg::TCSANOW, &raw);
        Self(set.ok().map(|()| before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // Nothing can be done when the terminal is gone.
            let _gone = tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, before);
        }
    }
}
