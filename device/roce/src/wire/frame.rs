//! Ethernet frames: distinguishes RoCE from other traffic, and parses the headers around a packet.

use vrnic_packet::ip::{Fault, Header, Protocol};
use vrnic_packet::{Ethernet, Headers, Reader};

use super::numbers::Qpn;
use super::opcode::Opcode;
use super::packet::Packet;
use crate::discard::Discard;
use crate::icrc;
use crate::psn::Psn;

/// The UDP port of RoCE v2, in both directions.
pub use vrnic_packet::transport::ROCE_PORT as UDP_PORT;
/// Bytes of a UDP header.
pub use vrnic_packet::transport::UDP_LEN;

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
    /// From the UDP header to the ICRC.
    datagram: &'a [u8],
    /// The UDP checksum, or zero if there is none.
    checksum: u16,
    /// From the base transport header to the padding.
    transport: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Parses a received frame, as [`Self::of`] does.
    ///
    /// # Errors
    /// The reason for which a RoCE frame is dropped.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Discard> {
        Headers::of(bytes).map_or(Ok(None), |headers| Self::of(bytes, &headers))
    }

    /// Parses a received frame after these headers. Returns `None` if it is not RoCE and therefore
    /// for the guest's ordinary network card. Bytes behind the end of the IP packet are Ethernet
    /// padding.
    ///
    /// # Errors
    /// The reason for which a RoCE frame is dropped. The checksums are checked only by
    /// [`Self::packet`].
    pub fn of(bytes: &'a [u8], headers: &Headers) -> Result<Option<Self>, Discard> {
        if !is_roce(bytes, headers) {
            return Ok(None);
        }
        if let Some(fault) = headers.fault {
            return Err(fault.into());
        }
        let (ip, packet) = headers.packet(bytes).ok_or(Discard::Truncated)?;
        let mut udp = Reader::new(ip.payload);
        let (source_port, _destination_port) = (udp.u16()?, udp.u16()?);
        let (length, checksum) = (usize::from(udp.u16()?), udp.u16()?);
        if length != ip.payload.len() {
            return Err(Discard::UdpLength);
        }
        let (transport, _icrc) =
            udp.rest().split_last_chunk::<{ icrc::LEN }>().ok_or(Discard::Truncated)?;
        Ok(Some(Self {
            ethernet: headers.ethernet(bytes).ok_or(Discard::Truncated)?,
            network: ip.header,
            network_header: ip.header_bytes,
            source_port,
            packet,
            datagram: ip.payload,
            checksum,
            transport,
        }))
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

    /// Checks the UDP checksum and the ICRC, and parses the packet in the frame. This takes time in
    /// proportion to the packet's length.
    ///
    /// # Errors
    /// The reason for which the packet is dropped.
    pub fn packet(&self) -> Result<Packet<'a>, Discard> {
        if self.checksum != 0 && self.network.checksum(Protocol::UDP, self.datagram) != 0 {
            return Err(Discard::UdpChecksum);
        }
        if !icrc::is_right(self.packet) {
            return Err(Discard::Icrc);
        }
        self.checked_packet()
    }

    /// Parses the packet in a frame that [`Self::packet`] has checked before.
    ///
    /// # Errors
    /// The reason for which the packet is dropped.
    pub fn checked_packet(&self) -> Result<Packet<'a>, Discard> {
        Packet::parse(self.transport)
    }
}

/// Returns whether a frame after these headers is RoCE. It may have faults.
#[inline]
#[must_use]
pub fn is_roce(bytes: &[u8], headers: &Headers) -> bool {
    headers.protocol == Protocol::UDP
        && !headers.is_later_fragment
        && headers.fault != Some(Fault::Version)
        && headers.payload(bytes).get(2..4) == Some(&UDP_PORT.to_be_bytes())
}

/// Returns the destination QP of a RoCE frame after these headers, without further checks, or
/// `None` if the packet is too short.
#[inline]
#[must_use]
pub fn destination(bytes: &[u8], headers: &Headers) -> Option<Qpn> {
    let (packet, _icrc) = headers.payload(bytes).split_last_chunk::<{ icrc::LEN }>()?;
    let qpn = packet.get(UDP_LEN + 4..)?.first_chunk()?;
    Some(Qpn::new(u32::from_be_bytes(*qpn)))
}
