//! Ethernet frames: distinguishes RoCE from other traffic, and parses the headers around a packet.

use vrnic_packet::{NoRoom, Reader, Writer};

use super::network::{Network, Parsed};
use super::numbers::Qpn;
use super::opcode::Opcode;
use super::packet::Packet;
use crate::discard::Discard;
use crate::icrc;
use crate::psn::Psn;

/// The UDP port of RoCE v2, in both directions (A17).
pub const UDP_PORT: u16 = 4791;
/// Bytes of a UDP header.
pub const UDP_LEN: usize = 8;
/// Bytes of an Ethernet header without VLAN tag.
pub const ETHERNET_LEN: usize = 14;
/// Bytes of a VLAN tag.
const VLAN_LEN: usize = 4;

/// Types of Ethernet payload.
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// The receiving station, or a group.
    pub destination: Mac,
    /// The sending station.
    pub source: Mac,
    /// Priority and identifier of the VLAN, if the frame is tagged (IEEE 802.1Q).
    pub vlan: Option<u16>,
}

impl Ethernet {
    /// Returns the length of the header.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        if self.vlan.is_some() { ETHERNET_LEN + VLAN_LEN } else { ETHERNET_LEN }
    }

    /// Writes the header of a frame with this type of payload.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn write(&self, kind: u16, to: &mut Writer<'_>) -> Result<(), NoRoom> {
        to.put(&self.destination)?;
        to.put(&self.source)?;
        if let Some(vlan) = self.vlan {
            to.u16(VLAN)?;
            to.u16(vlan)?;
        }
        to.u16(kind)
    }
}

/// A received RoCE frame whose Ethernet, IP and UDP headers have been checked.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The Ethernet header.
    pub ethernet: Ethernet,
    /// The IP header.
    pub network: Network,
    /// The bytes of the IP header, for receivers of datagrams.
    pub network_header: &'a [u8],
    /// The sender's UDP port. It distributes flows over paths and has no meaning for the receiver.
    pub source_port: u16,
    /// From the IP header to the ICRC.
    packet: &'a [u8],
    /// From the base transport header to the padding.
    transport: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Parses a received frame. Returns `None` if it is not RoCE and therefore for the guest's
    /// ordinary network card. Bytes behind the end of the IP packet are Ethernet padding.
    ///
    /// # Errors
    /// The reason for which a RoCE frame is dropped. The ICRC is checked only by [`Self::packet`].
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Discard> {
        let Some((ethernet, parsed)) = ip(bytes) else { return Ok(None) };
        let mut udp = Reader::new(parsed.payload);
        let (Ok(source_port), Ok(UDP_PORT)) = (udp.u16(), udp.u16()) else { return Ok(None) };
        if let Some(fault) = parsed.fault {
            return Err(fault);
        }
        let (length, _checksum) = (usize::from(udp.u16()?), udp.u16()?);
        if length != parsed.payload.len() {
            return Err(Discard::UdpLength);
        }
        if !parsed.network.udp_checksum_is_right(parsed.payload) {
            return Err(Discard::UdpChecksum);
        }
        let (transport, _icrc) =
            udp.rest().split_last_chunk::<{ icrc::LEN }>().ok_or(Discard::Truncated)?;
        let packet = bytes.get(ethernet.header_len()..).ok_or(Discard::Truncated)?;
        let length = parsed.header.len() + parsed.payload.len();
        let packet = packet.get(..length).ok_or(Discard::Truncated)?;
        Ok(Some(Self {
            ethernet,
            network: parsed.network,
            network_header: parsed.header,
            source_port,
            packet,
            transport,
        }))
    }

    /// Returns the destination QP from the transport header without further checks, or `None` if
    /// the packet is too short.
    #[must_use]
    pub fn destination(&self) -> Option<Qpn> {
        let (_, rest) = self.transport.split_at_checked(4)?;
        rest.first_chunk().map(|bytes| Qpn::new(u32::from_be_bytes(*bytes)))
    }

    /// Returns the opcode and the sequence number from the transport header without further checks,
    /// or `None` if the opcode is unknown.
    #[must_use]
    pub fn operation(&self) -> Option<(Opcode, Psn)> {
        let opcode = Opcode::from_number(*self.transport.first()?)?;
        let (_, rest) = self.transport.split_at_checked(8)?;
        let psn = rest.first_chunk().map(|bytes| Psn::new(u32::from_be_bytes(*bytes)))?;
        Some((opcode, psn))
    }

    /// Checks the ICRC and parses the packet in the frame. This takes time in proportion to the
    /// packet's length.
    ///
    /// # Errors
    /// The reason for which the packet is dropped.
    pub fn packet(&self) -> Result<Packet<'a>, Discard> {
        if !icrc::is_right(self.packet) {
            return Err(Discard::Icrc);
        }
        Packet::parse(self.transport)
    }
}

/// Parses Ethernet and IP headers. Returns `None` if the frame does not carry UDP over IP.
fn ip(bytes: &[u8]) -> Option<(Ethernet, Parsed<'_>)> {
    let mut from = Reader::new(bytes);
    let (destination, source) = (from.take().ok()?, from.take().ok()?);
    let mut kind = from.u16().ok()?;
    let mut vlan = None;
    if kind == VLAN {
        vlan = Some(from.u16().ok()?);
        kind = from.u16().ok()?;
    }
    let parsed = match kind {
        IPV4 => Network::parse_v4(from.rest())?,
        IPV6 => Network::parse_v6(from.rest())?,
        _ => return None,
    };
    Some((Ethernet { destination, source, vlan }, parsed))
}
