//! The settings of a function.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vrnic_abi::admin::Transport;
use vrnic_adapter::objects::pace::Ceilings;
use vrnic_packet::MacAddr;

use crate::assignment::Assignment;
use crate::error::SettingError;
use crate::fields::Fields;
use crate::per_second::{self, PerSecond};
use crate::share::{Claim, PART_FORM, Part, WEIGHT_FORM, Weight};
use crate::source::SourceCheck;
use crate::storm::StormLimit;
use crate::vlans::VlanSetting;

/// The names of the protocols, for messages.
const TRANSPORTS: &str = "roce or iwarp";

/// A function's settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionConfig {
    /// The name of the function, in commands and logs.
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
    /// The source addresses with which its guest may send frames, in addition to the addresses
    /// above and below.
    #[serde(default)]
    pub source: SourceCheck,
    /// More addresses of its guest, which no other guest can use.
    #[serde(default)]
    pub addresses: Vec<MacAddr>,
    /// Maximum number of frames per second to groups and unknown addresses.
    #[serde(default)]
    pub storm: StormLimit,
    /// The VLANs of the function.
    #[serde(default, rename = "vlan")]
    pub vlans: VlanSetting,
    /// Bits of messages that its send queues begin in a second.
    pub rate: Option<PerSecond>,
    /// Messages that its send queues begin in a second.
    pub ops: Option<PerSecond>,
    /// Interrupts that its event queues raise in a second.
    pub interrupts: Option<PerSecond>,
    /// The rate of the link for which its RoCE connections control their rates by DCQCN; none if
    /// they have windows.
    pub dcqcn: Option<PerSecond>,
    /// The function's weight in the workers' time.
    #[serde(default)]
    pub weight: Weight,
    /// The part of the workers' time that it has at least whenever it has work.
    pub floor: Option<Part>,
    /// True if its guest may set rules for faults of this function.
    #[serde(default, rename = "guest-faults")]
    pub guest_faults: bool,
    /// The amounts of resources that are lower than the limits of the daemon.
    #[serde(default, skip_serializing_if = "Assignment::is_empty")]
    pub resources: Assignment,
}

/// The ceilings of a function. What is absent has no ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct FunctionCeilings {
    /// Bits of messages that its send queues begin in a second.
    pub rate: Option<PerSecond>,
    /// Messages that its send queues begin in a second.
    pub ops: Option<PerSecond>,
    /// Interrupts that its event queues raise in a second.
    pub interrupts: Option<PerSecond>,
}

impl FunctionConfig {
    /// The names of the settings.
    pub const KEYS: [&str; 17] = [
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
        "interrupts",
        "dcqcn",
        "weight",
        "floor",
        "guest-faults",
        "resources",
    ];

    /// Returns the ceilings of the function.
    #[must_use]
    pub fn ceilings(&self) -> Ceilings {
        let bytes = self.rate.map(|rate| rate.0.get().div_ceil(8)).and_then(NonZeroU64::new);
        Ceilings {
            bytes,
            messages: self.ops.map(|ops| ops.0),
            interrupts: self.interrupts.map(|interrupts| interrupts.0),
        }
    }

    /// Changes the ceilings of the function.
    pub const fn limit(&mut self, ceilings: FunctionCeilings) {
        let FunctionCeilings { rate, ops, interrupts } = ceilings;
        (self.rate, self.ops, self.interrupts) = (rate, ops, interrupts);
    }

    /// Returns its claim to the workers' time.
    #[must_use]
    pub const fn claim(&self) -> Claim {
        Claim { weight: self.weight, floor: self.floor }
    }
}

/// Returns the addresses in a text of the form `MAC+MAC`.
fn addresses(text: &str) -> Result<Vec<MacAddr>, SettingError> {
    text.split('+').map(|mac| mac.parse().map_err(SettingError::Mac)).collect()
}

