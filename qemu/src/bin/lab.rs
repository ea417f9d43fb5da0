//! Runs a command in guests that have adapters, for programs that are not ours.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum, value_parser};
use vrnic_qemu::accel::Accel;
use vrnic_qemu::adapter::{Transport, parse_transport};
use vrnic_qemu::lab::{Job, collect, run};
use vrnic_qemu::pair::{GUESTS_MAX, Options, Pair};
use vrnic_qemu::paths::Paths;
use vrnic_qemu::progress::step;
use vrnic_qemu::room;
use vrnic_qemu::timing::Timing;

/// Exit status when the guests or the daemon fail, and not the command.
const BROKEN: u8 = 125;

/// Boots guests with a vrnic adapter each and runs a command in guest a. Its exit status is that
/// of the command; 124 means that the command took too long, 125 that a guest or the daemon failed.
///
/// Commands run as root in the folder /lab, with these variables: VRNIC_ADDRESS is the IPv4 address
/// of their guest, VRNIC_PEER that of guest b (in the other guests that of guest a), VRNIC_PEERS
/// those of all other guests, VRNIC_DEVICE the name of the RDMA device, VRNIC_NAME the guest's
/// letter, VRNIC_OUTPUT a folder for files that --output keeps, VRNIC_ACCEL is kvm or tcg.
#[derive(Debug, Parser)]
#[command(name = "scripts/lab", bin_name = "scripts/lab", after_long_help = EXAMPLE)]
struct Args {
    /// Number of guests, which are named a, b, c and so on
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = value_parser!(u8).range(2..=i64::from(GUESTS_MAX)))]
    guests: u8,

    /// Number of virtual processors of each guest
    #[arg(long, default_value_t = 1)]
    cpus: u32,

    /// Memory of each guest, such as 512M or 2G. Without it, 1536M, or what a larger image needs
    #[arg(long, value_parser = mebibytes)]
    memory: Option<u32>,

    /// What the guests have beside Debian's minimal base. Minimal: rdma-core, perftest. Apps: also
    /// libfabric, UCX, Open MPI, NFS
    #[arg(long, value_enum, default_value_t = Image::Minimal)]
    image: Image,

    /// Install this Debian package, too, with all that it depends on. Can be given several times.
    /// The image with these packages is made on first use and kept
    #[arg(long = "package", value_name = "NAME")]
    packages: Vec<String>,

    /// The protocol of the adapters
    #[arg(long, value_name = "roce|iwarp", default_value = "roce", value_parser = parse_transport)]
    personality: Transport,

    /// Copy the contents of this folder into all guests, to /lab
    #[arg(long, value_name = "DIR")]
    copy: Option<PathBuf>,

    /// Run this shell command in all other guests. The command of guest a starts when each of them
    /// listens on a TCP port or by the RDMA connection manager, has ended, or after 30 s. Its
    /// status counts if it ends by itself
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,

    /// Copy the files in $VRNIC_OUTPUT of each guest into this folder, and a report with logs
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// End the command after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,

    /// Print how long the command took, and what the adapter of guest a sent and received.
    /// Refused if the guests are not under KVM, because such figures say nothing about hardware
    #[arg(long)]
    timing: bool,

    /// The command of guest a. A single word is text for its shell; several words are a program and
    /// its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const NO_TIMING: &str = "\
the guests are not under KVM, so --timing is refused: QEMU would translate their code, and times \
of translated programs say nothing about hardware. Use a machine with KVM, or leave the option out";

const EXAMPLE: &str = "\
Example: a server in guest b and its client in guest a

  scripts/lab --peer ib_write_bw -- 'ib_write_bw $VRNIC_PEER'";

/// An image of the guests. scripts/lab sets it up and puts its path into the environment.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Image {
    Minimal,
    Apps,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match lab(args) {
        // CAST: a status of a process has 8 bits.
        Ok(code) => ExitCode::from((code & 0xff) as u8),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(BROKEN)
        }
    }
}

/// Boots the guests and runs the commands. Returns the status.
fn lab(args: Args) -> Result<i32> {
    let paths = Paths::from_env()?;
    let accel = Accel::choose(&paths)?;
    ensure!(!args.timing || accel == Accel::Kvm, NO_TIMING);
    let memory = args.memory.map_or_else(|| room::for_image(&paths.base_image()), Ok)?;
    room::check(args.guests, memory)?;
    let options = Options {
        guests: args.guests,
        cpus: args.cpus,
        memory,
        personality: args.personality,
        tree: args.copy,
        ..Options::default()
    };
    let (image, packages) = (args.image, args.packages.join(" "));
    step(format!("booting {} guests of the {image:?} image {packages}", args.guests));
    let pair = Pair::boot(options)?;
    step(format!("all guests are up, under {:?}", pair.accel()));
    let job = Job {
        command: shell_text(&args.command),
        peer: args.peer,
        limit: Duration::from_secs(args.timeout),
    };
    let ran = timed(&pair, &job, args.timing);
    // If a command has failed, the files and the logs are needed most. Its failure is reported, and
    // not a failure to copy them.
    let kept = args.output.map_or(Ok(()), |output| collect(&pair, &output));
    let code = ran?;
    kept.map(|()| code)
}

/// Runs the commands. Returns the status.
fn timed(pair: &Pair, job: &Job, timing: bool) -> Result<i32> {
    let timing = timing.then(|| Timing::start(pair)).transpose()?;
    let code = run(pair, job)?;
    step(format!("the command ended with {code}"));
    if let Some(timing) = timing {
        step(timing.end(pair)?);
    }
    Ok(code)
}

/// Returns shell text that runs these words.
fn shell_text(words: &[String]) -> String {
    match words {
        [text] => text.clone(),
        words => {
            let quoted = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
            words.iter().map(quoted).collect::<Vec<_>>().join(" ")
        }
    }
}

/// Parses an amount of memory, such as 512M. Returns MiB.
fn mebibytes(text: &str) -> Result<u32> {
    let (number, factor) = match (text.strip_suffix('M'), text.strip_suffix('G')) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 1024),
        (None, None) => (text, 1),
    };
    let number: Option<u32> = number.parse().ok();
    let amount = number.and_then(|number| number.checked_mul(factor));
    amount.with_context(|| format!("'{text}' is not an amount of memory, such as 512M or 2G"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn scripts_lab_knows_the_options() {
        vrnic_qemu::help::check("lab", Args::command());
    }

    #[test]
    fn words_reach_the_program_as_they_are() {
        let words =
            |words: &[&str]| shell_text(&words.iter().map(|it| (*it).into()).collect::<Vec<_>>());
        assert_eq!(words(&["ping $VRNIC_PEER"]), "ping $VRNIC_PEER");
        assert_eq!(words(&["echo", "it's", "a b"]), r"'echo' 'it'\''s' 'a b'");
    }

    #[test]
    fn amounts_of_memory_are_read() {
        assert_eq!(mebibytes("512M").ok(), Some(512));
        assert_eq!(mebibytes("2G").ok(), Some(2048));
        assert_eq!(mebibytes("768").ok(), Some(768));
        assert!(mebibytes("4194304G").is_err());
        assert!(mebibytes("much").is_err());
    }
}
