//! The options of `scripts/lab`.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum, value_parser};
use regex::Regex;
use vrnic_qemu::adapter::{Transport, parse_transport};
use vrnic_qemu::lab::script::OUTPUT;
use vrnic_qemu::pair::GUESTS_MAX;
use vrnic_qemu::roots::stock;

/// Maximum of --timeout, a year.
const TIMEOUT_MAX: u64 = 31_536_000;
const MOST_USED: &str = "\
Most used:
  scripts/lab --peer ib_write_bw -- 'ib_write_bw $VRNIC_PEER'
  scripts/lab --copy FOLDER --output results --peer './server' -- './client $VRNIC_PEER'
  scripts/lab --fault 'drop-message function=a every=100' --must-hit --peer './server' -- './client b'";

/// Boots guests with a vrnic adapter each and runs a command in guest a. Its exit status is that
/// of the command; 124 means that the command took too long, 125 that a guest or the daemon failed.
///
/// Commands run as root in the folder /lab, with these variables: VRNIC_ADDRESS is the IPv4 address
/// of their guest, VRNIC_PEER that of guest b (in the other guests that of guest a), VRNIC_PEERS
/// those of all other guests, VRNIC_DEVICE the name of the RDMA device, VRNIC_NAME the guest's
/// letter, VRNIC_OUTPUT a folder for files that --output keeps, VRNIC_ACCEL is kvm or tcg. With
/// --adapters, VRNIC_DEVICES, VRNIC_ADDRESSES and VRNIC_PEER_ADDRESSES have those of all adapters.
#[derive(Clone, Debug, Parser)]
#[command(name = "scripts/lab", bin_name = "scripts/lab", before_help = MOST_USED)]
pub(crate) struct Args {
    /// Number of guests, from 1 to 16, which are named a, b, c and so on. A single guest is its own
    /// peer
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = value_parser!(u8).range(1..=i64::from(GUESTS_MAX)))]
    pub(crate) guests: u8,

    /// Number of virtual processors of each guest, from 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) cpus: u32,

    /// Number of adapters of each guest, from 1 to 4. The first adapters of all guests are in one
    /// subnet, the second ones in another, and so on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u8).range(1..=4))]
    pub(crate) adapters: u8,

    /// Memory of each guest, such as 512M or 2G. Without it, 1536M, or what a larger image needs
    #[arg(long, value_parser = mebibytes)]
    pub(crate) memory: Option<u32>,

    /// What the guests have beside Debian's minimal base. Minimal: rdma-core, perftest. Apps: also
    /// libfabric, UCX, Open MPI, NFS
    #[arg(long, value_enum, default_value_t = Image::Minimal)]
    pub(crate) image: Image,

    /// Install this Debian package, too, with all that it depends on. Can be given several times.
    /// The image with these packages is made on first use and kept
    #[arg(long = "package", value_name = "NAME")]
    pub(crate) packages: Vec<String>,

    /// Take everything from this image of scripts/image, and install and build nothing. With an
    /// address, its checksum is at the same address with .sha256 after it
    #[arg(long, value_name = "IMAGE|URL")]
    pub(crate) prebuilt: Option<String>,

    /// Run the commands in this root, instead of that of the image: an archive of docker save,
    /// podman save or OCI, an archive of files, or a folder. It is not changed
    #[arg(long, value_name = "IMAGE|FOLDER")]
    pub(crate) root: Option<PathBuf>,

    /// Start the guests from this disk, an image of the format qcow2 or raw, with a whole system
    /// that systemd starts. It is not changed. The kernel is the one of the lab or of --kernel
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["root", "image", "packages", "preload_verbs"])]
    pub(crate) disk: Option<PathBuf>,

    /// Make all programs load the system's libibverbs before any other. This is for programs that
    /// bring a libibverbs of a release that the plugin does not know
    #[arg(long)]
    pub(crate) preload_verbs: bool,

    /// Load the checker of programs that use verbs into all programs. A program in which it finds a
    /// mistake ends with 66 instead of 0. Words with commas between them may follow: hints, strict,
    /// guard. docs/checker.md lists the mistakes
    #[arg(long, value_name = "WORDS", num_args = 0..=1, default_missing_value = "")]
    #[arg(value_parser = words)]
    pub(crate) check: Option<Words>,

    /// Load this module of the stock kernel, and those that it needs. Parameters may follow, as in
    /// --module 'bonding mode=1'. Can be given several times
    #[arg(long = "module", value_name = "NAME", value_parser = stock::check)]
    pub(crate) modules: Vec<String>,

    /// Load this module, a file of this machine. One with the name vrnic replaces ours. Can be
    /// given several times
    #[arg(long = "module-file", value_name = "FILE")]
    pub(crate) module_files: Vec<PathBuf>,

    /// Boot this kernel (a bzImage) instead of the stock one. vrnic.ko must be built for it
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<PathBuf>,

    /// The protocol of the adapters
    #[arg(long, value_name = "roce|iwarp", default_value = "roce", value_parser = parse_transport)]
    pub(crate) personality: Transport,

    /// Connect the guests with a network outside, such as tap=NAME or packet=NAME, of a device
    /// that exists. docs/uplinks.md lists the settings. Can be given several times
    #[arg(long = "uplink", value_name = "SETTINGS")]
    pub(crate) uplinks: Vec<String>,

    /// Copy the contents of this folder into all guests, to /lab
    #[arg(long, value_name = "DIR")]
    pub(crate) copy: Option<PathBuf>,

    /// Run this shell command in all other guests. The command of guest a starts when each of them
    /// listens on a TCP port or by the RDMA connection manager, has ended, or after 30 s. Its
    /// status counts if it ends by itself. A single guest runs it itself
    #[arg(long, value_name = "COMMAND")]
    pub(crate) peer: Option<String>,

    /// Start the command of guest a when the output of each command of --peer has a line that
    /// matches this regular expression, whatever ports are open
    #[arg(long, value_name = "REGEX", requires = "peer")]
    pub(crate) ready: Option<Regex>,

    /// Copy the files in $VRNIC_OUTPUT of each guest into this folder, a report with logs and
    /// counters, and a summary
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Write the results to this file, as JUnit's XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// Write what guest a's adapter sends and receives to this file, for Wireshark. Those of other
    /// adapters are next to it, with the adapter's name in theirs
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,

    /// Add this rule for faults, such as 'drop-message function=a nth=3', when the commands start.
    /// Can be given several times. docs/faults.md lists the rules
    #[arg(long = "fault", value_name = "RULE", conflicts_with = "scenario")]
    pub(crate) faults: Vec<String>,

    /// Fail with status 125 if a rule of --fault has hit nothing
    #[arg(long, requires = "faults")]
    pub(crate) must_hit: bool,

    /// Run this scenario beside the commands: phases with faults, and what counters must become.
    /// Fails with status 125 if a phase does. docs/laboratory.md describes the file
    #[arg(long, value_name = "FILE", conflicts_with = "shell")]
    pub(crate) scenario: Option<PathBuf>,

    /// Fail with status 125 if the kernel of a guest reports a fault (WARNING, BUG, Oops and the
    /// like). This is the default
    #[arg(long, overrides_with = "no_fail_on_warning")]
    fail_on_warning: bool,

    /// Print faults of the guests' kernels, but do not fail because of them
    #[arg(long)]
    pub(crate) no_fail_on_warning: bool,

    /// End the command after so many seconds, from 1 to 31536000
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    #[arg(value_parser = value_parser!(u64).range(1..=TIMEOUT_MAX))]
    pub(crate) timeout: u64,

    /// Print how long the command took, and what the adapters of guest a sent and received.
    /// Refused if the guests are not under KVM, because such figures say nothing about hardware
    #[arg(long)]
    pub(crate) timing: bool,

    /// Open a shell in guest a instead of running a command. Ctrl-] leaves it and ends all guests
    #[arg(long, conflicts_with_all = ["command", "junit", "timing"])]
    pub(crate) shell: bool,

    /// Leave the guests running when the command has ended, until Ctrl-C or SIGTERM, and print how
    /// to enter them
    #[arg(long, conflicts_with = "shell")]
    pub(crate) keep: bool,

    /// Enter a guest that another scripts/lab keeps. Ctrl-] leaves it
    #[arg(long, value_name = "SOCKET", exclusive = true)]
    pub(crate) enter: Option<PathBuf>,

    /// The command of guest a. A single word is text for its shell; several words are a program and
    /// its arguments
    #[arg(last = true, required_unless_present_any = ["shell", "enter"], value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

