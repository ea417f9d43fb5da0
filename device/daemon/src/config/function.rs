//! The settings of a function.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vrnic_abi::admin::Transport;
use vrnic_adapter::limits::Limits;
use vrnic_adapter::objects::pace::Ceilings;
use vrnic_packet::MacAddr;

use super::amount::{self, Amount};
use super::error::ConfigError;
use super::fields::Fields;
use super::share::{Claim, PART_FORM, Part, WEIGHT_FORM, Weight};
use super::vlans::VlanSetting;
use crate::net::source::SourceCheck;
use crate::net::storm::StormLimit;
use crate::resources::assignment::Assignment;
use crate::resources::table::Row;

/// The names of the protocols, for messages.
const TRANSPORTS: &str = "roce or iwarp";

/// A function's settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionConfig {
    /// Name in logs.
    pub name: String,
    /// MAC address of the port, and of the guest's NIC that is paired with it.
    pub mac: MacAddr,
    /// vfio-user socket.
    pub socket: PathBuf,
    /// Ethernet socket. Without it the port is always up and has no network card.
    pub net: Option<PathBuf>,
    /// The protocol of its RDMA device.
    #[serde(default, with = "by_name")]
    pub personality: Transport,
    /// The source addresses with which its guest may send frames, beside the addresses above and
    /// below.
    #[serde(default)]
    pub source: SourceCheck,
    /// More addresses of its guest, which no other guest can use.
    #[serde(default)]
    pub addresses: Vec<MacAddr>,
    /// Maximum number of frames per second to groups and unknown addresses.
    #[serde(default)]
    pub storm: StormLimit,
    /// Its VLANs.
    #[serde(default, rename = "vlan")]
    pub vlans: VlanSetting,
    /// Bits of messages that its send queues begin in a second.
    pub rate: Option<Amount>,
    /// Messages that its send queues begin in a second.
    pub ops: Option<Amount>,
    /// Its weight in the workers' time.
    #[serde(default)]
    pub weight: Weight,
    /// The part of the workers' time that it has at least whenever it has work.
    pub floor: Option<Part>,
    /// The amounts of resources that are lower than the limits of the daemon.
    #[serde(default, skip_serializing_if = "Assignment::is_empty")]
    pub resources: Assignment,
}

impl FunctionConfig {
    /// The names of the settings.
    pub const KEYS: [&str; 14] = [
        "name",
        "mac",
        "socket",
        "net",
        "personality",
        "source",
        "addresses",
        "storm",
        "vlan",
        "rate",
        "ops",
        "weight",
        "floor",
        "resources",
    ];

    /// Returns its ceilings.
    #[must_use]
    pub fn ceilings(&self) -> Ceilings {
        let bytes = self.rate.map(|rate| rate.0.get().div_ceil(8)).and_then(NonZeroU64::new);
        Ceilings { bytes, messages: self.ops.map(|ops| ops.0) }
    }

    /// Returns its claim to the workers' time.
    #[must_use]
    pub const fn claim(&self) -> Claim {
        Claim { weight: self.weight, floor: self.floor }
    }

    /// Returns its row in the table of resources: the maxima `most`, lowered to its own.
    ///
    /// # Errors
    /// [`ConfigError::Function`] if one of its own is not valid.
    pub fn row(&self, most: &Limits) -> Result<Row, ConfigError> {
        let name = || self.name.clone();
        let maximum = self.resources.lower(most);
        let maximum = maximum.map_err(|error| ConfigError::Function { name: name(), error })?;
        Ok(Row { name: name(), mac: self.mac, maximum })
    }
}

/// Returns the addresses in a text of the form `MAC+MAC`.
fn addresses(text: &str) -> Result<Vec<MacAddr>, ConfigError> {
    text.split('+').map(|mac| mac.parse().map_err(ConfigError::Mac)).collect()
}

/// Serialises a protocol as its name.
mod by_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::{ConfigError, TRANSPORTS, Transport};

    pub(super) fn serialize<S: Serializer>(value: &Transport, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(value.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Transport, D::Error> {
        let name = String::deserialize(from)?;
        let found = Transport::from_name(&name);
        let (object, key, form) = ("function", "personality", TRANSPORTS);
        let wrong = ConfigError::Value { object, key, value: name, form };
        found.ok_or_else(|| D::Error::custom(wrong))
    }
}

impl FromStr for FunctionConfig {
    type Err = ConfigError;

    /// Parses
    /// `name=a,mac=…,socket=…,net=…,personality=…,source=…,addresses=…,storm=…,vlan=…,rate=…,ops=…,
    /// weight=…,floor=…,resources=…`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let fields = Fields::parse("function", &Self::KEYS, text)?;
        let personality =
            fields.read("personality", TRANSPORTS, |name| Transport::from_name(name).ok_or(()));
        let source = fields.read("source", "own, strict or nested", str::parse);
        Ok(Self {
            name: fields.need("name")?.to_owned(),
            mac: fields.need("mac")?.parse().map_err(ConfigError::Mac)?,
            socket: fields.need("socket")?.into(),
            net: fields.get("net").map(PathBuf::from),
            personality: personality?.unwrap_or(Transport::Roce),
            source: source?.unwrap_or_default(),
            addresses: fields.get("addresses").map_or(Ok(Vec::new()), addresses)?,
            storm: fields.storm()?,
            vlans: fields.vlans()?,
            rate: fields.read("rate", amount::FORM, str::parse)?,
            ops: fields.read("ops", amount::FORM, str::parse)?,
            weight: fields.read("weight", WEIGHT_FORM, str::parse)?.unwrap_or_default(),
            floor: fields.read("floor", PART_FORM, str::parse)?,
            resources: fields.get("resources").map_or(Ok(Assignment::default()), str::parse)?,
        })
    }
}
