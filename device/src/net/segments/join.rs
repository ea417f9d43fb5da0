//! Joins RoCE packets that are written to the kernel to one long datagram.

use std::io::IoSlice;

use arrayvec::ArrayVec;

use super::headers::{CHECKSUM, HEADERS_MAX, Headers};
use crate::net::frame::Frame;
use crate::net::offload::{HEADER, Offload};
use crate::net::queue::SendQueue;

/// Maximum number of joined packets; older kernels do not cut a datagram into more
/// (`UDP_MAX_SEGMENTS`).
const SEGMENTS: usize = 64;
/// Length of the longest IP packet.
const IP_MAX: usize = 65_535;

/// An offload header, and pieces of memory that are written behind each other.
#[derive(Debug)]
pub struct Joined<'a> {
    offload: [u8; HEADER],
    /// The headers of several frames; empty for a single frame.
    headers: ArrayVec<u8, HEADERS_MAX>,
    data: ArrayVec<&'a [u8], SEGMENTS>,
}

impl<'a> Joined<'a> {
    /// Returns the first frame of a queue. If `join` is true, joins those frames behind it to it
    /// that the kernel can recover by cutting.
    #[must_use]
    pub fn next(queue: &'a SendQueue, join: bool) -> Option<Self> {
        let mut frames = queue.frames();
        let first = frames.next()?;
        let run = if join { Self::run(first, frames) } else { None };
        Some(run.unwrap_or_else(|| {
            let data = std::iter::once(first.bytes()).collect();
            Self { offload: Offload::default().to_bytes(), headers: ArrayVec::new(), data }
        }))
    }

    /// Joins frames to the first one. Returns none if no other frame can be joined to it. Frames
    /// with a VLAN tag are not joined.
    fn run(first: &'a Frame, rest: impl Iterator<Item = &'a Frame>) -> Option<Self> {
        let bytes = first.bytes();
        let at = Headers::find(bytes)?;
        let same = Same { at, first: bytes };
        if at.is_tagged() || !at.is_roce(bytes) || !same.is_whole(bytes) {
            return None;
        }
        let (headers, payload) =
            bytes.split_at_checked(at.data()).filter(|(_, payload)| !payload.is_empty())?;
        let mut data: ArrayVec<&[u8], SEGMENTS> = std::iter::once(payload).collect();
        let mut len = bytes.len();
        for (count, frame) in (1..).zip(rest) {
            let frame = frame.bytes();
            let Some(next) = frame.get(at.data()..) else { break };
            let fits = len + next.len() <= at.ip + IP_MAX && !data.is_full();
            if !fits || next.len() > payload.len() || !same.follows(frame, count) {
                break;
            }
            data.push(next);
            len += next.len();
            // A shorter packet must be the last one.
            if next.len() < payload.len() {
                break;
            }
        }
        if data.len() < 2 {
            return None;
        }
        let mut headers: ArrayVec<u8, HEADERS_MAX> = headers.iter().copied().collect();
        at.set_len(&mut headers, len)?;
        if let Some(id) = at.id(&headers) {
            at.set_id(&mut headers, id)?;
        }
        let pseudo = at.pseudo(&headers, len)?;
        at.set_checksum(&mut headers, pseudo)?;
        let offload = Offload::segments(at.udp, CHECKSUM, payload.len())?.to_bytes();
        Some(Self { offload, headers, data })
    }

    /// Returns the number of frames.
    #[must_use]
    pub const fn frames(&self) -> usize {
        self.data.len()
    }

    /// Returns the pieces. If `with_header` is true, the first one is the offload header.
    #[must_use]
    pub fn slices(&self, with_header: bool) -> ArrayVec<IoSlice<'_>, { SEGMENTS + 2 }> {
        let header = with_header.then_some(&self.offload[..]);
        let headers = (!self.headers.is_empty()).then_some(&self.headers[..]);
        let parts = header.into_iter().chain(headers).chain(self.data.iter().copied());
        parts.map(IoSlice::new).collect()
    }
}

/// The first of several frames.
struct Same<'a> {
    at: Headers,
    first: &'a [u8],
}

impl Same<'_> {
    /// Returns whether a frame's lengths are right and it has no UDP checksum.
    fn is_whole(&self, frame: &[u8]) -> bool {
        let checksum = self.at.udp + CHECKSUM..self.at.data();
        self.at.fits(frame, frame.len()) && frame.get(checksum) == Some(&[0, 0])
    }

    /// Returns whether a frame has the headers that the kernel would write when it cuts the packet
    /// with this number.
    fn follows(&self, frame: &[u8], number: u16) -> bool {
        let Self { at, first } = self;
        let id = at.id(first).map(|id| id.wrapping_add(number));
        // Compares all fields except the lengths, the identification and the checksums: from the
        // Ethernet header to the first length, and from the next field to the length of UDP.
        let parts = if at.is_v4() {
            [0..at.ip + 2, at.ip + 6..at.ip + 10, at.ip + 12..at.udp + 4]
        } else {
            [0..at.ip + 4, at.ip + 6..at.udp, at.udp..at.udp + 4]
        };
        let equal = parts.into_iter().all(|part| {
            let part = frame.get(part.clone()).zip(first.get(part));
            part.is_some_and(|(a, b)| a == b)
        });
        equal && at.id(frame) == id && self.is_whole(frame)
    }
}
