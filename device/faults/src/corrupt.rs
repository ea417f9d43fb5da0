//! Changes of frames.

use std::ops::Range;

use vrnic_iwarp::crc;
use vrnic_iwarp::wire::fpdu;
use vrnic_packet::checksum::Sum;
use vrnic_roce::icrc;
use vrnic_roce::wire::Frame;
use vrnic_roce::wire::frame::UDP_LEN;
use vrnic_tcp::wire::Frame as TcpFrame;

use crate::action::Crc;

/// The byte of the base transport header that the CRC does not cover.
const UNCOVERED: usize = 4;
/// Places in a TCP header: the sequence number with the acknowledgement, and the checksum.
const NUMBERS: Range<usize> = 4..12;
const CHECKSUM: Range<usize> = 16..18;

/// Flips a bit of a frame: of RoCE, after the UDP header, where the invariant CRC covers it; of
/// TCP, in the data, or in the numbers of a segment without data. Returns false and changes nothing
/// if the frame is neither.
pub fn corrupt(frame: &mut [u8], crc: Crc, random: u64) -> bool {
    corrupt_roce(frame, crc, random).or_else(|| corrupt_tcp(frame, crc, random)).is_some()
}

fn corrupt_roce(frame: &mut [u8], crc: Crc, random: u64) -> Option<()> {
    let parsed = Frame::parse(frame).ok()??;
    let network = parsed.ethernet.header_len();
    let transport = network + parsed.network.header_len() + UDP_LEN;
    let length = udp_length(frame, transport)?;
    let packet = frame.get_mut(network..transport - UDP_LEN + length)?;
    let (covered, stored) = packet.split_last_chunk_mut::<{ icrc::LEN }>()?;
    let bytes = covered.get_mut(transport - network..)?;
    let bits = (bytes.len() as u64 * 8).saturating_sub(8);
    let bit = random.checked_rem(bits)?;
    // CAST: below the length of the frame.
    let at = (bit / 8) as usize;
    let at = if at >= UNCOVERED { at + 1 } else { at };
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << (bit % 8);
    }
    if crc == Crc::Right
        && let Some(right) = icrc::compute(covered)
    {
        *stored = right.to_le_bytes();
    }
    Some(())
}

/// Returns the length in the UDP header that ends at `transport`.
fn udp_length(frame: &[u8], transport: usize) -> Option<usize> {
    let field = frame.get(transport.checked_sub(4)?..)?.first_chunk::<2>()?;
    Some(usize::from(u16::from_be_bytes(*field)))
}

fn corrupt_tcp(frame: &mut [u8], crc: Crc, random: u64) -> Option<()> {
    let segment = segment_of(frame)?;
    let segment = frame.get_mut(segment)?;
    let before = Sum::default().bytes(segment).finish();
    let header = usize::from(segment.get(NUMBERS.end)? >> 4) * 4;
    match segment.get_mut(header..)? {
        [] => flip(segment.get_mut(NUMBERS)?, random)?,
        data => match whole_fpdu(data) {
            Some((ulpdu, covered)) => {
                flip(data.get_mut(ulpdu)?, random)?;
                if crc == Crc::Right {
                    let (covered, stored) = data.split_at_mut_checked(covered)?;
                    *stored.first_chunk_mut()? = crc::octets(covered);
                }
            }
            None => flip(data, random)?,
        },
    }
    if crc != Crc::Wrong {
        // RFC 1624: the checksum changes as the sum of the bytes does.
        let after = Sum::default().bytes(segment).finish();
        let stored = segment.get_mut(CHECKSUM)?.first_chunk_mut()?;
        let sum = Sum::default().plus(!u16::from_be_bytes(*stored)).plus(before).plus(!after);
        *stored = sum.finish().to_be_bytes();
    }
    Some(())
}

/// Finds the TCP segment in a frame.
fn segment_of(frame: &[u8]) -> Option<Range<usize>> {
    let parsed = TcpFrame::parse(frame).ok()??;
    let network = if parsed.path.vlan.is_some() { 18 } else { 14 };
    let start = network + if parsed.path.source.is_ipv4() { 20 } else { 40 };
    let header = usize::from(frame.get(start + NUMBERS.end)? >> 4) * 4;
    Some(start..start + header + parsed.segment.payload.len())
}

/// Finds the first FPDU in the data of a segment, if it is whole and has no markers: its ULPDU, and
/// the number of bytes that its CRC covers.
fn whole_fpdu(data: &[u8]) -> Option<(Range<usize>, usize)> {
    let length = usize::from(u16::from_be_bytes(*data.first_chunk()?));
    let fpdu = fpdu::size(length);
    let is_whole = length > 0 && crc::is_right(data.get(..fpdu)?);
    is_whole.then_some((fpdu::LENGTH..fpdu::LENGTH + length, fpdu - crc::LEN))
}

/// Flips a bit, unless there is none.
fn flip(bytes: &mut [u8], random: u64) -> Option<()> {
    let bit = random.checked_rem(bytes.len() as u64 * 8)?;
    // CAST: below the length of the frame.
    *bytes.get_mut((bit / 8) as usize)? ^= 1 << (bit % 8);
    Some(())
}
