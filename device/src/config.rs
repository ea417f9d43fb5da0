//! Settings, from the file and the command line.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use vrnic_abi::pci::MSIX_VECTORS;
use vrnic_adapter::limits::Limits;

use crate::access::{Access, SocketGroup, SocketMode};
use crate::cli::Args;
use crate::memory::dma::MapRules;
use crate::monitor::Address;
use crate::net::mac::{MacAddr, ParseMacError};

/// Most functions of a daemon.
pub const FUNCTIONS_MAX: usize = 256;
/// Most workers.
pub const WORKERS_MAX: usize = 64;
/// Processors for each worker, when the number of workers is not set.
const CPUS_PER_WORKER: usize = 4;

/// What is wrong with the settings.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration file {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        error: std::io::Error,
    },
    /// The file is not valid.
    #[error("configuration file {path}: {error}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: Box<toml::de::Error>,
    },
    /// There is nothing to serve.
    #[error("no function is configured; give --function or --config (see --help)")]
    NoFunction,
    /// There are too many.
    #[error("{0} functions are configured; the limit is {FUNCTIONS_MAX}")]
    TooMany(usize),
    /// A name, address or path is used twice.
    #[error("function {name}: its {what} is used by another function too")]
    Shared {
        /// The function.
        name: String,
        /// Which setting.
        what: &'static str,
    },
    /// A name that cannot be used.
    #[error("function name '{0}': use 1 to 32 letters, digits, '-', '_' or '.'")]
    Name(String),
    /// An address that cannot be used.
    #[error("function {name}: {mac} is not the address of a single station")]
    GroupMac {
        /// The function.
        name: String,
        /// The address.
        mac: MacAddr,
    },
    /// A number out of range.
    #[error("{what} is {value}; it must be from {min} to {max}")]
    Range {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// A limit that there is not.
    #[error("unknown limit '{0}'; known are contexts, pd, cq, srq, qp, mr")]
    UnknownLimit(String),
    /// A limit that is no number.
    #[error("limit '{0}' is not of the form NAME=NUMBER")]
    Limit(String),
    /// Function text without a value.
    #[error("'{0}' is not of the form key=value")]
    NoValue(String),
    /// Function text with an unknown key.
    #[error("unknown key '{0}'; known are name, mac, socket, net")]
    UnknownKey(String),
    /// Function text with a key given twice.
    #[error("'{0}' is given twice")]
    Twice(String),
    /// Function text without a needed key.
    #[error("'{0}' is missing")]
    Missing(&'static str),
    /// A MAC that is none.
    #[error(transparent)]
    Mac(ParseMacError),
}

/// A function's settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionConfig {
    /// Name in logs.
    pub name: String,
    /// MAC of the port, and of the guest's NIC that goes with it.
    pub mac: MacAddr,
    /// vfio-user socket.
    pub socket: PathBuf,
    /// Ethernet socket; without it the port is always up and has no Ethernet.
    pub net: Option<PathBuf>,
}

/// When a worker without work spins, naps and sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GearConfig {
    /// Longest spin, while processors are free.
    pub spin: Duration,
    /// Length of a nap.
    pub nap: Duration,
    /// Time without work before sleep.
    pub sleep: Duration,
    /// How long a sleeping worker waits for a kick before it looks for work unasked: what a lost kick would
    /// cost. Zero for as long as it takes.
    pub look: Duration,
}

impl Default for GearConfig {
    fn default() -> Self {
        Self {
            spin: Duration::from_micros(50),
            nap: Duration::from_micros(15),
            sleep: Duration::from_micros(2000),
            look: Duration::from_millis(200),
        }
    }
}

/// All settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The functions.
    pub functions: Vec<FunctionConfig>,
    /// Log filter.
    pub log: String,
    /// Number of workers.
    pub workers: usize,
    /// MSI-X vectors of each function.
    pub vectors: u16,
    /// Their gears.
    pub gears: GearConfig,
    /// Processors of the workers.
    pub pin: Vec<usize>,
    /// How many objects each function has room for.
    pub limits: Limits,
    /// What each VMM may map.
    pub map_rules: MapRules,
    /// Where watchers are answered, if anywhere.
    pub monitor: Option<Address>,
    /// Who may connect to the sockets.
    pub access: Access,
}

/// A limit to lower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Which, as [`set_limit`] knows it.
    pub name: String,
    /// Its value.
    pub value: u32,
}

