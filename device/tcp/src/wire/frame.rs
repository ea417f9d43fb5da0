//! Ethernet, VLAN and IP around a segment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use arrayvec::ArrayVec;
use vrnic_packet::Reader;
use vrnic_packet::checksum::Sum;

use super::options;
use super::segment::{Flags, Header, Segment};
use crate::discard::Discard;
use crate::seq::SeqNum;

/// Number of bytes for the headers in front of the data: Ethernet with a VLAN tag, IPv6, and TCP
/// with all options.
pub const HEADROOM: usize = 14 + 4 + 40 + 60;

const VLAN: [u8; 2] = [0x81, 0x00];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;
/// IPv4: "more fragments" and the offset; "do not fragment".
const FRAGMENT: u16 = 0x3fff;
const DONT_FRAGMENT: [u8; 2] = [0x40, 0x00];
const IPV4_LEN: usize = 20;
const TCP_LEN: usize = 20;

/// Addresses and settings that all frames of one direction have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The Ethernet address of the receiving station.
    pub to: [u8; 6],
    /// The Ethernet address of the sending station.
    pub from: [u8; 6],
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
    /// Its addresses.
    pub path: Path,
    /// The segment.
    pub segment: Segment<'a>,
}

/// The frame does not fit into its buffer, or is too long for IP, or its addresses are of different
/// families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// What the checksum of a segment covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checksum {
    /// The pseudo-header, the header and the data.
    Whole,
    /// The pseudo-header. Whoever cuts the segment computes the rest.
    Pseudo,
}

/// An IP header, and the payload behind it.
struct Packet<'a> {
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Parses a frame. Returns `None` if it does not carry TCP, or not the beginning of a segment.
    /// Bytes behind the end of the IP packet are Ethernet padding.
    ///
    /// # Errors
    /// The reason for which a frame with TCP is dropped.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Discard> {
        Self::parse_as(bytes, Checksum::Whole)
    }

    /// Parses a frame as [`Self::parse`] does, but does not look at the checksum of the segment,
    /// because it is not computed yet ([`build_joined`]).
    ///
    /// # Errors
    /// The reason for which a frame with TCP is dropped.
    pub fn parse_joined(bytes: &'a [u8]) -> Result<Option<Self>, Discard> {
        Self::parse_as(bytes, Checksum::Pseudo)
    }

    fn parse_as(bytes: &'a [u8], checksum: Checksum) -> Result<Option<Self>, Discard> {
        let mut reader = Reader::new(bytes);
        let (to, from) = (reader.take()?, reader.take()?);
        let mut kind = reader.take()?;
        let mut vlan = None;
        if kind == VLAN {
            vlan = Some(reader.u16()?);
            kind = reader.take()?;
        }
        let packet = match kind {
            IPV4 => parse_v4(reader.rest())?,
            IPV6 => parse_v6(reader.rest())?,
            _ => None,
        };
        let Some(packet) = packet else { return Ok(None) };
        if checksum == Checksum::Whole && packet.checksum() != 0 {
            return Err(Discard::Checksum);
        }
        let (ports, segment) = parse_segment(packet.payload)?;
        let path = Path {
            to,
            from,
            vlan,
            source: SocketAddr::new(packet.source, ports[0]),
            destination: SocketAddr::new(packet.destination, ports[1]),
            traffic_class: packet.traffic_class,
            hop_limit: packet.hop_limit,
        };
        Ok(Some(Self { path, segment }))
    }
}

impl Packet<'_> {
    /// Returns the checksum over the pseudo-header and the segment (RFC 9293, 3.1; RFC 8200, 8.1).
    fn checksum(&self) -> u16 {
        pseudo(self.source, self.destination, self.payload.len()).bytes(self.payload).finish()
    }
}

/// Returns the sum over a pseudo-header.
fn pseudo(source: IpAddr, destination: IpAddr, len: usize) -> Sum {
    let mut sum = Sum::default().plus(TCP.into());
    for address in [source, destination] {
        sum = match address {
            IpAddr::V4(address) => sum.bytes(&address.octets()),
            IpAddr::V6(address) => sum.bytes(&address.octets()),
        };
    }
    // IP packets are shorter than 2¹⁶ bytes.
    sum.plus(u16::try_from(len).unwrap_or(u16::MAX))
}

fn parse_v4(packet: &[u8]) -> Result<Option<Packet<'_>>, Discard> {
    let mut reader = Reader::new(packet);
    let [version_len, traffic_class] = reader.take()?;
    let total = usize::from(reader.u16()?);
    let _id = reader.u16()?;
    let fragment = reader.u16()? & FRAGMENT;
    let [hop_limit, protocol, _, _] = reader.take()?;
    let (source, destination) = (reader.take::<4>()?, reader.take::<4>()?);
    if protocol != TCP || fragment & 0x1fff != 0 {
        return Ok(None);
    }
    let header = packet.get(..IPV4_LEN).ok_or(Discard::Truncated)?;
    if version_len != 0x45 || Sum::default().bytes(header).finish() != 0 {
        return Err(Discard::IpHeader);
    }
    if fragment != 0 {
        return Err(Discard::Fragment);
    }
    let payload = packet.get(IPV4_LEN..total).ok_or(Discard::Truncated)?;
    let (source, destination) = (Ipv4Addr::from(source).into(), Ipv4Addr::from(destination).into());
    Ok(Some(Packet { source, destination, traffic_class, hop_limit, payload }))
}

