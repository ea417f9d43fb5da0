//! Settings, from the file and the command line.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use thiserror::Error;
use vrnic_abi::pci::MSIX_VECTORS;
use vrnic_adapter::limits::Limits;

use crate::access::{Access, SocketGroup, SocketMode};
use crate::memory::dma::MapRules;
use crate::net::mac::{MacAddr, ParseMacError};
use crate::socket::Address;
use crate::worker::idle::IdleConfig;

/// Most functions of a daemon.
pub const FUNCTIONS_MAX: usize = 256;
/// Most workers.
pub const WORKERS_MAX: usize = 64;
/// Processors for each worker, when the number of workers is not set.
const CPUS_PER_WORKER: usize = 4;

/// An error in the settings.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration file {path} cannot be read: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// The file is not valid.
    #[error("configuration file {path} is not valid: {error}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The place and the reason.
        error: Box<toml::de::Error>,
    },
    /// There is nothing to serve.
    #[error("no function is configured; give --function or --config (see --help)")]
    NoFunction,
    /// There are too many.
    #[error("{0} functions are configured; the limit is {FUNCTIONS_MAX}")]
    TooMany(usize),
    /// A name, address or path is used twice.
    #[error("function {name}: another function uses the same {what}")]
    Shared {
        /// The function.
        name: String,
        /// Which setting.
        what: &'static str,
    },
    /// A name that cannot be used.
    #[error("function name '{0}' is not valid; use 1 to 32 letters, digits, '-', '_' or '.'")]
    Name(String),
    /// An address that cannot be used.
    #[error("function {name}: {mac} is not a unicast MAC address")]
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
    #[error("there is no limit '{0}'; the limits are contexts, pd, cq, srq, qp and mr")]
    UnknownLimit(String),
    /// A limit that is no number.
    #[error("limit '{0}' does not have the form NAME=NUMBER")]
    Limit(String),
    /// Function text without a value.
    #[error("'{0}' does not have the form key=value")]
    NoValue(String),
    /// Function text with an unknown key.
    #[error("a function has no setting '{0}'; the settings are name, mac, socket and net")]
    UnknownKey(String),
    /// Function text with a key given twice.
    #[error("the function's setting '{0}' is given twice")]
    Twice(String),
    /// Function text without a needed key.
    #[error("the function's setting '{0}' is missing")]
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
    /// When a worker without work spins, naps and sleeps.
    pub idle: IdleConfig,
    /// Processors of the workers.
    pub pin: Vec<usize>,
    /// Number of objects that each function can have.
    pub limits: Limits,
    /// Limits for the mappings of each VMM.
    pub map_rules: MapRules,
    /// Address of the monitor, if there is one.
    pub monitor: Option<Address>,
    /// Permissions of the sockets.
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

