//! Checksums of whole frames: of the header of IPv4, and of TCP and UDP after IPv4 or IPv6.

use std::ops::Range;

use crate::Headers;
use crate::checksum::{Sum, of_udp};
use crate::ip::{Fault, Protocol};
use crate::transport::{self, UDP_LENGTH, put, word};

/// Offset of the checksum in a header of IPv4.
const IN_IPV4: usize = 10;

/// Writes the checksums of a frame. A frame without IP, a fragment, and extension headers of IPv6
/// have no checksum of TCP or UDP that could be computed.
pub fn complete(frame: &mut [u8]) {
    let Some(headers) = found(frame) else { return };
    if !headers.is_v6 {
        let header = headers.header_range();
        // The header's checksum covers the bytes that the frame has there now.
        let _fits = put(frame, header.start + IN_IPV4, 0);
        let checksum = frame.get(header.clone()).map(|it| Sum::default().bytes(it).finish());
        let _fits = put(frame, header.start + IN_IPV4, checksum.unwrap_or_default());
    }
    let Some((protocol, payload, at)) = layer(&headers, frame) else { return };
    if put(frame, at, 0).is_none() {
        return;
    }
    let (Some(network), Some(bytes)) = (headers.network(frame), frame.get(payload)) else { return };
    let checksum = network.checksum(protocol, bytes);
    let checksum = if protocol == Protocol::UDP { of_udp((!checksum).into()) } else { checksum };
    let _fits = put(frame, at, checksum);
}

/// Returns whether a frame has a checksum of TCP or UDP, and this and that of IPv4 are right. A UDP
/// datagram over IPv4 may state that it has none.
#[must_use]
pub fn are_right(frame: &[u8]) -> bool {
    let Some(headers) = found(frame) else { return false };
    let header = headers.header_range();
    let is_ip_right = headers.is_v6
        || frame.get(header).is_some_and(|bytes| Sum::default().bytes(bytes).finish() == 0);
    let Some((protocol, payload, at)) = layer(&headers, frame).filter(|_| is_ip_right) else {
        return false;
    };
    let (Some(network), Some(bytes)) = (headers.network(frame), frame.get(payload)) else {
        return false;
    };
    let stated = frame.get(at..).and_then(|rest| rest.first_chunk::<2>());
    if protocol == Protocol::UDP && stated == Some(&[0; 2]) {
        return !headers.is_v6;
    }
    stated.is_some() && network.checksum(protocol, bytes) == 0
}

/// Returns the headers of a frame whose IP header has the right form.
fn found(frame: &[u8]) -> Option<Headers> {
    let headers = Headers::of(frame)?;
    let fault = matches!(headers.fault, Some(Fault::Version | Fault::HeaderLength));
    (!fault).then_some(headers)
}

/// Returns the protocol, the place of a whole datagram or segment, and that of its checksum.
fn layer(headers: &Headers, frame: &[u8]) -> Option<(Protocol, Range<usize>, usize)> {
    if headers.is_fragment || !headers.is_whole(frame) {
        return None;
    }
    let payload = headers.payload_range();
    let least = transport::header_len(headers.protocol)?;
    let len = match headers.protocol {
        Protocol::UDP => word(frame, payload.start + UDP_LENGTH)?.into(),
        _ => payload.len(),
    };
    let at = transport::checksum(headers.protocol);
    let start = payload.start;
    (least..=payload.len())
        .contains(&len)
        .then(|| (headers.protocol, start..start + len, start + at))
}
