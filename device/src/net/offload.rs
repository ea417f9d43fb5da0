//! Work that the host's kernel leaves to network cards: checksums and VLAN tags. Here there is no
//! card, so it is done in place.
//!
//! Formats: `struct virtio_net_hdr` (linux/virtio_net.h) in the machine's byte order, IEEE 802.1Q.

use thiserror::Error;

/// Length of the header in front of a frame.
pub const HEADER: usize = 10;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_ECN`, which goes with other types.
const GSO_ECN: u8 = 0x80;
/// Length of the two addresses of a frame, after which a VLAN tag has its place.
const ADDRESSES: usize = 12;

/// A frame that cannot be completed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Incomplete {
    /// It is several frames in one.
    #[error("it is to be cut into segments; turn segmentation offload off (ethtool -K)")]
    Segments,
    /// Its checksum is not inside of it.
    #[error("its checksum is outside of the frame")]
    Checksum,
}

/// A VLAN tag: protocol and control information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// Tag protocol identifier.
    pub tpid: u16,
    /// Priority and VLAN number.
    pub tci: u16,
}

/// Does to `frame` what its header says.
///
/// # Errors
/// See [`Incomplete`].
pub fn complete(header: [u8; HEADER], frame: &mut [u8]) -> Result<(), Incomplete> {
    let [flags, gso, _, _, _, _, start_lo, start_hi, offset_lo, offset_hi] = header;
    if gso & !GSO_ECN != 0 {
        return Err(Incomplete::Segments);
    }
    if flags & NEEDS_CHECKSUM == 0 {
        return Ok(());
    }
    let [start, offset] = [[start_lo, start_hi], [offset_lo, offset_hi]]
        .map(|bytes| u16::from_ne_bytes(bytes).into());
    let summed = frame.get_mut(start..).ok_or(Incomplete::Checksum)?;
    // The field holds the sum of the pseudo header.
    let sum = checksum(summed);
    let field = summed.get_mut(offset..).and_then(|rest| rest.first_chunk_mut());
    *field.ok_or(Incomplete::Checksum)? = sum;
    Ok(())
}

/// The internet checksum (RFC 1071); zero, which means none in UDP, becomes its other form.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let (words, last) = bytes.as_chunks::<2>();
    let words = words.iter().map(|word| u64::from(u16::from_be_bytes(*word)));
    let last = last.first().map_or(0, |byte| u64::from(*byte) << 8);
    let mut sum = words.sum::<u64>() + last;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // CAST: it has 16 bits now.
    let sum = !(sum as u16);
    if sum == 0 { [0xff; 2] } else { sum.to_be_bytes() }
}

/// Puts a VLAN tag into a frame.
pub fn insert_tag(frame: &mut Vec<u8>, tag: VlanTag) {
    if frame.len() >= ADDRESSES {
        let [a, b] = tag.tpid.to_be_bytes();
        let [c, d] = tag.tci.to_be_bytes();
        frame.splice(ADDRESSES..ADDRESSES, [a, b, c, d]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(flags: u8, gso: u8, start: u16, offset: u16) -> [u8; HEADER] {
        let mut header = [flags, gso, 0, 0, 0, 0, 0, 0, 0, 0];
        header[6..8].copy_from_slice(&start.to_ne_bytes());
        header[8..].copy_from_slice(&offset.to_ne_bytes());
        header
    }

    #[test]
    fn a_checksum_is_completed() {
        // RFC 1071, section 3: the words 0001, f203, f4f5 and f6f7 have the sum ddf2.
        let mut frame = vec![0x55, 0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7, 0, 0];
        complete(header(NEEDS_CHECKSUM, 0, 1, 8), &mut frame).expect("complete");
        assert_eq!(frame, [0x55, 0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7, 0x22, 0x0d]);
        let whole = frame.clone();
        complete(header(0, 0, 1, 8), &mut frame).expect("complete");
        assert_eq!(frame, whole, "there is nothing to do");
    }

    #[test]
    fn frames_of_segments_and_checksums_outside_are_refused() {
        let mut frame = vec![0; 20];
        assert_eq!(complete(header(0, 5, 0, 0), &mut frame), Err(Incomplete::Segments));
        for (start, offset) in [(21, 0), (0, 19), (20, 0), (u16::MAX, u16::MAX)] {
            let header = header(NEEDS_CHECKSUM, 0, start, offset);
            assert_eq!(complete(header, &mut frame), Err(Incomplete::Checksum));
        }
    }

    #[test]
    fn a_tag_follows_the_addresses() {
        let mut frame: Vec<u8> = (0..14).collect();
        insert_tag(&mut frame, VlanTag { tpid: 0x8100, tci: 0x2005 });
        assert_eq!(frame[12..], [0x81, 0, 0x20, 5, 12, 13]);
    }

    proptest! {
        #[test]
        fn any_header_is_survived(
            header in any::<[u8; HEADER]>(),
            mut frame in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let len = frame.len();
            let _result = complete(header, &mut frame);
            prop_assert_eq!(frame.len(), len);
        }
    }
}
