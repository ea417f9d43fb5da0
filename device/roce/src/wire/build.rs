//! Building of frames: [`Layout::write`] writes the headers, the caller copies the payload after
//! them, and [`Layout::seal`] adds padding and ICRC.
//!
//! The payload is copied once, from guest memory into the frame's buffer. The ICRC is computed over
//! that copy.

use std::ops::Range;

use vrnic_packet::ip::{Header, Protocol};
use vrnic_packet::{Ethernet, NoRoom, Writer};

use super::body::Body;
use super::frame::{UDP_LEN, UDP_PORT};
use super::packet::{BTH_LEN, Head, padding};
use crate::icrc;

/// Maximum length of the headers: a tagged frame over IPv6 with an XRC header and an atomic header.
pub const HEADERS_MAX: usize = 18 + 40 + UDP_LEN + BTH_LEN + 4 + 28;
/// Maximum length of a frame, with 4096 bytes of payload.
pub const FRAME_MAX: usize = HEADERS_MAX + 4096 + icrc::LEN;

/// The path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Stations and VLAN.
    pub ethernet: Ethernet,
    /// Addresses, traffic class, hop limit, flow label.
    pub network: Header,
    /// The UDP source port, constant for a connection, so that routers keep the order of its
    /// packets.
    pub source_port: u16,
}

/// The lowest port that [`source_port`] returns.
const FIRST_PORT: u16 = 0xc000;

/// Returns the UDP port of a connection for its flow label or, if that is zero, for both QPs, as
/// Linux does (`rdma_get_udp_sport`).
#[must_use]
pub fn source_port(flow_label: u32, own: u32, peer: u32) -> u16 {
    let flow = match flow_label & 0x000f_ffff {
        0 => {
            let product = u64::from(own & 0xff_ffff) * u64::from(peer & 0xff_ffff);
            let folded = product ^ product >> 20 ^ product >> 40;
            // CAST: the value has 20 bits.
            (folded & 0x000f_ffff) as u32
        }
        flow => flow,
    };
    // CAST: the value has 14 bits.
    FIRST_PORT | ((flow & 0x3fff) ^ (flow >> 14)) as u16 & 0x3fff
}

/// The positions of a frame's parts in its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The first byte of the IP header.
    network: usize,
    /// The place of the payload in the frame.
    payload: Range<usize>,
}

impl Layout {
    /// Writes the headers of a frame with `payload` bytes at the beginning of a buffer. The lengths
    /// in IP and UDP headers are final.
    ///
    /// # Errors
    /// [`NoRoom`] if the frame does not fit into the buffer, or the transport does not have the
    /// operation.
    pub fn write(
        buffer: &mut [u8],
        path: &Path,
        head: &Head,
        body: &Body,
        payload: usize,
    ) -> Result<Self, NoRoom> {
        let network = path.ethernet.header_len();
        let udp = network + path.network.header_len();
        let (headers, transport) = buffer.split_at_mut_checked(udp + UDP_LEN).ok_or(NoRoom)?;
        let mut to = Writer::new(transport);
        head.write(body, payload, &mut to)?;
        let behind = to.written();
        let covered = behind + payload + usize::from(padding(payload));
        if transport.len() < covered + icrc::LEN {
            return Err(NoRoom);
        }
        let datagram = UDP_LEN + covered + icrc::LEN;
        let mut to = Writer::new(headers);
        path.ethernet.write(path.network.addresses.ether_type(), &mut to)?;
        // The identification has no meaning in a packet that must not be fragmented (RFC 6864). It
        // increases with the sequence number, so that the kernel can cut one long datagram into
        // these packets: the kernel writes the same identifications, and the ICRC covers them.
        // CAST: takes the lower 16 bits.
        path.network.write(Protocol::UDP, datagram, head.psn.get() as u16, &mut to)?;
        to.u16(path.source_port)?;
        to.u16(UDP_PORT)?;
        to.u16(u16::try_from(datagram).map_err(|_| NoRoom)?)?;
        // There is no UDP checksum, because the ICRC covers the same bytes.
        to.u16(0)?;
        let start = udp + UDP_LEN + behind;
        Ok(Self { network, payload: start..start + payload })
    }

    /// Returns the range to which the payload must be copied.
    #[must_use]
    pub fn payload(&self) -> Range<usize> {
        self.payload.clone()
    }

    /// Writes padding and ICRC after the payload, which has been copied. Returns the length of the
    /// frame.
    ///
    /// # Errors
    /// [`NoRoom`] if this is not the buffer that the headers were written to.
    pub fn seal(&self, buffer: &mut [u8]) -> Result<usize, NoRoom> {
        let end = self.payload.end + usize::from(padding(self.payload.len()));
        buffer.get_mut(self.payload.end..end).ok_or(NoRoom)?.fill(0);
        let covered = buffer.get(self.network..end).ok_or(NoRoom)?;
        let crc = icrc::compute(covered).ok_or(NoRoom)?.to_le_bytes();
        buffer.get_mut(end..end + icrc::LEN).ok_or(NoRoom)?.copy_from_slice(&crc);
        Ok(end + icrc::LEN)
    }
}