fn parse_v6(packet: &[u8]) -> Result<Option<Packet<'_>>, Discard> {
    let mut reader = Reader::new(packet);
    let first = reader.u32()?;
    let len = usize::from(reader.u16()?);
    let [next, hop_limit] = reader.take()?;
    let (source, destination) = (reader.take::<16>()?, reader.take::<16>()?);
    if next != TCP {
        return Ok(None);
    }
    if first >> 28 != 6 {
        return Err(Discard::IpHeader);
    }
    let payload = reader.slice(len)?;
    let [traffic_class, ..] = (first << 4).to_be_bytes();
    let (source, destination) = (Ipv6Addr::from(source).into(), Ipv6Addr::from(destination).into());
    Ok(Some(Packet { source, destination, traffic_class, hop_limit, payload }))
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
/// [`NoRoom`] if it cannot be built.
pub fn build(
    path: &Path,
    id: u16,
    header: &Header,
    frame: &mut [u8],
    len: usize,
) -> Result<Range<usize>, NoRoom> {
    build_as(Checksum::Whole, (path, id, header), frame, len)
}

/// Writes the headers of a frame as [`build`] does, for several segments that are sent as one. The
/// checksum of TCP is that of the pseudo-header alone, without the complement: the rest depends on
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
    build_as(Checksum::Pseudo, (path, id, header), frame, len)
}

fn build_as(
    checksum: Checksum,
    (path, id, header): (&Path, u16, &Header),
    frame: &mut [u8],
    len: usize,
) -> Result<Range<usize>, NoRoom> {
    let (head, data) = frame.split_at_mut_checked(HEADROOM).ok_or(NoRoom)?;
    let data = data.get(..len).ok_or(NoRoom)?;
    let options = options::build(&header.options);
    let segment_len = TCP_LEN + options.len() + len;
    let mut bytes: ArrayVec<u8, HEADROOM> = ArrayVec::new();
    build_network(path, id, segment_len, &mut bytes)?;
    let tcp = bytes.len();
    put(&mut bytes, &path.source.port().to_be_bytes())?;
    put(&mut bytes, &path.destination.port().to_be_bytes())?;
    put(&mut bytes, &header.seq.0.to_be_bytes())?;
    put(&mut bytes, &header.ack.0.to_be_bytes())?;
    // CAST: the header has at most 60 bytes, 15 words.
    put(&mut bytes, &[(((TCP_LEN + options.len()) / 4) as u8) << 4, header.flags.bits()])?;
    put(&mut bytes, &header.window.to_be_bytes())?;
    put(&mut bytes, &[0; 4])?;
    put(&mut bytes, &options)?;
    let sum = pseudo(path.source.ip(), path.destination.ip(), segment_len);
    let sum = match checksum {
        Checksum::Whole => sum.bytes(bytes.get(tcp..).unwrap_or_default()).bytes(data).finish(),
        Checksum::Pseudo => !sum.finish(),
    };
    if let Some(field) = bytes.get_mut(tcp + 16..tcp + 18) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    let start = HEADROOM - bytes.len();
    head.get_mut(start..).ok_or(NoRoom)?.copy_from_slice(&bytes);
    Ok(start..HEADROOM + len)
}

fn put(to: &mut ArrayVec<u8, HEADROOM>, bytes: &[u8]) -> Result<(), NoRoom> {
    to.try_extend_from_slice(bytes).map_err(|_| NoRoom)
}

/// Writes the Ethernet and IP headers.
fn build_network(
    path: &Path,
    id: u16,
    len: usize,
    to: &mut ArrayVec<u8, HEADROOM>,
) -> Result<(), NoRoom> {
    put(to, &path.to)?;
    put(to, &path.from)?;
    if let Some(vlan) = path.vlan {
        put(to, &VLAN)?;
        put(to, &vlan.to_be_bytes())?;
    }
    match (path.source.ip(), path.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            put(to, &IPV4)?;
            let start = to.len();
            let total = u16::try_from(IPV4_LEN + len).map_err(|_| NoRoom)?;
            put(to, &[0x45, path.traffic_class])?;
            put(to, &total.to_be_bytes())?;
            put(to, &id.to_be_bytes())?;
            put(to, &DONT_FRAGMENT)?;
            put(to, &[path.hop_limit, TCP, 0, 0])?;
            put(to, &source.octets())?;
            put(to, &destination.octets())?;
            let sum = Sum::default().bytes(to.get(start..).unwrap_or_default()).finish();
            to.get_mut(start + 10..start + 12).ok_or(NoRoom)?.copy_from_slice(&sum.to_be_bytes());
            Ok(())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            put(to, &IPV6)?;
            put(to, &(6 << 28 | u32::from(path.traffic_class) << 20).to_be_bytes())?;
            put(to, &u16::try_from(len).map_err(|_| NoRoom)?.to_be_bytes())?;
            put(to, &[TCP, path.hop_limit])?;
            put(to, &source.octets())?;
            put(to, &destination.octets())
        }
        _ => Err(NoRoom),
    }
}
