//! Work that the host's kernel leaves to network cards: checksums and VLAN tags. The daemon does it
//! in software.
//!
//! Formats: `struct virtio_net_hdr` (linux/virtio_net.h) in the machine's byte order, IEEE 802.1Q.

use thiserror::Error;
use vrnic_adapter::ethernet;
use vrnic_packet::checksum::{of_udp, sum};

/// Length of the header in front of a frame.
pub const HEADER: usize = 10;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_TCPV4`, `VIRTIO_NET_HDR_GSO_TCPV6` and `VIRTIO_NET_HDR_GSO_UDP_L4`.
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP: u8 = 5;
/// `VIRTIO_NET_HDR_GSO_ECN`, which goes with other types.
const GSO_ECN: u8 = 0x80;
/// Length of the two addresses of a frame, after which a VLAN tag has its place.
pub(in crate::net) const ADDRESSES: usize = 12;

/// The reason for which a frame cannot be completed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Incomplete {
    /// The frame has to be cut into several frames.
    #[error(
        "it is to be cut into segments of an unknown kind; turn segmentation offload off (ethtool -K)"
    )]
    Segments,
    /// The frame has to be cut, and the checksum of its IP header is wrong. The frames would have
    /// right ones.
    #[error("it is to be cut into segments, and the checksum of its IP header is wrong")]
    Header,
    /// The checksum would be outside of the frame.
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

/// Kinds of frames that are cut into several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A UDP datagram.
    Udp,
    /// A TCP segment over IPv4.
    TcpV4,
    /// A TCP segment over IPv6.
    TcpV6,
}

/// The work that the sender of a frame has left to its receiver (`struct virtio_net_hdr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    flags: u8,
    /// Kind of the segments into which the frame is to be cut.
    gso: u8,
    header_len: u16,
    segment: u16,
    /// Offset of the first byte that the checksum covers.
    start: u16,
    /// Offset of the checksum from there.
    offset: u16,
}

impl Offload {
    /// Returns the header for a frame that is to be cut into frames with `segment` bytes of data
    /// each, and whose headers have `header_len` bytes. The checksum covers it from `start` on, and
    /// is at `offset` from there. Returns none if a number is too large for its field.
    #[must_use]
    pub fn segments(
        kind: Kind,
        start: usize,
        offset: usize,
        header_len: usize,
        segment: usize,
    ) -> Option<Self> {
        Some(Self {
            flags: NEEDS_CHECKSUM,
            gso: match kind {
                Kind::Udp => GSO_UDP,
                Kind::TcpV4 => GSO_TCPV4,
                Kind::TcpV6 => GSO_TCPV6,
            },
            header_len: u16::try_from(header_len).ok()?,
            segment: u16::try_from(segment).ok()?,
            start: u16::try_from(start).ok()?,
            offset: u16::try_from(offset).ok()?,
        })
    }

    /// Returns the number of data bytes in each segment if the frame is a UDP datagram or a segment
    /// of TCP that is to be cut.
    #[must_use]
    pub fn segment(self) -> Option<usize> {
        let kind = self.gso & !GSO_ECN;
        matches!(kind, GSO_UDP | GSO_TCPV4 | GSO_TCPV6).then_some(self.segment.into())
    }

    /// Reads a header.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; HEADER]) -> Self {
        let [flags, gso, h0, h1, s0, s1, c0, c1, o0, o1] = bytes;
        Self {
            flags,
            gso,
            header_len: u16::from_ne_bytes([h0, h1]),
            segment: u16::from_ne_bytes([s0, s1]),
            start: u16::from_ne_bytes([c0, c1]),
            offset: u16::from_ne_bytes([o0, o1]),
        }
    }

    /// Returns the bytes of the header.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER] {
        let [h0, h1] = self.header_len.to_ne_bytes();
        let [s0, s1] = self.segment.to_ne_bytes();
        let [c0, c1] = self.start.to_ne_bytes();
        let [o0, o1] = self.offset.to_ne_bytes();
        [self.flags, self.gso, h0, h1, s0, s1, c0, c1, o0, o1]
    }
}

/// Completes `frame` as its header demands.
///
/// # Errors
/// See [`Incomplete`].
pub fn complete(offload: Offload, frame: &mut [u8]) -> Result<(), Incomplete> {
    if offload.gso & !GSO_ECN != 0 {
        return Err(Incomplete::Segments);
    }
    if offload.flags & NEEDS_CHECKSUM == 0 {
        return Ok(());
    }
    let summed = frame.get_mut(offload.start.into()..).ok_or(Incomplete::Checksum)?;
    // The field holds the sum of the pseudo header.
    let checksum = of_udp(sum(summed)).to_be_bytes();
    let field = summed.get_mut(offload.offset.into()..).and_then(|rest| rest.first_chunk_mut());
    *field.ok_or(Incomplete::Checksum)? = checksum;
    Ok(())
}

/// Returns a copy of a frame with a VLAN tag. A frame that ends before its tag gets none.
#[must_use]
pub fn insert_tag(frame: &[u8], tag: VlanTag) -> ethernet::Frame {
    let Some((addresses, rest)) = frame.split_at_checked(ADDRESSES) else {
        return ethernet::Frame::copy(frame);
    };
    let (tpid, tci) = (tag.tpid.to_be_bytes(), tag.tci.to_be_bytes());
    ethernet::Frame::of_parts(&[addresses, &tpid, &tci, rest])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(flags: u8, gso: u8, start: u16, offset: u16) -> Offload {
        Offload { flags, gso, start, offset, ..Offload::default() }
    }

    /// Shows: network: checksums that the host's kernel leaves to network cards
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
        assert_eq!(complete(header(0, 3, 0, 0), &mut frame), Err(Incomplete::Segments));
        for (start, offset) in [(21, 0), (0, 19), (20, 0), (u16::MAX, u16::MAX)] {
            let header = header(NEEDS_CHECKSUM, 0, start, offset);
            assert_eq!(complete(header, &mut frame), Err(Incomplete::Checksum));
        }
    }

    #[test]
    fn a_tag_follows_the_addresses() {
        let frame: Vec<u8> = (0..14).collect();
        let tagged = insert_tag(&frame, VlanTag { tpid: 0x8100, tci: 0x2005 });
        assert_eq!(tagged.bytes()[12..], [0x81, 0, 0x20, 5, 12, 13]);
        let short = insert_tag(&frame[..11], VlanTag { tpid: 0x8100, tci: 0x2005 });
        assert_eq!(short.bytes(), &frame[..11]);
    }

    proptest! {
        #[test]
        fn any_header_is_survived(
            header in any::<[u8; HEADER]>(),
            mut frame in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let len = frame.len();
            let offload = Offload::from_bytes(header);
            prop_assert_eq!(offload.to_bytes(), header);
            let _result = complete(offload, &mut frame);
            prop_assert_eq!(frame.len(), len);
        }
    }
}
