//! The objects of the switch that have settings: functions, ports and uplinks. No two of them share
//! a name, an address or a socket.

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;
use vrnic_control_api::share::floors;
use vrnic_control_api::{FunctionConfig, LanesConfig, PortConfig, UplinkConfig};

use super::error::ConfigError;

/// The way in which functions of one daemon reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Fabric {
    /// By copying from memory to memory.
    #[default]
    Copy,
    /// By packets, as functions of other daemons do.
    Wire,
}

/// When messages of iWARP have CRCs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum MpaCrc {
    /// Each message has a CRC.
    #[default]
    Always,
    /// If the peer asks for them.
    Asked,
}

/// Functions, ports and uplinks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ethernet {
    /// The settings of the functions.
    pub functions: Vec<FunctionConfig>,
    /// Ports without a function.
    pub ports: Vec<PortConfig>,
    /// The settings of the uplinks.
    pub uplinks: Vec<UplinkConfig>,
    /// The lanes of functions, ports and uplinks.
    pub lanes: Vec<LanesConfig>,
    /// The way in which functions reach each other.
    pub fabric: Fabric,
}

/// The names, addresses and paths that are in use.
#[derive(Default)]
struct Taken<'a> {
    names: HashSet<&'a str>,
    paths: HashSet<&'a Path>,
}

/// An object that is being checked.
#[derive(Clone, Copy)]
struct Object<'a> {
    kind: &'static str,
    name: &'a str,
}

impl Ethernet {
    /// Checks that every name and address is valid, and is used only once.
    ///
    /// # Errors
    /// Returns an error that names the object and the setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut taken = Taken::default();
        let (mut macs, mut interfaces) = (HashSet::new(), HashSet::new());
        for function in &self.functions {
            let object = Object { kind: "function", name: &function.name };
            taken.name(object)?;
            for mac in [function.mac].iter().chain(&function.addresses) {
                if mac.is_group() || mac.is_zero() {
                    let name = function.name.clone();
                    return Err(ConfigError::GroupMac { name, mac: *mac });
                }
                if !macs.insert(*mac) {
                    return Err(object.shared("MAC"));
                }
            }
            taken.path(object, &function.socket, "vfio-user socket")?;
            if let Some(net) = &function.net {
                taken.path(object, net, "Ethernet socket")?;
            }
        }
        let percent = floors(self.functions.iter().map(FunctionConfig::claim));
        if percent > 100 {
            return Err(ConfigError::Floors(percent));
        }
        for port in &self.ports {
            let object = Object { kind: "port", name: &port.name };
            taken.name(object)?;
            taken.path(object, &port.net, "Ethernet socket")?;
        }
        for uplink in &self.uplinks {
            let object = Object { kind: "uplink", name: &uplink.name };
            taken.name(object)?;
            if let Some(socket) = uplink.way.own_socket() {
                taken.path(object, socket, "socket")?;
            }
            if uplink.way.interface().is_some_and(|name| !interfaces.insert(name)) {
                return Err(object.shared("interface"));
            }
        }
        let mut laned = HashSet::new();
        for lanes in &self.lanes {
            if !taken.names.contains(lanes.port()) {
                return Err(ConfigError::NoPort(lanes.port().to_owned()));
            }
            if !laned.insert(lanes.port()) {
                return Err(ConfigError::LanesTwice(lanes.port().to_owned()));
            }
        }
        Ok(())
    }
}

impl<'a> Taken<'a> {
    fn name(&mut self, object: Object<'a>) -> Result<(), ConfigError> {
        let letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let Object { kind, name } = object;
        if !(1..=32).contains(&name.len()) || !name.chars().all(letter) {
            return Err(ConfigError::Name { object: kind, name: name.to_owned() });
        }
        if self.names.insert(name) { Ok(()) } else { Err(object.shared("name")) }
    }

    fn path(
        &mut self,
        object: Object<'_>,
        path: &'a Path,
        what: &'static str,
    ) -> Result<(), ConfigError> {
        if self.paths.insert(path) { Ok(()) } else { Err(object.shared(what)) }
    }
}

impl Object<'_> {
    fn shared(self, what: &'static str) -> ConfigError {
        ConfigError::Shared { object: self.kind, name: self.name.to_owned(), what }
    }
}
