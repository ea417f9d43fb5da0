//! The settings of a port without a function.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::SettingError;
use crate::fields::Fields;
use crate::storm::StormLimit;
use crate::vlans::VlanSetting;

/// A port of the switch for a guest that has an ordinary network card and no adapter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// The name of the port, in commands and logs.
    pub name: String,
    /// Ethernet socket.
    pub net: PathBuf,
    /// Maximum number of frames per second to groups and unknown addresses.
    #[serde(default)]
    pub storm: StormLimit,
    /// The VLANs of the port.
    #[serde(default, rename = "vlan")]
    pub vlans: VlanSetting,
}

impl FromStr for PortConfig {
    type Err = SettingError;

    /// Parses `name=a,net=…,storm=…,vlan=…`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let fields = Fields::parse("port", &["name", "net", "storm", "vlan"], text)?;
        Ok(Self {
            name: fields.need("name")?.to_owned(),
            net: fields.need("net")?.into(),
            storm: fields.storm()?,
            vlans: fields.vlans()?,
        })
    }
}
