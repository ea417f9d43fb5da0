//! The settings of a function.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::ConfigError;
use super::fields::Fields;
use crate::net::mac::MacAddr;

/// A function's settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionConfig {
    /// Name in logs.
    pub name: String,
    /// MAC of the port, and of the guest's NIC that goes with it.
    pub mac: MacAddr,
    /// vfio-user socket.
    pub socket: PathBuf,
    /// Ethernet socket; without it the port is always up and has no netdev.
    pub net: Option<PathBuf>,
}

impl FromStr for FunctionConfig {
    type Err = ConfigError;

    /// Parses `name=a,mac=…,socket=…,net=…`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let fields = Fields::parse("function", &["name", "mac", "socket", "net"], text)?;
        Ok(Self {
            name: fields.need("name")?.to_owned(),
            mac: fields.need("mac")?.parse().map_err(ConfigError::Mac)?,
            socket: fields.need("socket")?.into(),
            net: fields.get("net").map(PathBuf::from),
        })
    }
}
