//! Frames of random bytes, and what is true of each of them.

use vrnic_packet::headers::Headers;
use vrnic_packet::offload;
use vrnic_packet::segments::cut::cut;
use vrnic_packet::segments::headers::SegmentHeaders;

/// Returns some of the bytes as a frame.
pub(crate) fn random(bytes: &[u8]) -> &[u8] {
    let len = bytes.first().map_or(0, |first| usize::from(*first) % bytes.len());
    &bytes[..len]
}

/// Makes what random bytes seldom are: a tag or none, IPv4 or IPv6 with a right checksum, and often
/// UDP or TCP without options.
pub(crate) fn likely(bytes: &[u8]) -> Vec<u8> {
    let mut frame = random(bytes).to_vec();
    let choice = bytes.last().copied().unwrap_or_default();
    let mut at = 12;
    let mut kind = |frame: &mut Vec<u8>, value: [u8; 2], len: usize| {
        if let Some(place) = frame.get_mut(at..at + 2) {
            place.copy_from_slice(&value);
        }
        at += len;
    };
    if choice & 1 != 0 {
        kind(&mut frame, [0x81, 0], 4);
    }
    let protocol = if choice & 4 == 0 { 17 } else { 6 };
    if choice & 2 != 0 {
        kind(&mut frame, [0x86, 0xdd], 2);
        if let Some(header) = frame.get_mut(at..at + 40) {
            header[0] = 0x60 | header[0] & 0x0f;
            header[6] = if choice & 8 != 0 { protocol } else { header[6] };
            at += 40;
        }
    } else {
        kind(&mut frame, [8, 0], 2);
        if let Some(header) = frame.get_mut(at..at + 20) {
            (header[0], header[2]) = (0x45 + (choice >> 6), 0);
            if choice & 8 != 0 {
                (header[6], header[7], header[9]) = (0x40, 0, protocol);
            }
            header[10..12].fill(0);
            let sum = vrnic_packet::checksum::Sum::default().bytes(header).finish();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            at += 20;
        }
    }
    if choice & 16 != 0
        && let Some(length) = frame.get_mut(at + 12)
    {
        *length = 0x50;
    }
    frame
}

/// Compares all ways to read the headers of a frame, and of a frame that is cut shorter afterwards.
/// Returns whether the frame has headers without a fault.
pub(crate) fn has_headers(frame: &[u8]) -> bool {
    let Some(headers) = Headers::of(frame) else { return false };
    assert!(headers.payload_range().end <= frame.len());
    assert_eq!(headers.header_range().end, headers.payload_range().start);
    assert_eq!(headers.payload(frame), &frame[headers.payload_range()]);
    let (packet, bytes) = headers.packet(frame).expect("its own frame");
    assert_eq!(packet.payload, headers.payload(frame));
    assert_eq!(packet.header_bytes.len() + packet.payload.len(), bytes.len());
    assert_eq!(Some(packet.header), headers.network(frame));
    assert!(headers.ethernet(frame).is_some() && headers.fragment_flags(frame).is_some());
    let _checksum = packet.checksum();
    for end in [0, 13, headers.header_range().start, headers.payload_range().start] {
        let short = &frame[..end.min(frame.len())];
        let _parts = (headers.packet(short), headers.network(short), headers.behind(short));
        assert!(!headers.is_whole(&short[..end.min(14)]));
    }
    packet.fault.is_none()
}

/// Cuts a frame into frames with so many bytes of data. Returns whether it became several.
pub(crate) fn is_cut(frame: &[u8], segment: usize) -> bool {
    let mut frames = Vec::new();
    let cut = cut(frame, segment, |one| frames.push(one));
    let Some(at) = SegmentHeaders::find(frame) else {
        assert!(cut.is_err() && frames.is_empty());
        return false;
    };
    if cut.is_err() {
        return false;
    }
    let mut data = Vec::new();
    for one in &frames {
        let bytes = one.bytes();
        let found = SegmentHeaders::find(bytes).expect("the headers of the frame");
        assert_eq!(found, at);
        assert!(found.fits(bytes, bytes.len()) && found.is_ip_right(bytes));
        assert!(found.is_roce(bytes) || found.is_right(bytes));
        assert!(bytes.len() - at.data <= segment.max(1));
        data.extend_from_slice(&bytes[at.data..]);
    }
    assert_eq!(data, frame[at.data..]);
    frames.len() > 1
}

/// Completes the checksums of a frame. Returns whether it then has right ones.
pub(crate) fn is_completed(frame: &[u8]) -> bool {
    let mut completed = frame.to_vec();
    offload::complete(&mut completed);
    let mut again = completed.clone();
    offload::complete(&mut again);
    assert_eq!(again, completed);
    let changed = completed.iter().zip(frame).filter(|(one, other)| one != other).count();
    assert!(completed.len() == frame.len() && changed <= 4, "{changed} bytes have changed");
    offload::are_right(&completed)
}