impl Args {
    /// Returns whether the run leaves files.
    pub(crate) fn saves(&self) -> bool {
        self.output.is_some() || self.junit.is_some() || self.pcap.is_some()
    }
}

/// An image of the guests. scripts/lab sets it up and puts its path into the environment.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Image {
    /// Debian's minimal base, rdma-core and perftest.
    Minimal,
    /// Also libraries and programs that use RDMA.
    Apps,
}

/// Words of --check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words(Vec<String>);

impl Words {
    /// Returns what the checker reads as its options.
    pub(crate) fn options(&self, saves: bool) -> String {
        let mut options = vec!["fail".to_owned()];
        options.extend(self.0.iter().cloned());
        // --output keeps it.
        options.extend(saves.then(|| format!("json={OUTPUT}/checker.jsonl")));
        options.join(",")
    }
}

/// Parses the words of --check.
fn words(text: &str) -> Result<Words> {
    let words = text.split(',').filter(|word| !word.is_empty());
    let word = |word: &str| {
        let known = ["hints", "strict", "guard"].contains(&word);
        ensure!(known, "'{word}' is not a word of --check, which are hints, strict and guard");
        Ok(word.to_owned())
    };
    words.map(word).collect::<Result<_>>().map(Words)
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

    /// The scripts read these ranges, before anything is built.
    #[test]
    fn the_help_names_the_ranges_of_numbers() {
        let mut ranges = 0;
        for option in Args::command().get_arguments() {
            let about = option.get_help().map(ToString::to_string).unwrap_or_default();
            let range = about.split_once("from ").and_then(|(_, rest)| rest.split_once(" to "));
            let Some((Ok(first), rest)) = range.map(|(first, rest)| (first.parse::<u64>(), rest))
            else {
                continue;
            };
            let digits = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
            let last: u64 = rest[..digits].parse().expect("a number");
            let name = format!("--{}", option.get_long().expect("an option"));
            let takes = |number: u64| {
                Args::try_parse_from(["lab", &name, &number.to_string(), "--", "true"]).is_ok()
            };
            assert!(takes(first) && takes(last), "{name} does not take {first} or {last}");
            assert!(
                !takes(first - 1) && !takes(last + 1),
                "{name} takes more than {first} to {last}"
            );
            ranges += 1;
        }
        assert_eq!(ranges, 4);
    }

    #[test]
    fn the_last_word_about_warnings_counts() {
        let parse = |options: &[&str]| {
            Args::parse_from([&["lab"], options, &["--", "true"]].concat()).no_fail_on_warning
        };
        assert!(!parse(&[]));
        assert!(parse(&["--no-fail-on-warning"]));
        assert!(!parse(&["--no-fail-on-warning", "--fail-on-warning"]));
    }

    #[test]
    fn a_timeout_is_a_time() {
        let parse = |seconds: &str| {
            Args::try_parse_from(["lab", "--timeout", seconds, "--", "true"]).map(|it| it.timeout)
        };
        assert_eq!(parse("1").ok(), Some(1));
        assert_eq!(parse("31536000").ok(), Some(31_536_000));
        for seconds in ["0", "31536001", "18446744073709551615", "-1"] {
            assert!(parse(seconds).is_err(), "{seconds}");
        }
    }

    #[test]
    fn the_checker_gets_the_words_that_it_knows() {
        let parse = |options: &[&str]| {
            let args = Args::try_parse_from([&["lab"], options, &["--", "true"]].concat());
            args.map(|args| args.check.map(|words| words.options(false)))
        };
        assert_eq!(parse(&[]).expect("options"), None);
        assert_eq!(parse(&["--check"]).expect("options").as_deref(), Some("fail"));
        let all = parse(&["--check", "strict,hints"]).expect("options");
        assert_eq!(all.as_deref(), Some("fail,strict,hints"));
        let error = parse(&["--check", "quick"]).expect_err("not a word").to_string();
        assert!(error.contains("'quick' is not a word of --check"), "{error}");
        assert_eq!(Words::default().options(true), "fail,json=/output/checker.jsonl");
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
