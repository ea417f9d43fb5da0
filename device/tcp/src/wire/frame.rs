//! Ethernet, VLAN and IP around a segment.

use std::net::SocketAddr;
use std::ops::Range;

use vrnic_packet::ethernet::{self, TAG_LEN};
use vrnic_packet::ip::{self, Addresses, Protocol};
use vrnic_packet::{Ethernet, Headers, MacAddr, NoRoom, Reader, Writer};

use super::options;
use super::segment::{Flags, Header, Segment};
use crate::discard::Discard;
use crate::seq::SeqNum;

/// Number of bytes for the headers in front of the data: Ethernet with a VLAN tag, IPv6, and TCP
/// with all options.
pub const HEADROOM: usize = ethernet::HEADER_LEN + TAG_LEN + ip::V6_LEN + 60;

/// Length of a TCP header without options.
pub(super) const TCP_LEN: usize = 20;

/// Addresses and settings that all frames of one direction have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The Ethernet address of the receiving station.
    pub to: MacAddr,
    /// The Ethernet address of the sending station.
    pub from: MacAddr,
    /// Priority and identifier of the VLAN, if frames are tagged (IEEE 802.1Q).
    pub vlan: Option<u16>,
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Address and port of the receiver, of the same family.
    pub destination: SocketAddr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The time to live (IPv4) or hop limit (IPv6).
    pub hop_limit: u8,
}

/// A received frame that carries a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The addresses of the segment.
    pub path: Path,
    /// The TCP segment in the frame.
    pub segment: Segment<'a>,
}

/// What the checksum of a segment covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checksum {
    /// The pseudo-header, the header and the data.
    Whole,
    /// The pseudo-header. The rest is computed when the frame is cut into segments.
    Pseudo,
}

impl<'a> Frame<'a> {
    /// Parses a frame, as [`Self::of`] does.
    ///
    /// # Errors
    /// The reason for which a frame with TCP is dropped.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Discard> {
        Headers::of(bytes).map_or(Ok(None), |headers| Self::of(bytes, &headers))
    }

    /// Parses a frame after these headers. Returns `None` if it does not carry TCP, or not the
    /// beginning of a segment. Bytes after the end of the IP packet are Ethernet padding.
    ///
    /// # Errors
    /// The reason for which a frame with TCP is dropped.
    pub fn of(bytes: &'a [u8], headers: &Headers) -> Result<Option<Self>, Discard> {
        Self::of_as(Checksum::Whole, bytes, headers)
    }

    /// Parses a frame as [`Self::of`] does, but does not look at the checksum of the segment,
    /// because it is not computed yet ([`build_joined`]).
    ///
    /// # Errors
    /// The reason for which a frame with TCP is dropped.
    pub fn of_joined(bytes: &'a [u8], headers: &Headers) -> Result<Option<Self>, Discard> {
        Self::of_as(Checksum::Pseudo, bytes, headers)
    }

    fn of_as(
        checksum: Checksum,
        bytes: &'a [u8],
        headers: &Headers,
    ) -> Result<Option<Self>, Discard> {
        if headers.protocol != Protocol::TCP || headers.is_later_fragment {
            return Ok(None);
        }
        let (packet, _) = headers.packet(bytes).ok_or(Discard::Truncated)?;
        if let Some(fault) = packet.fault {
            return Err(fault.into());
        }
        if checksum == Checksum::Whole && packet.checksum() != 0 {
            return Err(Discard::Checksum);
        }
        let (ports, segment) = parse_segment(packet.payload)?;
        let ethernet = headers.ethernet(bytes).ok_or(Discard::Truncated)?;
        let path = Path::of(&ethernet, &packet.header, ports);
        Ok(Some(Self { path, segment }))
    }
}

impl Path {
    const fn of(ethernet: &Ethernet, header: &ip::Header, [source, destination]: [u16; 2]) -> Self {
        Self {
            to: ethernet.destination,
            from: ethernet.source,
            vlan: ethernet.vlan,
            source: SocketAddr::new(header.addresses.source(), source),
            destination: SocketAddr::new(header.addresses.destination(), destination),
            traffic_class: header.traffic_class,
            hop_limit: header.hop_limit,
        }
    }

    const fn ethernet(&self) -> Ethernet {
        Ethernet { destination: self.to, source: self.from, vlan: self.vlan }
    }

