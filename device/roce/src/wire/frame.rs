//! Ethernet frames: distinguishes RoCE from other traffic, and parses the headers around a packet.

use vrnic_packet::ip::{self, Fault, Header, Protocol};
use vrnic_packet::{Ethernet, Reader};

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

/// A received RoCE frame whose Ethernet, IP and UDP headers have been checked.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The Ethernet header.
    pub ethernet: Ethernet,
    /// The IP header.
    pub network: Header,
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
        let Some((ethernet, ip)) = udp(bytes) else { return Ok(None) };
        let mut udp = Reader::new(ip.payload);
        let (Ok(source_port), Ok(UDP_PORT)) = (udp.u16(), udp.u16()) else { return Ok(None) };
        if let Some(fault) = ip.fault {
            return Err(fault.into());
        }
        let (length, checksum) = (usize::from(udp.u16()?), udp.u16()?);
        if length != ip.payload.len() {
            return Err(Discard::UdpLength);
        }
        // Zero means that there is none.
        if checksum != 0 && ip.checksum() != 0 {
            return Err(Discard::UdpChecksum);
        }
        let (transport, _icrc) =
            udp.rest().split_last_chunk::<{ icrc::LEN }>().ok_or(Discard::Truncated)?;
        let packet = bytes.get(ethernet.header_len()..).ok_or(Discard::Truncated)?;
        let length = ip.header_bytes.len() + ip.payload.len();
        let packet = packet.get(..length).ok_or(Discard::Truncated)?;
        Ok(Some(Self {
            ethernet,
            network: ip.header,
            network_header: ip.header_bytes,
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

/// Parses Ethernet and IP headers. Returns `None` if the frame does not carry the beginning of a
/// UDP datagram directly behind the IP header.
fn udp(bytes: &[u8]) -> Option<(Ethernet, ip::Packet<'_>)> {
    let mut from = Reader::new(bytes);
    let (ethernet, kind) = Ethernet::parse(&mut from).ok()?;
    let packet = ip::Packet::parse(kind, from.rest()).ok()??;
    let begins = packet.protocol == Protocol::UDP && !packet.is_later_fragment;
    (begins && packet.fault != Some(Fault::Version)).then_some((ethernet, packet))
}