/// Lowers a limit.
fn set_limit(limits: &mut Limits, limit: &Limit) -> Result<(), ConfigError> {
    let (what, place) = match limit.name.as_str() {
        "contexts" => ("limit of contexts", &mut limits.contexts),
        "pd" => ("limit of pd", &mut limits.pd),
        "cq" => ("limit of cq", &mut limits.cq),
        "srq" => ("limit of srq", &mut limits.srq),
        "qp" => ("limit of qp", &mut limits.qp),
        "mr" => ("limit of mr", &mut limits.mr),
        _ => return Err(ConfigError::UnknownLimit(limit.name.clone())),
    };
    // A default is the most there can be.
    in_range(what, limit.value.into(), 1, (*place).into())?;
    *place = limit.value;
    Ok(())
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default, rename = "function")]
    functions: Vec<FunctionConfig>,
    log: Option<String>,
    workers: Option<usize>,
    vectors: Option<u16>,
    spin: Option<u64>,
    nap: Option<u64>,
    sleep: Option<u64>,
    look: Option<u64>,
    pin: Option<Vec<usize>>,
    #[serde(default)]
    limit: BTreeMap<String, u32>,
    guest_memory: Option<u64>,
    #[serde(default)]
    allow_any_file: bool,
    monitor: Option<Address>,
    socket_mode: Option<SocketMode>,
    socket_group: Option<SocketGroup>,
}

impl Config {
    /// Joins file and command line, and checks the result.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(args: Args) -> Result<Self, ConfigError> {
        let file = args.config.as_deref().map(read).transpose()?.unwrap_or_default();
        let defaults = GearConfig::default();
        let micros = |flag: Option<u64>, file: Option<u64>, default: Duration| {
            flag.or(file).map_or(default, Duration::from_micros)
        };
        let mut limits = Limits::default();
        let of_file = file.limit.into_iter().map(|(name, value)| Limit { name, value });
        for limit in of_file.chain(args.limits) {
            set_limit(&mut limits, &limit)?;
        }
        let mut functions = file.functions;
        functions.extend(args.functions);
        let any_file = args.allow_any_file || file.allow_any_file;
        let gib = args.guest_memory.or(file.guest_memory);
        let config = Self {
            map_rules: map_rules(functions.len(), gib, any_file)?,
            functions,
            log: args.log.or(file.log).unwrap_or_else(|| "info".to_owned()),
            workers: args.workers.or(file.workers).unwrap_or_else(default_workers),
            vectors: args.vectors.or(file.vectors).unwrap_or(MSIX_VECTORS),
            gears: GearConfig {
                spin: micros(args.spin, file.spin, defaults.spin),
                nap: micros(args.nap, file.nap, defaults.nap),
                sleep: micros(args.sleep, file.sleep, defaults.sleep),
                look: args.look.or(file.look).map_or(defaults.look, Duration::from_millis),
            },
            pin: args.pin.or(file.pin).unwrap_or_default(),
            limits,
            monitor: args.monitor.or(file.monitor),
            access: Access {
                mode: args.socket_mode.or(file.socket_mode).unwrap_or_default(),
                group: args.socket_group.or(file.socket_group),
            },
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let count = self.functions.len();
        match count {
            0 => return Err(ConfigError::NoFunction),
            1..=FUNCTIONS_MAX => {}
            _ => return Err(ConfigError::TooMany(count)),
        }
        in_range("workers", self.workers as u64, 1, WORKERS_MAX as u64)?;
        in_range("vectors", self.vectors.into(), 2, MSIX_VECTORS.into())?;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        in_range("spin", micros(self.gears.spin), 0, 1_000_000)?;
        in_range("nap", micros(self.gears.nap), 1, 1_000)?;
        in_range("sleep", micros(self.gears.sleep), 0, 10_000_000)?;
        in_range("look", micros(self.gears.look) / 1000, 0, 60_000)?;
        let (mut names, mut macs, mut paths) = (HashSet::new(), HashSet::new(), HashSet::new());
        for function in &self.functions {
            let name = &function.name;
            let shared = |what| ConfigError::Shared { name: name.clone(), what };
            let letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if !(1..=32).contains(&name.len()) || !name.chars().all(letter) {
                return Err(ConfigError::Name(name.clone()));
            }
            if function.mac.is_group() || function.mac.is_zero() {
                return Err(ConfigError::GroupMac { name: name.clone(), mac: function.mac });
            }
            if !names.insert(name) {
                return Err(shared("name"));
            }
            if !macs.insert(function.mac) {
                return Err(shared("MAC"));
            }
            if !paths.insert(&function.socket) {
                return Err(shared("vfio-user socket"));
            }
            if function.net.as_ref().is_some_and(|net| !paths.insert(net)) {
                return Err(shared("Ethernet socket"));
            }
        }
        Ok(())
    }
}