/// The settings that a user can give, in the file or on the command line.
#[derive(Debug, Default, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Add a function: name=NAME,mac=MAC,socket=PATH,net=PATH. Repeat the option for more
    /// functions. Without net the function has no Ethernet, and its link is always up
    #[arg(short, long = "function", value_name = "SETTINGS")]
    #[serde(rename = "function")]
    functions: Vec<FunctionConfig>,

    /// Set the log level (error, warn, info, debug or trace) or a filter such as
    /// info,vrnic_adapter=debug [default: info]
    #[arg(short, long, value_name = "FILTER")]
    log: Option<String>,

    /// Number of worker threads, which execute the work requests of all functions [default: one for
    /// every 4 CPUs, at least 1]
    #[arg(short, long, value_name = "N")]
    workers: Option<usize>,

    /// Number of MSI-X vectors of each function. The first is for admin commands and asynchronous
    /// events, the others are completion vectors. In a guest with more CPUs, several share a vector
    /// [default: 65]
    #[arg(long, value_name = "N")]
    vectors: Option<u16>,

    /// Longest time for which an idle worker spins while CPUs are free, in µs [default: 50]
    #[arg(long, value_name = "US")]
    spin: Option<u64>,

    /// Length of the naps that an idle worker takes instead of spinning when all CPUs are busy, in
    /// µs [default: 15]
    #[arg(long, value_name = "US")]
    nap: Option<u64>,

    /// Time without work after which a worker sleeps until a doorbell wakes it, in µs [default:
    /// 2000]
    #[arg(long, value_name = "US")]
    sleep: Option<u64>,

    /// Time after which a sleeping worker checks for work even if no doorbell has woken it, in ms;
    /// 0 means never [default: 200]
    #[arg(long, value_name = "MS")]
    look: Option<u64>,

    /// Pin worker n to the n-th of these CPUs, for example 2,3
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    pin: Option<Vec<usize>>,

    /// Lower the number of objects that each adapter can have, to test what programs do when they
    /// run out. NAME is contexts, pd, cq, srq, qp or mr. Repeat the option for more limits
    #[arg(long = "limit", value_name = "NAME=N")]
    #[serde(rename = "limit", deserialize_with = "limits_of_file")]
    limits: Vec<Limit>,

    /// Most memory that each VMM may map for its adapter, in GiB [default: 4096; less if there are
    /// more than 16 functions, which share 64 TiB of address space]
    #[arg(long, value_name = "GIB")]
    guest_memory: Option<u64>,

    /// Accept guest memory from files on any file system, not only memfds and files on tmpfs or
    /// hugetlbfs. A slow file system then delays all guests that share a worker
    #[arg(long)]
    allow_any_file: bool,

    /// Serve state and metrics over HTTP, on a socket file or a TCP address, for example
    /// /run/vrnic/monitor.sock or 127.0.0.1:9100. There is no authentication
    #[arg(short, long, value_name = "PATH|ADDRESS:PORT")]
    monitor: Option<Address>,

    /// Permissions of all socket files. Every process that can write to a file can connect
    /// [default: 0660]
    #[arg(long, value_name = "MODE")]
    socket_mode: Option<SocketMode>,

    /// Group of all socket files, by name or number, for example the group that QEMU runs in
    /// [default: the daemon's group]
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<SocketGroup>,
}

impl Settings {
    /// Returns these settings, and those of `file` where there are none. Lists are joined, the
    /// file's first.
    fn or(self, file: Self) -> Self {
        Self {
            functions: file.functions.into_iter().chain(self.functions).collect(),
            log: self.log.or(file.log),
            workers: self.workers.or(file.workers),
            vectors: self.vectors.or(file.vectors),
            spin: self.spin.or(file.spin),
            nap: self.nap.or(file.nap),
            sleep: self.sleep.or(file.sleep),
            look: self.look.or(file.look),
            pin: self.pin.or(file.pin),
            limits: file.limits.into_iter().chain(self.limits).collect(),
            guest_memory: self.guest_memory.or(file.guest_memory),
            allow_any_file: self.allow_any_file || file.allow_any_file,
            monitor: self.monitor.or(file.monitor),
            socket_mode: self.socket_mode.or(file.socket_mode),
            socket_group: self.socket_group.or(file.socket_group),
        }
    }
}

/// Reads limits as the file has them: a table of names and numbers.
fn limits_of_file<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<Limit>, D::Error> {
    let table = BTreeMap::<String, u32>::deserialize(file)?;
    Ok(table.into_iter().map(|(name, value)| Limit { name, value }).collect())
}

