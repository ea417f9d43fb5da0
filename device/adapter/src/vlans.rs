//! The VLANs of a port (IEEE 802.1Q, 6.9 and 8.6). An adapter names the VLANs of its GIDs and
//! connections as its guest does; inside the adapter, and in its packets, they are those of the
//! network. So all its paths, also that by copy, reach the same peers as the guest's network card.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU16;

/// The number of a VLAN: 1 to 4094.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VlanId(NonZeroU16);

/// A number that no VLAN has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoVlanId;

impl fmt::Display for NoVlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number of a VLAN is from 1 to 4094")
    }
}

impl TryFrom<u16> for VlanId {
    type Error = NoVlanId;

    fn try_from(number: u16) -> Result<Self, NoVlanId> {
        NonZeroU16::new(number).filter(|number| number.get() < 0xfff).map(Self).ok_or(NoVlanId)
    }
}

impl From<VlanId> for u16 {
    fn from(vlan: VlanId) -> Self {
        vlan.0.get()
    }
}

/// The VLANs of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Vlans {
    /// All, with the tags that the guest uses.
    #[default]
    All,
    /// One, without tags in the guest.
    Access(VlanId),
    /// These, with their tags, and frames without a tag.
    Trunk(BTreeSet<VlanId>),
}

/// A VLAN in which the port is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotMember;

impl Vlans {
    /// Returns the VLAN in the network of what is in this VLAN, or in none, for the guest.
    ///
    /// # Errors
    /// [`NotMember`] if the port is not in it.
    pub fn of_guest(&self, vlan: Option<u16>) -> Result<Option<u16>, NotMember> {
        match (self, vlan) {
            (Self::Access(own), None) => Ok(Some((*own).into())),
            (Self::Access(_), Some(_)) => Err(NotMember),
            _ => self.admits(vlan).then_some(vlan).ok_or(NotMember),
        }
    }

    /// Returns the VLAN for the guest of what is in this VLAN, or in none, in the network.
    ///
    /// # Errors
    /// [`NotMember`] if the port is not in it.
    pub fn of_network(&self, vlan: Option<u16>) -> Result<Option<u16>, NotMember> {
        let for_guest = vlan.filter(|_| !matches!(self, Self::Access(_)));
        self.admits(vlan).then_some(for_guest).ok_or(NotMember)
    }

    /// Returns whether the port is in this VLAN of the network.
    #[must_use]
    pub fn admits(&self, vlan: Option<u16>) -> bool {
        match (self, vlan) {
            (Self::All, _) | (Self::Trunk(_), None) => true,
            (Self::Access(own), vlan) => vlan == Some((*own).into()),
            (Self::Trunk(all), Some(vlan)) => {
                VlanId::try_from(vlan).is_ok_and(|vlan| all.contains(&vlan))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: network
    #[test]
    fn the_guest_s_vlan_and_that_of_the_network_belong_together() {
        let id = |number: u16| VlanId::try_from(number).expect("a VLAN");
        let trunk = Vlans::Trunk([5, 7].map(id).into());
        for (vlans, guest, network) in [
            (Vlans::All, None, None),
            (Vlans::All, Some(9), Some(9)),
            (Vlans::Access(id(5)), None, Some(5)),
            (trunk.clone(), None, None),
            (trunk.clone(), Some(7), Some(7)),
        ] {
            assert_eq!(vlans.of_guest(guest), Ok(network), "{vlans:?}");
            assert_eq!(vlans.of_network(network), Ok(guest), "{vlans:?}");
        }
        assert_eq!(Vlans::Access(id(5)).of_guest(Some(5)), Err(NotMember));
        assert_eq!(Vlans::Access(id(5)).of_network(None), Err(NotMember));
        assert_eq!(Vlans::Access(id(5)).of_network(Some(6)), Err(NotMember));
        assert_eq!(trunk.of_guest(Some(6)), Err(NotMember));
        assert_eq!(trunk.of_network(Some(6)), Err(NotMember));
    }

    #[test]
    fn a_number_is_checked() {
        let check = |number| VlanId::try_from(number).map(u16::from);
        assert_eq!([1, 4094].map(check), [Ok(1), Ok(4094)]);
        assert_eq!([0, 4095, u16::MAX].map(check), [Err(NoVlanId); 3]);
    }
}