/// What each of so many functions may map.
fn map_rules(functions: usize, gib: Option<u64>, any_file: bool) -> Result<MapRules, ConfigError> {
    let mut rules = MapRules { any_file, ..MapRules::share(functions) };
    if let Some(gib) = gib {
        in_range("guest-memory", gib, 1, MapRules::most(functions) >> 30)?;
        rules.bytes = gib << 30;
    }
    Ok(rules)
}

fn in_range(what: &'static str, value: u64, min: u64, max: u64) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::Range { what, value, min, max })
    }
}

fn default_workers() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cpus / CPUS_PER_WORKER).clamp(1, WORKERS_MAX)
}

fn read(path: &Path) -> Result<File, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
    toml::from_str(&text)
        .map_err(|error| ConfigError::Parse { path: path.to_owned(), error: Box::new(error) })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn config(args: &[&str]) -> Result<Config, ConfigError> {
        Config::new(Args::try_parse_from([&["vrnicd"], args].concat()).expect("arguments"))
    }

    #[test]
    fn command_line_overrides_the_file_and_adds_functions() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("c.toml");
        let text = "log = 'debug'\nworkers = 3\nnap = 20\nallow-any-file = true\nsocket-mode = '0600'\nsocket-group = '7'\npin = [1, 2]\n[limit]\nqp = 9\npd = 8\n[[function]]\nname = 'a'\n\
                    mac = '52:54:00:00:00:0a'\nsocket = '/run/a.sock'\n";
        std::fs::write(&path, text).expect("write");
        let path = path.to_str().expect("text");
        let function = "name=b,mac=52:54:00:00:00:0b,socket=/run/b.sock,net=/run/b.net";
        let config = config(&[
            "--config",
            path,
            "--workers",
            "2",
            "--function",
            function,
            "--limit",
            "qp=7",
            "--socket-mode",
            "0606",
            "--guest-memory",
            "9",
        ])
        .expect("valid");
        assert_eq!((config.workers, config.log.as_str()), (2, "debug"));
        assert_eq!(config.gears.nap, Duration::from_micros(20));
        assert_eq!(config.pin, [1, 2]);
        assert_eq!((config.limits.qp, config.limits.pd), (7, 8));
        let access = Access { mode: SocketMode(0o606), group: Some(SocketGroup(7)) };
        assert_eq!(config.access, access);
        assert_eq!(config.limits.cq, Limits::default().cq);
        let rules = MapRules { bytes: 9 << 30, any_file: true, ..MapRules::share(2) };
        assert_eq!(config.map_rules, rules);
        let names: Vec<_> =
            config.functions.iter().map(|function| function.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn faults_name_what_and_where() {
        let a = "name=a,mac=52:54:00:00:00:0a,socket=/a";
        for (args, part) in [
            (vec![], "no function"),
            (vec!["-f", a, "-f", "name=a,mac=52:54:00:00:00:0b,socket=/b"], "name"),
            (vec!["-f", a, "-f", "name=b,mac=52:54:00:00:00:0a,socket=/b"], "MAC"),
            (vec!["-f", a, "-f", "name=b,mac=52:54:00:00:00:0b,socket=/b,net=/a"], "Ethernet"),
            (vec!["-f", "name=a b,mac=52:54:00:00:00:0a,socket=/a"], "a b"),
            (vec!["-f", "name=a,mac=ff:ff:ff:ff:ff:ff,socket=/a"], "single station"),
            (vec!["-f", a, "--workers", "0"], "workers"),
            (vec!["-f", a, "--vectors", "1"], "vectors"),
            (vec!["-f", a, "--nap", "0"], "nap"),
            (vec!["-f", a, "--guest-memory", "65537"], "guest-memory"),
            (vec!["-f", a, "--limit", "qp=0"], "limit of qp"),
            (vec!["-f", a, "--limit", "qp=32769"], "limit of qp"),
            (vec!["-f", a, "--limit", "cats=9"], "cats"),
            (vec!["--config", "/nonexistent/c.toml"], "/nonexistent/c.toml"),
        ] {
            let error = config(&args).expect_err("a fault").to_string();
            assert!(error.contains(part), "{args:?}: {error}");
        }
    }

    #[test]
    fn unknown_settings_in_the_file_are_refused() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("c.toml");
        std::fs::write(&path, "wokers = 3\n").expect("write");
        let error = config(&["-c", path.to_str().expect("text")]).expect_err("a fault");
        assert!(error.to_string().contains("wokers"), "{error}");
    }
}
