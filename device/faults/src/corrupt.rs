//! Changes of frames.

use vrnic_roce::icrc;
use vrnic_roce::wire::Frame;
use vrnic_roce::wire::frame::UDP_LEN;

use crate::rule::Crc;

/// The byte of the base transport header that the CRC does not cover.
const UNCOVERED: usize = 4;

/// Flips a bit of a RoCE frame, behind its UDP header, that the invariant CRC covers. Returns false
/// and changes nothing if the frame is not RoCE.
pub fn corrupt(frame: &mut [u8], crc: Crc, random: u64) -> bool {
    let Ok(Some(parsed)) = Frame::parse(frame) else { return false };
    let network = parsed.ethernet.header_len();
    let transport = network + parsed.network.header_len() + UDP_LEN;
    let Some(length) = udp_length(frame, transport) else { return false };
    let Some(packet) = frame.get_mut(network..transport - UDP_LEN + length) else { return false };
    let Some((covered, stored)) = packet.split_last_chunk_mut::<{ icrc::LEN }>() else {
        return false;
    };
    let Some(bytes) = covered.get_mut(transport - network..) else { return false };
    let bits = (bytes.len() as u64 * 8).saturating_sub(8);
    if bits == 0 {
        return false;
    }
    let bit = random % bits;
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
    true
}

/// The length in the UDP header before a place.
fn udp_length(frame: &[u8], transport: usize) -> Option<usize> {
    let field = frame.get(transport.checked_sub(4)?..)?.first_chunk::<2>()?;
    Some(usize::from(u16::from_be_bytes(*field)))
}