impl Config {
    /// Joins the settings of the command line and those of a file, and checks the result.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(given: Settings, file: Option<&Path>) -> Result<Self, ConfigError> {
        let given = given.or(file.map(read).transpose()?.unwrap_or_default());
        let defaults = IdleConfig::default();
        let micros = |given: Option<u64>, default| given.map_or(default, Duration::from_micros);
        let mut limits = Limits::default();
        for limit in &given.limits {
            set_limit(&mut limits, limit)?;
        }
        let config = Self {
            map_rules: map_rules(given.functions.len(), given.guest_memory, given.allow_any_file)?,
            functions: given.functions,
            log: given.log.unwrap_or_else(|| "info".to_owned()),
            workers: given.workers.unwrap_or_else(default_workers),
            vectors: given.vectors.unwrap_or(MSIX_VECTORS),
            idle: IdleConfig {
                spin: micros(given.spin, defaults.spin),
                nap: micros(given.nap, defaults.nap),
                sleep: micros(given.sleep, defaults.sleep),
                look: given.look.map_or(defaults.look, Duration::from_millis),
            },
            pin: given.pin.unwrap_or_default(),
            limits,
            monitor: given.monitor,
            access: Access {
                mode: given.socket_mode.unwrap_or_default(),
                group: given.socket_group,
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
        in_range("spin", micros(self.idle.spin), 0, 1_000_000)?;
        in_range("nap", micros(self.idle.nap), 1, 1_000)?;
        in_range("sleep", micros(self.idle.sleep), 0, 10_000_000)?;
        in_range("look", micros(self.idle.look) / 1000, 0, 60_000)?;
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

impl FromStr for Limit {
    type Err = ConfigError;

    /// Parses `qp=100`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let parts = text.split_once('=').map(|(name, value)| (name.to_owned(), value.parse()));
        match parts {
            Some((name, Ok(value))) => Ok(Self { name, value }),
            _ => Err(ConfigError::Limit(text.to_owned())),
        }
    }
}

impl FromStr for FunctionConfig {
    type Err = ConfigError;

    /// Parses `name=a,mac=…,socket=…,net=…`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (mut name, mut mac, mut socket, mut net) = (None, None, None, None);
        for part in text.split(',') {
            let (key, value) =
                part.split_once('=').ok_or_else(|| ConfigError::NoValue(part.to_owned()))?;
            let slot = match key {
                "name" => &mut name,
                "mac" => &mut mac,
                "socket" => &mut socket,
                "net" => &mut net,
                _ => return Err(ConfigError::UnknownKey(key.to_owned())),
            };
            if slot.replace(value).is_some() {
                return Err(ConfigError::Twice(key.to_owned()));
            }
        }
        let need =
            |value: Option<&str>, key| value.map(str::to_owned).ok_or(ConfigError::Missing(key));
        Ok(Self {
            name: need(name, "name")?,
            mac: need(mac, "mac")?.parse().map_err(ConfigError::Mac)?,
            socket: need(socket, "socket")?.into(),
            net: net.map(PathBuf::from),
        })
    }
}

/// Returns the limits for the mappings of each of so many functions.
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

fn read(path: &Path) -> Result<Settings, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
    toml::from_str(&text)
        .map_err(|error| ConfigError::Parse { path: path.to_owned(), error: Box::new(error) })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Args;

    fn config(args: &[&str]) -> Result<Config, ConfigError> {
        let args = Args::try_parse_from([&["vrnicd"], args].concat()).expect("arguments");
        Config::new(args.settings, args.config.as_deref())
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
        assert_eq!(config.idle.nap, Duration::from_micros(20));
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
            (vec!["-f", "name=a,mac=ff:ff:ff:ff:ff:ff,socket=/a"], "unicast"),
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

    #[test]
    fn function_is_parsed() {
        let text = "name=a,mac=52:54:00:00:00:0a,socket=/run/a.sock,net=/run/a.net";
        let function: FunctionConfig = text.parse().expect("valid");
        assert_eq!(function.name, "a");
        assert_eq!(function.net, Some(PathBuf::from("/run/a.net")));
    }

    #[test]
    fn faults_of_a_function_are_named() {
        for (text, part) in [
            ("name=a,mac=52:54:00:00:00:0a", "socket"),
            ("name=a,mac=x,socket=/s", "'x'"),
            ("name=a,colour=red", "colour"),
            ("name=a,name=b", "twice"),
            ("name", "name"),
        ] {
            let error = text.parse::<FunctionConfig>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
