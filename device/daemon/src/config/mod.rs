//! Settings, from the file and the command line.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`settings`] | the settings as a user gives them |
//! | [`ethernet`] | functions, ports and uplinks, and the check that they share no names |
//! | `limit` | amounts of resources in the file, and range checks |
//! | `place` | lines of the file |
//! | [`error`] | errors |

pub mod error;
pub mod ethernet;
mod limit;
mod place;
pub mod settings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vrnic_abi::pci::MSIX_VECTORS;
use vrnic_abi::uar::{DEVICE_MEMORY_MAX, DEVICE_MEMORY_UNIT};
use vrnic_adapter::adapter::WORKERS_MAX;
use vrnic_adapter::limits::Limits;
use vrnic_adapter::limits::resource::Resource;
use vrnic_control_api::Address;
use vrnic_control_api::assignment::Assignment;

pub use self::error::ConfigError;
use self::ethernet::{Ethernet, MpaCrc};
use self::limit::in_range;
pub(crate) use self::limit::row;
pub use self::settings::Settings;
pub(crate) use self::settings::changed_at_restart;
use crate::memory::rules::MapRules;
use crate::resources::table::ResourceTable;
use crate::worker::idle::IdleConfig;
use vrnic_control::socket::access::Access;

/// Maximum number of functions of a daemon.
pub const FUNCTIONS_MAX: usize = 256;
/// Minimum number of functions for which a daemon with a control socket has room. It has room for
/// more if it was started with more.
const FUNCTION_CAPACITY_MIN: usize = 16;
/// Maximum number of units of device memory of a function.
const DEVICE_MEMORY_UNITS_MAX: u32 = (DEVICE_MEMORY_MAX / DEVICE_MEMORY_UNIT) as u32;
/// Time for which a daemon that ends waits for work requests that it has begun, if it is not set.
const DRAIN: Duration = Duration::from_secs(2);
/// Idle time after which connections of iWARP probe their peers, if it is not set, and its maximum.
/// Both are those of Linux.
const KEEPALIVE: Duration = Duration::from_secs(7200);
const KEEPALIVE_MAX: Duration = Duration::from_secs(32_767);
/// Number of CPUs for each worker, if the number of workers is not set.
const CPUS_PER_WORKER: usize = 4;

/// All settings of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Functions, ports and uplinks.
    pub ethernet: Ethernet,
    /// When messages of iWARP have CRCs.
    pub mpa_crc: MpaCrc,
    /// Idle time after which connections of iWARP probe their peers, if they do so.
    pub keepalive: Option<Duration>,
    /// The filter of log messages.
    pub log: String,
    /// Number of workers.
    pub workers: usize,
    /// MSI-X vectors of each function.
    pub vectors: u16,
    /// Times after which a worker without work spins, naps or sleeps.
    pub idle: IdleConfig,
    /// Longest time for which a daemon that ends waits for work requests that it has begun.
    pub drain: Duration,
    /// CPUs that the workers are bound to.
    pub pin: Vec<usize>,
    /// Number of objects that each function can have.
    pub limits: Limits,
    /// The amounts of resources that all functions have together.
    pub physical: BTreeMap<Resource, u64>,
    /// Limits for the mappings of each VMM.
    pub map_rules: MapRules,
    /// Maximum number of functions.
    pub room: usize,
    /// Path of the control socket, if there is one.
    pub control: Option<PathBuf>,
    /// Address of the monitor, if there is one.
    pub monitor: Option<Address>,
    /// Permissions of the sockets.
    pub access: Access,
}

/// A function that there are not enough resources for.
struct Inadmissible {
    /// The number of the function in the settings.
    function: usize,
    error: ConfigError,
}

