//! Joins frames that are written to the kernel: RoCE packets to one long datagram, segments of TCP
//! to one long segment.

use std::io::IoSlice;

use arrayvec::ArrayVec;
use vrnic_adapter::ethernet::Joint;
use vrnic_packet::segments::headers::{ALONE, HEADERS_MAX, LAST, SHORTEST, SegmentHeaders};

use super::cut::each_of;
use crate::net::frame::Frame;
use crate::net::queue::SendQueue;
use crate::net::uplinks::offload::{HEADER, Kind, Offload};

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
    /// The number of frames.
    frames: usize,
}

/// Cuts the first frame of a queue if it is a joined one that the line cannot pass. `joins` says
/// whether the line passes joined frames. Returns the number of frames that are lost, because they
/// cannot be cut.
pub fn cut_first(queue: &mut SendQueue, joins: bool) -> usize {
    let mut lost = 0;
    // If all of a frame is lost, the next one is the first.
    while let Some((first, joint)) = first_joined(queue) {
        if joins && Joined::offload_of(first, joint).is_some() {
            break;
        }
        let (first, mut pieces) = (first.clone(), Vec::new());
        let count = first.count();
        if each_of(first, |piece| pieces.push(piece)).is_err() {
            lost += count.saturating_sub(pieces.len());
        }
        queue.replace_first(pieces);
    }
    lost
}

fn first_joined(queue: &SendQueue) -> Option<(&Frame, Joint)> {
    let first = queue.frames().next()?;
    Some((first, first.joint()?))
}

impl<'a> Joined<'a> {
    /// Returns the first frame of a queue, which may be a joined one that [`cut_first`] has left as
    /// it is. If `join` is true, joins those frames after it to it that the kernel can recover by
    /// cutting. Returns none if no frame waits, or if the line cannot pass it.
    #[must_use]
    pub fn next(queue: &'a SendQueue, join: bool) -> Option<Self> {
        let mut frames = queue.frames();
        let first = frames.next()?;
        if let Some(joint) = first.joint() {
            let data = std::iter::once(first.bytes()).collect();
            let offload = Self::offload_of(first, joint)?.to_bytes();
            return Some(Self { offload, headers: ArrayVec::new(), data, frames: first.count() });
        }
        let run = if join { Self::run(first, frames) } else { None };
        Some(run.unwrap_or_else(|| {
            let data = std::iter::once(first.bytes()).collect();
            let offload = Offload::default().to_bytes();
            Self { offload, headers: ArrayVec::new(), data, frames: 1 }
        }))
    }

    /// Returns the header of a joined frame.
    fn offload_of(frame: &Frame, joint: Joint) -> Option<Offload> {
        let at = SegmentHeaders::find(frame.bytes())?;
        Self::offload(at, joint.segment.into())
    }

    fn offload(at: SegmentHeaders, segment: usize) -> Option<Offload> {
        let kind = match (at.is_udp(), at.is_v4()) {
            (true, _) => Kind::Udp,
            (false, true) => Kind::TcpV4,
            (false, false) => Kind::TcpV6,
        };
        Offload::segments(kind, at.transport, at.checksum(), at.data, segment)
    }

    /// Joins frames to the first one. Returns none if no other frame can be joined to it. Frames
    /// with a VLAN tag are not joined.
    fn run(first: &'a Frame, rest: impl Iterator<Item = &'a Frame>) -> Option<Self> {
        let bytes = first.bytes();
        let same = Same::new(bytes)?;
        let at = same.at;
        let (headers, payload) =
            bytes.split_at_checked(at.data).filter(|(_, payload)| !payload.is_empty())?;
        let mut data: ArrayVec<&[u8], SEGMENTS> = std::iter::once(payload).collect();
        let (mut len, mut flags) = (bytes.len(), at.flags(bytes));
        let rest = rest.take_while(|frame| frame.joint().is_none());
        for (count, frame) in (1..).zip(rest) {
            let frame = frame.bytes();
            let Some(next) = frame.get(at.data..).filter(|next| !next.is_empty()) else { break };
            let fits = len + next.len() <= at.ip + IP_MAX && !data.is_full();
            let last = same.is_last(flags);
            if !fits || last || next.len() > payload.len() || !same.follows(frame, count) {
                break;
            }
            data.push(next);
            (len, flags) = (len + next.len(), at.flags(frame));
            // A shorter frame must be the last one.
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
        if !at.is_udp() {
            let begun = at.flags(&headers)?;
            at.set_flags(&mut headers, begun | flags?)?;
        }
        let pseudo = at.pseudo(&headers, len)?;
        at.set_checksum(&mut headers, pseudo)?;
        let offload = Self::offload(at, payload.len())?.to_bytes();
        let frames = data.len();
        Some(Self { offload, headers, data, frames })
    }

    /// Returns the number of frames.
    #[must_use]
    pub const fn frames(&self) -> usize {
        self.frames
    }

    /// Returns the number of entries of the queue, in which joined frames are one.
    #[must_use]
    pub const fn entries(&self) -> usize {
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
    at: SegmentHeaders,
    first: &'a [u8],
    /// Length of its data.
    step: usize,
}

impl<'a> Same<'a> {
    /// Returns none if no frame can follow this one.
    fn new(first: &'a [u8]) -> Option<Self> {
        let at = SegmentHeaders::find(first)?;
        let this = Self { at, first, step: first.len() - at.data };
        let kind = if at.is_udp() { at.is_roce(first) } else { this.step >= SHORTEST };
        let joins = kind && !at.is_tagged() && this.is_whole(first);
        joins.then_some(this)
    }

    /// Returns whether the kernel would write a frame as it is: its lengths are right, and so are
    /// its checksums, of which a RoCE packet has only that of IPv4.
    fn is_whole(&self, frame: &[u8]) -> bool {
        let Self { at, .. } = self;
        let checked = if at.is_udp() {
            let checksum = at.transport + at.checksum();
            frame.get(checksum..checksum + 2) == Some(&[0, 0])
        } else {
            at.flags(frame).is_some_and(|flags| flags & ALONE == 0) && at.is_right(frame)
        };
        at.fits(frame, frame.len()) && at.is_ip_right(frame) && checked
    }

    /// Returns whether a segment of TCP with these flags is the last one.
    fn is_last(&self, flags: Option<u8>) -> bool {
        !self.at.is_udp() && flags.is_none_or(|flags| flags & LAST != 0)
    }

    /// Returns whether a frame has the headers that the kernel would write when it cuts the frame
    /// with this number.
    fn follows(&self, frame: &[u8], number: u16) -> bool {
        let Self { at, first, step } = self;
        let id = at.id(first).map(|id| id.wrapping_add(number));
        let equal = at.constant().into_iter().all(|part| {
            let part = frame.get(part.clone()).zip(first.get(part));
            part.is_some_and(|(a, b)| a == b)
        });
        let continues = || {
            let before = u32::try_from(step * usize::from(number)).ok()?;
            Some(at.number(frame)? == at.number(first)?.wrapping_add(before))
        };
        let in_order = at.is_udp() || continues() == Some(true);
        equal && in_order && at.id(frame) == id && self.is_whole(frame)
    }
}
