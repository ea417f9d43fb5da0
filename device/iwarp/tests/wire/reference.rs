//! A reference decoder, kept as simple as possible: it examines a whole stream of FPDUs at once.

use std::ops::RangeInclusive;

/// Removes the markers from a stream. Returns the octets between them.
fn without_markers(stream: &[u8]) -> Vec<u8> {
    let plain = stream.iter().enumerate().filter(|(at, _)| at % 512 >= 4);
    plain.map(|(_, octet)| *octet).collect()
}

/// Computes a CRC-32C bit by bit.
fn crc32c(octets: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for octet in octets {
        crc ^= u32::from(*octet);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// Returns the wire position of a plain position.
fn with_markers(plain: usize) -> usize {
    plain / 508 * 512 + 4 + plain % 508
}

/// Returns whether the markers in a range of a stream point to an FPDU, whose length field is at
/// `fpdu`.
fn markers_point(stream: &[u8], range: RangeInclusive<usize>, fpdu: usize) -> bool {
    range.filter(|at| at % 512 == 0).all(|at| {
        let pointer = usize::from(stream[at + 2]) << 8 | usize::from(stream[at + 3]);
        // A marker before the length field points to itself.
        pointer == at.saturating_sub(fpdu)
    })
}

/// Decodes a stream of FPDUs. Returns the ULPDUs, and whether an invalid FPDU ended it.
pub(crate) fn decode(stream: &[u8], markers: bool, crc: bool) -> (Vec<Vec<u8>>, bool) {
    let plain = if markers { without_markers(stream) } else { stream.to_vec() };
    let (mut found, mut at) = (Vec::new(), 0);
    while at + 2 <= plain.len() {
        let len = usize::from(plain[at]) << 8 | usize::from(plain[at + 1]);
        let end = at + (2 + len).next_multiple_of(4) + 4;
        if len < 14 {
            return (found, true);
        }
        if end > plain.len() {
            break;
        }
        let whole = if markers {
            let first = if at % 508 == 0 { with_markers(at) - 4 } else { with_markers(at) };
            let range = first..=with_markers(end - 1);
            if !markers_point(stream, range.clone(), with_markers(at)) {
                return (found, true);
            }
            &stream[range]
        } else {
            &plain[at..end]
        };
        let (covered, last) = whole.split_at(whole.len() - 4);
        if crc && crc32c(covered).to_le_bytes() != last {
            return (found, true);
        }
        found.push(plain[at + 2..at + 2 + len].to_vec());
        at = end;
    }
    (found, false)
}