impl Config {
    /// Combines the settings of the command line and of a file, and checks the result.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(given: Settings, file: Option<&Path>) -> Result<Self, ConfigError> {
        let given = given.or(file.map(Settings::read).transpose()?.unwrap_or_default());
        let defaults = IdleConfig::default();
        let micros = |given: Option<u64>, default| given.map_or(default, Duration::from_micros);
        let mut most = Limits::default();
        if let Some(mib) = given.device_memory {
            most.device_memory = device_memory(mib)?;
        }
        let limits = Assignment::last(&given.limits).lower(&most)?;
        let physical = Assignment::last(&given.physical);
        let physical = physical.physical(FUNCTIONS_MAX, &most_of_a_function())?;
        let min_capacity = if given.control.is_some() { FUNCTION_CAPACITY_MIN } else { 0 };
        let room = given.functions.len().max(min_capacity);
        let config = Self {
            map_rules: MapRules {
                any_file: given.allow_any_file,
                messages: given.dma_messages,
                ..map_rules(room, given.guest_memory)?
            },
            room,
            control: given.control,
            ethernet: Ethernet {
                functions: given.functions,
                ports: given.ports,
                uplinks: given.uplinks,
                lanes: given.lanes,
                fabric: given.fabric.unwrap_or_default(),
            },
            mpa_crc: given.mpa_crc.unwrap_or_default(),
            keepalive: Some(given.keepalive.map_or(KEEPALIVE, Duration::from_secs))
                .filter(|idle| !idle.is_zero()),
            log: given.log.unwrap_or_else(|| "info".to_owned()),
            workers: given.workers.unwrap_or_else(default_workers),
            vectors: given.vectors.unwrap_or(MSIX_VECTORS),
            idle: IdleConfig {
                spin: micros(given.spin, defaults.spin),
                sleep: micros(given.sleep, defaults.sleep),
                look: given.look.map_or(defaults.look, Duration::from_millis),
            },
            drain: given.drain.map_or(DRAIN, Duration::from_millis),
            pin: given.pin.unwrap_or_default(),
            limits,
            physical,
            monitor: given.monitor,
            access: Access {
                mode: given.socket_mode.unwrap_or_default(),
                group: given.socket_group,
            },
        };
        config.check()?;
        config.admit().map_err(|refused| place::in_file(file, refused.function, refused.error))?;
        Ok(config)
    }

    /// Returns the table of resources, without functions.
    #[must_use]
    pub fn resources(&self) -> ResourceTable {
        ResourceTable::new(self.room, self.limits, self.physical.clone())
    }

    /// Checks that there are enough resources for all functions.
    fn admit(&self) -> Result<(), Inadmissible> {
        let mut table = self.resources();
        for (number, settings) in self.ethernet.functions.iter().enumerate() {
            let admitted = row(settings, &self.limits).and_then(|row| {
                let refused = |error| ConfigError::Refused { name: settings.name.clone(), error };
                table.admit(row).map_err(refused)
            });
            admitted.map_err(|error| Inadmissible { function: number, error })?;
        }
        Ok(())
    }

    /// Returns the numbers of objects that each function can have, without device memory.
    fn object_limits(&self) -> Limits {
        Limits { device_memory: 0, ..self.limits }
    }

    /// Returns the limit for the memory of each VMM in bytes, if it is not the usual one.
    fn guest_memory(&self) -> Option<u64> {
        let bytes = self.map_rules.bytes;
        (bytes != MapRules::share(self.room).bytes).then_some(bytes)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let count = self.ethernet.functions.len();
        if count == 0 && self.ethernet.ports.is_empty() && self.control.is_none() {
            return Err(ConfigError::NoFunction);
        }
        if count > FUNCTIONS_MAX {
            return Err(ConfigError::TooMany { count, limit: FUNCTIONS_MAX });
        }
        in_range("workers", self.workers as u64, 1, WORKERS_MAX as u64)?;
        in_range("vectors", self.vectors.into(), 2, MSIX_VECTORS.into())?;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        in_range("spin", micros(self.idle.spin), 0, 1_000_000)?;
        in_range("sleep", micros(self.idle.sleep), 0, 10_000_000)?;
        in_range("look", micros(self.idle.look) / 1000, 0, 60_000)?;
        let idle = self.keepalive.unwrap_or_default();
        in_range("keepalive", idle.as_secs(), 0, KEEPALIVE_MAX.as_secs())?;
        // systemd kills the service after TimeoutStopSec of the unit.
        in_range("drain", u64::try_from(self.drain.as_millis()).unwrap_or(u64::MAX), 0, 60_000)?;
        self.ethernet.check()
    }
}

/// Returns the most that a function can have of each resource.
pub(crate) fn most_of_a_function() -> Limits {
    Limits { device_memory: DEVICE_MEMORY_UNITS_MAX, ..Limits::default() }
}

/// Returns the limits for the mappings of each function of a daemon with this many functions.
fn map_rules(functions: usize, gib: Option<u64>) -> Result<MapRules, ConfigError> {
    let mut rules = MapRules::share(functions);
    if let Some(gib) = gib {
        in_range("guest-memory", gib, 1, MapRules::max_bytes(functions) >> 30)?;
        rules.bytes = gib << 30;
    }
    Ok(rules)
}

/// Returns the number of units in this many MiB of device memory.
fn device_memory(mib: u64) -> Result<u32, ConfigError> {
    in_range("device-memory", mib, 0, DEVICE_MEMORY_MAX >> 20)?;
    let bytes = mib << 20;
    if !bytes.is_multiple_of(DEVICE_MEMORY_UNIT) {
        return Err(ConfigError::DeviceMemory(mib));
    }
    // CAST: the number is at most 64.
    Ok((bytes / DEVICE_MEMORY_UNIT) as u32)
}

fn default_workers() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cpus / CPUS_PER_WORKER).clamp(1, WORKERS_MAX)
}

#[cfg(test)]
mod tests;
