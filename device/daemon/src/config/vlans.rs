//! The VLANs of a function or a port as its settings name them.

use serde::{Deserialize, Serialize};
use vrnic_adapter::vlans::{NoVlanId, VlanId, Vlans};

use super::error::ConfigError;
use super::fields::Fields;

/// The setting `vlan`: a number, or a list of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct VlanSetting(Vlans);

/// What the setting is written as.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Written {
    None(()),
    One(u16),
    Several(Vec<u16>),
}

impl TryFrom<Written> for VlanSetting {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, &'static str> {
        let vlans = match written {
            Written::None(()) => Ok(Vlans::All),
            Written::One(number) => number.try_into().map(Vlans::Access),
            Written::Several(numbers) => {
                let ids: Result<_, NoVlanId> = numbers.into_iter().map(VlanId::try_from).collect();
                ids.map(Vlans::Trunk)
            }
        };
        vlans.map(Self).map_err(|NoVlanId| "the number of a VLAN is from 1 to 4094")
    }
}

impl From<VlanSetting> for Written {
    fn from(VlanSetting(vlans): VlanSetting) -> Self {
        match vlans {
            Vlans::All => Self::None(()),
            Vlans::Access(vlan) => Self::One(vlan.into()),
            Vlans::Trunk(vlans) => Self::Several(vlans.into_iter().map(u16::from).collect()),
        }
    }
}

impl From<VlanSetting> for Vlans {
    fn from(setting: VlanSetting) -> Self {
        setting.0
    }
}

impl VlanSetting {
    /// Returns the setting in a text with `vlan=N` or `vlan=N+N`, or the default.
    pub(super) fn of(object: &'static str, fields: &Fields<'_>) -> Result<Self, ConfigError> {
        let Some(text) = fields.get("vlan") else { return Ok(Self::default()) };
        let numbers: Result<Vec<u16>, _> = text.split('+').map(str::parse).collect();
        let written = numbers.map(|numbers| match *numbers {
            [number] => Written::One(number),
            _ => Written::Several(numbers),
        });
        let setting = written.ok().and_then(|written| Self::try_from(written).ok());
        setting.ok_or_else(|| ConfigError::Value {
            object,
            key: "vlan",
            value: text.to_owned(),
            form: "a number from 1 to 4094, or several with + between them",
        })
    }

    /// Returns how it is written, or `-` for all VLANs.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.0 {
            Vlans::All => "-".to_owned(),
            Vlans::Access(vlan) => u16::from(*vlan).to_string(),
            Vlans::Trunk(vlans) => {
                let numbers: Vec<String> =
                    vlans.iter().map(|vlan| u16::from(*vlan).to_string()).collect();
                numbers.join("+")
            }
        }
    }
}
