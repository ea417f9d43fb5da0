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
    /// The protocol that it speaks.
    #[serde(default)]
    pub personality: Personality,
}

/// The protocol of a function's RDMA device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Personality {
    /// RoCE version 2.
    #[default]
    Roce,
    /// iWARP.
    Iwarp,
}

impl Personality {
    /// Returns its name, as settings have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Roce => "roce",
            Self::Iwarp => "iwarp",
        }
    }
}

impl FromStr for Personality {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        [Self::Roce, Self::Iwarp].into_iter().find(|known| known.name() == text).ok_or_else(|| {
            ConfigError::Value {
                object: "function",
                key: "personality",
                value: text.to_owned(),
                form: "roce or iwarp",
            }
        })
    }
}

impl FromStr for FunctionConfig {
    type Err = ConfigError;

    /// Parses `name=a,mac=…,socket=…,net=…,personality=…`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let keys = ["name", "mac", "socket", "net", "personality"];
        let fields = Fields::parse("function", &keys, text)?;
        Ok(Self {
            name: fields.need("name")?.to_owned(),
            mac: fields.need("mac")?.parse().map_err(ConfigError::Mac)?,
            socket: fields.need("socket")?.into(),
            net: fields.get("net").map(PathBuf::from),
            personality: fields.get("personality").map_or(Ok(Personality::Roce), str::parse)?,
        })
    }
}
