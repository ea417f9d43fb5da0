//! The VLANs of a function or a port as its settings name them.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vrnic_adapter::vlans::{NoVlanId, VlanId, Vlans};

/// The setting `vlan`: a number, or a list of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct VlanSetting(Vlans);

/// The written form of the setting.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Written {
    None(()),
    One(u16),
    Several(Vec<u16>),
}

impl TryFrom<Written> for VlanSetting {
    type Error = NoVlanId;

    fn try_from(written: Written) -> Result<Self, NoVlanId> {
        let vlans = match written {
            Written::None(()) => Ok(Vlans::All),
            Written::One(number) => number.try_into().map(Vlans::Access),
            Written::Several(numbers) => {
                let ids: Result<_, NoVlanId> = numbers.into_iter().map(VlanId::try_from).collect();
                ids.map(Vlans::Trunk)
            }
        };
        vlans.map(Self)
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

impl FromStr for VlanSetting {
    type Err = NoVlanId;

    /// Parses a number, or several with `+` between them.
    fn from_str(text: &str) -> Result<Self, NoVlanId> {
        let numbers: Result<Vec<u16>, _> = text.split('+').map(str::parse).collect();
        let numbers = numbers.map_err(|_| NoVlanId)?;
        Self::try_from(match *numbers {
            [number] => Written::One(number),
            _ => Written::Several(numbers),
        })
    }
}

impl VlanSetting {
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
