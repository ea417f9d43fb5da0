//! Cuts a long UDP datagram or TCP segment into its frames.

use vrnic_adapter::ethernet;

use super::headers::{FIRST, Headers, LAST, Protocol, SHORTEST};
use crate::net::frame::Frame;
use crate::net::offload::Incomplete;

/// Maximum number of frames that a datagram is cut into; the kernel joins no more
/// (`UDP_MAX_SEGMENTS`).
const MOST: usize = 256;

/// Cuts a frame: `segment` is the length of the data in each frame except the last. `each` receives
/// the frames.
///
/// # Errors
/// Returns an error if it is neither UDP nor TCP, its IP header has a wrong checksum, or it would
/// become too many frames.
pub fn cut(
    frame: &[u8],
    segment: usize,
    mut each: impl FnMut(ethernet::Frame),
) -> Result<(), Incomplete> {
    let at = Headers::find(frame).ok_or(Incomplete::Segments)?;
    let (headers, data) = frame.split_at_checked(at.data).ok_or(Incomplete::Segments)?;
    let many = match at.protocol {
        Protocol::Udp => data.len() > segment.saturating_mul(MOST),
        Protocol::Tcp => segment < SHORTEST,
    };
    if many {
        return Err(Incomplete::Segments);
    }
    if !at.is_ip_right(headers) {
        return Err(Incomplete::Header);
    }
    let pieces = data.chunks(segment.max(1));
    let last = pieces.len().saturating_sub(1);
    for (number, data) in pieces.enumerate() {
        let frame = one(at, headers, data, Place { number, last: number == last, segment });
        each(frame.ok_or(Incomplete::Segments)?);
    }
    Ok(())
}

/// Passes the frames that a frame stands for to `each`.
///
/// # Errors
/// Returns an error if a joined frame cannot be cut.
pub fn each_of(frame: Frame, mut each: impl FnMut(Frame)) -> Result<(), Incomplete> {
    let Some(joint) = frame.joint() else {
        each(frame);
        return Ok(());
    };
    let mut long = false;
    cut(frame.bytes(), joint.segment.into(), |frame| match frame.try_into() {
        Ok(frame) => each(frame),
        Err(_) => long = true,
    })?;
    if long { Err(Incomplete::Segments) } else { Ok(()) }
}

/// The place of a frame among those of a datagram or segment.
#[derive(Clone, Copy)]
struct Place {
    number: usize,
    last: bool,
    /// The length of the data in the frames before it.
    segment: usize,
}

/// Returns one of the frames.
fn one(at: Headers, headers: &[u8], data: &[u8], place: Place) -> Option<ethernet::Frame> {
    let mut frame = ethernet::Frame::of_parts(&[headers, data]);
    write(at, headers, frame.bytes_mut(), place)?;
    Some(frame)
}

/// Completes the headers of one of the frames, which are still those of all of them.
fn write(at: Headers, headers: &[u8], frame: &mut [u8], place: Place) -> Option<()> {
    at.set_len(frame, frame.len())?;
    if let Some(id) = at.id(headers) {
        at.set_id(frame, id.wrapping_add(u16::try_from(place.number).ok()?))?;
    }
    if at.is_roce(headers) {
        // A RoCE packet needs no UDP checksum, because it has the ICRC.
        return at.set_checksum(frame, 0);
    }
    if at.protocol == Protocol::Tcp {
        let before = u32::try_from(place.number * place.segment).ok()?;
        at.set_number(frame, at.number(headers)?.wrapping_add(before))?;
        let not_last = if place.last { 0 } else { LAST };
        let not_first = if place.number == 0 { 0 } else { FIRST };
        at.set_flags(frame, at.flags(headers)? & !(not_last | not_first))?;
    }
    at.complete(frame)
}
