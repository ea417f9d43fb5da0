//! Random bytes for the parsers of headers.
//!
//! Shows: hostile

use vrnic_packet::headers::Headers;

/// Bytes from which a frame is made.
const LEN: usize = 120;

/// Returns a frame: most of its bytes are random, and its types are often those of IP.
fn frame(bytes: &[u8]) -> &[u8] {
    let len = bytes.first().map_or(0, |first| usize::from(*first) % bytes.len());
    &bytes[..len]
}

/// Makes what random bytes seldom are: a tag or none, IPv4 or IPv6, and a right checksum.
fn likely(bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame(bytes).to_vec();
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
    if choice & 2 != 0 {
        kind(&mut frame, [0x86, 0xdd], 2);
        if let Some(version) = frame.get_mut(at) {
            *version = 0x60 | *version & 0x0f;
        }
    } else {
        kind(&mut frame, [8, 0], 2);
        if let Some(header) = frame.get_mut(at..at + 20) {
            (header[0], header[2]) = (0x45 + (choice >> 6), 0);
            header[10..12].fill(0);
            let sum = vrnic_packet::checksum::Sum::default().bytes(header).finish();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
    frame
}

/// Headers are found within the frame, and all ways to read them agree. So do the parts of a frame
/// that is cut shorter afterwards.
#[test]
fn any_frame_has_its_headers_within_it() {
    let mut whole = 0_u64;
    vrnic_cases::bytes(200_000, LEN, |bytes| {
        for frame in [frame(bytes), &likely(bytes)] {
            let Some(headers) = Headers::of(frame) else { continue };
            assert!(headers.payload_range().end <= frame.len());
            assert_eq!(headers.header_range().end, headers.payload_range().start);
            assert_eq!(headers.payload(frame), &frame[headers.payload_range()]);
            let (packet, bytes) = headers.packet(frame).expect("its own frame");
            assert_eq!(packet.payload, headers.payload(frame));
            assert_eq!(packet.header_bytes.len() + packet.payload.len(), bytes.len());
            assert_eq!(Some(packet.header), headers.network(frame));
            assert!(headers.ethernet(frame).is_some() && headers.fragment_flags(frame).is_some());
            let _checksum = packet.checksum();
            whole += u64::from(packet.fault.is_none());
            for end in [0, 13, headers.header_range().start, headers.payload_range().start] {
                let short = &frame[..end.min(frame.len())];
                let _parts = (headers.packet(short), headers.network(short), headers.behind(short));
                assert!(!headers.is_whole(&short[..end.min(14)]));
            }
        }
        1
    });
    assert!(whole > 0, "no frame was whole");
}
