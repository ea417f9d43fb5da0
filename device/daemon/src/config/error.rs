//! Errors in the settings.

use std::path::PathBuf;

use thiserror::Error;
use vrnic_control_api::assignment::BadAmount;
use vrnic_packet::MacAddr;

use crate::resources::refusal::Refusal;

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
    /// No function, port, control socket or file is configured.
    #[error(
        "no function and no port is configured; give --function, --port, --control or --config (see --help)"
    )]
    NoFunction,
    /// There are too many functions.
    #[error("{count} functions are configured; the limit is {limit}")]
    TooMany {
        /// The number of functions.
        count: usize,
        /// The largest number that is accepted.
        limit: usize,
    },
    /// A name, address or path is used twice.
    #[error("{object} {name}: another object uses the same {what}")]
    Shared {
        /// The kind of object that has the setting: a function, a port or an uplink.
        object: &'static str,
        /// The name of the object.
        name: String,
        /// The setting.
        what: &'static str,
    },
    /// A name that is not valid.
    #[error("{object} name '{name}' is not valid; use 1 to 32 letters, digits, '-', '_' or '.'")]
    Name {
        /// The kind of object that has the name.
        object: &'static str,
        /// The name that is not accepted.
        name: String,
    },
    /// Lanes of a port that does not exist.
    #[error("there are lanes for port {0}, but no function, port or uplink has this name")]
    NoPort(String),
    /// A port with two settings of lanes.
    #[error("port {0} has lanes twice; put all of their settings into one")]
    LanesTwice(String),
    /// An address that is not a unicast MAC address.
    #[error("function {name}: {mac} is not a unicast MAC address")]
    GroupMac {
        /// The function.
        name: String,
        /// The address.
        mac: MacAddr,
    },
    /// Floors that cannot all be kept.
    #[error("the floors of all functions together are {0} %; they must be at most 100 %")]
    Floors(u64),
    /// A number out of range.
    #[error("{what} is {value}; it must be from {min} to {max}")]
    Range {
        /// The setting.
        what: &'static str,
        /// The value of the setting.
        value: u64,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// An odd number of MiB of device memory.
    #[error("the size of the device memory is {0} MiB, but it must be an even number")]
    DeviceMemory(u64),
    /// An amount of a resource that is not valid.
    #[error(transparent)]
    Amount(#[from] BadAmount),
    /// A function whose resources are not valid.
    #[error("function {name}: {error}")]
    Function {
        /// The function.
        name: String,
        /// The reason.
        error: BadAmount,
    },
    /// A function for which there are not enough resources.
    #[error("function {name}: {error}")]
    Refused {
        /// The function.
        name: String,
        /// The reason.
        error: Refusal,
    },
    /// An error in a line of the file.
    #[error("configuration file {path} is not valid: line {line}: {error}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line.
        line: usize,
        /// The fault in the line.
        error: Box<ConfigError>,
    },
}