    /// Returns the IP header of its packets, or `None` if the addresses are of different families.
    fn header(&self) -> Option<ip::Header> {
        let addresses = Addresses::new(self.source.ip(), self.destination.ip())?;
        let Self { traffic_class, hop_limit, .. } = *self;
        Some(ip::Header { addresses, traffic_class, hop_limit, flow_label: 0 })
    }
}

/// Parses a segment whose checksum is correct, with its ports.
fn parse_segment(bytes: &[u8]) -> Result<([u16; 2], Segment<'_>), Discard> {
    let mut reader = Reader::new(bytes);
    let ports = [reader.u16()?, reader.u16()?];
    let (seq, ack) = (SeqNum(reader.u32()?), SeqNum(reader.u32()?));
    let [offset, flags] = reader.take()?;
    let window = reader.u16()?;
    let offset = usize::from(offset >> 4) * 4;
    let flags = Flags::from_bits_retain(flags);
    let options = options::parse(bytes.get(TCP_LEN..offset).ok_or(Discard::Header)?)?;
    let payload = bytes.get(offset..).ok_or(Discard::Truncated)?;
    Ok((ports, Segment { header: Header { seq, ack, flags, window, options }, payload }))
}

/// Writes the headers of a frame in front of its data, which is the `len` bytes of `frame` from
/// [`HEADROOM`] on. IPv4 headers get the identification `id`. Returns the range of the frame.
///
/// # Errors
/// [`NoRoom`] if it does not fit into its buffer, or is too long for IP, or its addresses are of
/// different families.
pub fn build(
    path: &Path,
    id: u16,
    header: &Header,
    frame: &mut [u8],
    len: usize,
) -> Result<Range<usize>, NoRoom> {
    build_as(Checksum::Whole, path, id, header, frame, len)
}

/// Writes the headers of a frame as [`build`] does, for several segments that are sent as one. The
/// TCP checksum covers only the pseudo-header and is not complemented, because the rest depends on
/// where the frame is cut.
///
/// # Errors
/// [`NoRoom`] if it cannot be built.
pub fn build_joined(
    path: &Path,
    id: u16,
    header: &Header,
    frame: &mut [u8],
    len: usize,
) -> Result<Range<usize>, NoRoom> {
    build_as(Checksum::Pseudo, path, id, header, frame, len)
}

fn build_as(
    checksum: Checksum,
    path: &Path,
    id: u16,
    header: &Header,
    frame: &mut [u8],
    len: usize,
) -> Result<Range<usize>, NoRoom> {
    let (head, data) = frame.split_at_mut_checked(HEADROOM).ok_or(NoRoom)?;
    let data = data.get(..len).ok_or(NoRoom)?;
    let options = options::build(&header.options);
    let (tcp_len, ip) = (TCP_LEN + options.len(), path.header().ok_or(NoRoom)?);
    let mut bytes = [0; HEADROOM];
    let mut to = Writer::new(&mut bytes);
    path.ethernet().write(ip.addresses.ether_type(), &mut to)?;
    ip.write(Protocol::TCP, tcp_len + len, id, &mut to)?;
    let tcp = to.written();
    to.u16(path.source.port())?;
    to.u16(path.destination.port())?;
    to.u32(header.seq.0)?;
    to.u32(header.ack.0)?;
    // CAST: the header has at most 60 bytes, 15 words.
    to.put(&[((tcp_len / 4) as u8) << 4, header.flags.bits()])?;
    to.u16(header.window)?;
    // The checksum and the urgent pointer.
    to.put(&[0; 4])?;
    to.put(&options)?;
    let end = to.written();
    let sum = ip.pseudo(Protocol::TCP, tcp_len + len);
    let sum = match checksum {
        Checksum::Whole => sum.bytes(bytes.get(tcp..end).ok_or(NoRoom)?).bytes(data).finish(),
        Checksum::Pseudo => !sum.finish(),
    };
    bytes.get_mut(tcp + 16..tcp + 18).ok_or(NoRoom)?.copy_from_slice(&sum.to_be_bytes());
    let start = HEADROOM - end;
    head.get_mut(start..).ok_or(NoRoom)?.copy_from_slice(bytes.get(..end).ok_or(NoRoom)?);
    Ok(start..HEADROOM + len)
}