/// Serialises a protocol as its name.
mod by_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::{SettingError, TRANSPORTS, Transport};

    pub(crate) fn serialize<S: Serializer>(value: &Transport, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(value.name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Transport, D::Error> {
        let name = String::deserialize(from)?;
        let found = Transport::from_name(&name);
        let (object, key, form) = ("function", "personality", TRANSPORTS);
        let wrong = SettingError::Value { object, key, value: name, form };
        found.ok_or_else(|| D::Error::custom(wrong))
    }
}

impl FromStr for FunctionConfig {
    type Err = SettingError;

    /// Parses
    /// `name=a,mac=…,socket=…,net=…,personality=…,source=…,addresses=…,storm=…,vlan=…,rate=…,ops=…,
    /// interrupts=…,dcqcn=…,weight=…,floor=…,guest-faults=…,resources=…`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let fields = Fields::parse("function", &Self::KEYS, text)?;
        let personality =
            fields.read("personality", TRANSPORTS, |name| Transport::from_name(name).ok_or(()));
        let source = fields.read("source", "own, strict or nested", str::parse);
        Ok(Self {
            name: fields.need("name")?.to_owned(),
            mac: fields.need("mac")?.parse().map_err(SettingError::Mac)?,
            socket: fields.need("socket")?.into(),
            net: fields.get("net").map(PathBuf::from),
            personality: personality?.unwrap_or(Transport::Roce),
            source: source?.unwrap_or_default(),
            addresses: fields.get("addresses").map_or(Ok(Vec::new()), addresses)?,
            storm: fields.storm()?,
            vlans: fields.vlans()?,
            rate: fields.read("rate", per_second::FORM, str::parse)?,
            ops: fields.read("ops", per_second::FORM, str::parse)?,
            interrupts: fields.read("interrupts", per_second::FORM, str::parse)?,
            dcqcn: fields.read("dcqcn", per_second::FORM, str::parse)?,
            weight: fields.read("weight", WEIGHT_FORM, str::parse)?.unwrap_or_default(),
            floor: fields.read("floor", PART_FORM, str::parse)?,
            guest_faults: fields.flag("guest-faults")?,
            resources: fields.get("resources").map_or(Ok(Assignment::default()), str::parse)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_is_parsed() {
        let base = "name=a,mac=52:54:00:00:00:0a,socket=/run/a.sock,net=/run/a.net";
        let text = base;
        let function: FunctionConfig = text.parse().expect("valid");
        assert_eq!(function.name, "a");
        assert_eq!(function.net, Some(PathBuf::from("/run/a.net")));
        assert_eq!(function.personality, Transport::Roce);
        let function: FunctionConfig = format!("{text},personality=iwarp").parse().expect("valid");
        assert_eq!(function.personality, Transport::Iwarp);
        assert_eq!(function.storm, StormLimit(100_000));
        assert_eq!((function.source, function.addresses), (SourceCheck::Strict, Vec::new()));
        let text =
            format!("{text},storm=50,source=nested,addresses=52:54:00:00:01:01+52:54:00:00:01:02");
        let function: FunctionConfig = text.parse().expect("valid");
        assert_eq!(function.storm, StormLimit(50));
        assert_eq!(function.source, SourceCheck::Nested);
        let addresses = [1, 2].map(|last| MacAddr([0x52, 0x54, 0, 0, 1, last]));
        assert_eq!(function.addresses, addresses);
        let function: FunctionConfig =
            format!("{base},rate=10G,ops=500k,interrupts=20k").parse().expect("valid");
        let [bytes, messages, interrupts] = [1_250_000_000, 500_000, 20_000].map(NonZeroU64::new);
        assert_eq!(function.ceilings(), Ceilings { bytes, messages, interrupts });
        let function: FunctionConfig =
            format!("{base},weight=300,floor=20%").parse().expect("valid");
        assert_eq!((u16::from(function.weight), function.floor), (300, "20%".parse().ok()));
        assert!(!function.guest_faults, "the default");
        let function: FunctionConfig = format!("{base},guest-faults=yes").parse().expect("valid");
        assert!(function.guest_faults);
        for (vlan, text) in [("", "-"), (",vlan=5", "5"), (",vlan=7+5", "5+7")] {
            let function: FunctionConfig = format!("{base}{vlan}").parse().expect("valid");
            assert_eq!(function.vlans.text(), text);
            // The control socket carries it as JSON.
            let json = serde_json::to_string(&function).expect("JSON");
            assert_eq!(serde_json::from_str::<FunctionConfig>(&json).expect("valid"), function);
        }
    }

    #[test]
    fn faults_of_a_function_are_named() {
        for (text, part) in [
            ("name=a,mac=52:54:00:00:00:0a", "socket"),
            ("name=a,mac=x,socket=/s", "'x'"),
            ("name=a,colour=red", "no setting 'colour'; the settings are name, mac"),
            ("name=a,adresses=x", "no setting 'adresses' (did you mean 'addresses'?)"),
            ("name=a,guest_faults=yes", "did you mean 'guest-faults'?"),
            ("name=a,name=b", "twice"),
            ("name=a,mac=52:54:00:00:00:0a,socket=/s,personality=ib", "roce or iwarp"),
            ("name=a,mac=52:54:00:00:00:0a,socket=/s,storm=many", "a number of frames per second"),
            ("name=a,mac=52:54:00:00:00:0a,socket=/s,source=any", "own, strict or nested"),
            ("name=a,mac=52:54:00:00:00:0a,socket=/s,addresses=52:54:00:00:01:01+x", "'x'"),
            ("name=a,mac=52:54:00:00:00:0a,socket=/s,vlan=4095", "from 1 to 4094"),
            ("name=a,mac=52:54:00:00:00:0a,socket=/s,vlan=5+", "from 1 to 4094"),
            ("name=a,mac=52:54:00:00:00:0a,socket=/s,rate=fast", "a number above 0"),
            ("name=a,mac=52:54:00:00:00:0a,socket=/s,ops=0", "a number above 0"),
            ("name=a,mac=52:54:00:00:00:0a,socket=/s,guest-faults=on", "yes or no"),
            ("name", "name"),
        ] {
            let error = text.parse::<FunctionConfig>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
