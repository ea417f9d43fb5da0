//! Ethernet headers with at most one VLAN tag (IEEE 802.3, 802.1Q).

use std::hash::{Hash, Hasher};

use crate::mac::MacAddr;
use crate::reader::{NoRoom, Reader, Short, Writer};

/// Bytes of a header without a VLAN tag.
pub const HEADER_LEN: usize = 14;
/// Bytes of a VLAN tag.
pub const TAG_LEN: usize = 4;

/// The type of a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// A VLAN tag, and then the type of the payload.
    pub const VLAN: Self = Self(0x8100);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// The outer tag of a provider's network (802.1ad). Adapters have no frames with it.
    pub const SERVICE_VLAN: Self = Self(0x88a8);
}

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// The receiving station, or a group.
    pub destination: MacAddr,
    /// The sending station.
    pub source: MacAddr,
    /// Priority and identifier of the VLAN, if the frame is tagged.
    pub vlan: Option<u16>,
}

impl Ethernet {
    /// Returns the length of the header.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        header_len(self.vlan)
    }

    /// Returns the source in its VLAN.
    #[must_use]
    pub fn sender(&self) -> VlanMac {
        VlanMac::tagged(self.source, self.vlan)
    }

    /// Returns the destination in its VLAN.
    #[must_use]
    pub fn receiver(&self) -> VlanMac {
        VlanMac::tagged(self.destination, self.vlan)
    }

    /// Reads the header of a frame. Also returns the type of its payload.
    ///
    /// # Errors
    /// [`Short`] if the frame ends before the header does.
    pub fn parse(from: &mut Reader<'_>) -> Result<(Self, EtherType), Short> {
        let destination = MacAddr(from.take()?);
        let source = MacAddr(from.take()?);
        let mut kind = EtherType(from.u16()?);
        let mut vlan = None;
        if kind == EtherType::VLAN {
            vlan = Some(from.u16()?);
            kind = EtherType(from.u16()?);
        }
        Ok((Self { destination, source, vlan }, kind))
    }

    /// Writes the header of a frame with this type of payload.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn write(&self, kind: EtherType, to: &mut Writer<'_>) -> Result<(), NoRoom> {
        to.put(&self.destination.0)?;
        to.put(&self.source.0)?;
        if let Some(vlan) = self.vlan {
            to.u16(EtherType::VLAN.0)?;
            to.u16(vlan)?;
        }
        to.u16(kind.0)
    }
}

/// An address in a VLAN, or in none. Each VLAN has stations of its own (IEEE 802.1Q, 8.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanMac {
    /// The address.
    pub mac: MacAddr,
    /// The identifier of the VLAN.
    pub vlan: Option<u16>,
}

impl VlanMac {
    /// Returns the address in the VLAN of frames with this tag.
    #[must_use]
    pub fn tagged(mac: MacAddr, tag: Option<u16>) -> Self {
        Self { mac, vlan: tag.and_then(vlan_of) }
    }
}

/// Both are hashed as one number, because tables of addresses are looked up for each frame.
impl Hash for VlanMac {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f] = self.mac.0;
        let [g, h] = self.vlan.unwrap_or_default().to_be_bytes();
        state.write_u64(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
    }
}

/// Returns the length of the header of a frame with this tag, or without one.
pub(crate) const fn header_len(tag: Option<u16>) -> usize {
    if tag.is_some() { HEADER_LEN + TAG_LEN } else { HEADER_LEN }
}

/// Returns the VLAN of a frame with this tag. A tag with number 0 has only a priority, and the
/// frame is in no VLAN (IEEE 802.1Q, 6.9).
#[must_use]
pub fn vlan_of(tag: u16) -> Option<u16> {
    Some(tag & 0x0fff).filter(|number| *number != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written() {
        for vlan in [None, Some(0xe007)] {
            let header = Ethernet { destination: MacAddr([2; 6]), source: MacAddr([4; 6]), vlan };
            let mut bytes = [0; HEADER_LEN + TAG_LEN];
            let mut to = Writer::new(&mut bytes);
            assert_eq!(header.write(EtherType::IPV6, &mut to), Ok(()));
            assert_eq!(to.written(), header.header_len());
            let len = header.header_len();
            let mut from = Reader::new(&bytes[..len]);
            assert_eq!(Ethernet::parse(&mut from), Ok((header, EtherType::IPV6)));
            assert!(from.rest().is_empty());
            for cut in 0..len {
                assert_eq!(Ethernet::parse(&mut Reader::new(&bytes[..cut])), Err(Short), "{cut}");
            }
        }
    }

    #[test]
    fn a_tag_with_a_priority_alone_is_no_vlan() {
        assert_eq!(
            [vlan_of(0xe000), vlan_of(0xe007), vlan_of(0x0fff)],
            [None, Some(7), Some(4095)]
        );
    }
}
