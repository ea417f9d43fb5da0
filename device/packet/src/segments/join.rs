//! Prepares a long segment of TCP as one to which others were joined ([`crate::frame::Joint`]).

use super::headers::{FIRST, LAST, SegmentHeaders};
use crate::frame::Joint;

/// Completes the headers of a segment of TCP, of which `headers` bytes are not data, so that it
/// stands for frames with `segment` bytes of data each. A segment with no more data than that is
/// completed as a frame, and there is no joint then.
///
/// Returns `None` if the bytes do not begin with headers of TCP of this length.
pub fn join(frame: &mut [u8], headers: usize, segment: u16) -> Option<Option<Joint>> {
    let at = SegmentHeaders::find(frame)?;
    if at.is_udp() || at.data != headers {
        return None;
    }
    if at.data + usize::from(segment) < frame.len() {
        prepare(at, frame)?;
        return Some(Some(Joint { headers: headers.try_into().ok()?, segment }));
    }
    complete_ip(at, frame)?;
    at.complete(frame)?;
    Some(None)
}

/// Makes `headers`, which are those of a long segment of TCP, the ones of its part after the first
/// `done` bytes of data, which go to other frames of `segment` bytes of data each. `is_last` is
/// true if the part goes to the end of the segment.
///
/// Returns `None` if they are no headers of TCP.
pub fn part(headers: &mut [u8], segment: u16, done: u32, is_last: bool) -> Option<()> {
    let at = SegmentHeaders::find(headers).filter(|at| !at.is_udp())?;
    if let Some(id) = at.id(headers) {
        let frames = done.checked_div(segment.into())?;
        at.set_id(headers, id.wrapping_add(u16::try_from(frames).ok()?))?;
    }
    at.set_number(headers, at.number(headers)?.wrapping_add(done))?;
    let not_first = if done == 0 { 0 } else { FIRST };
    let not_last = if is_last { 0 } else { LAST };
    at.set_flags(headers, at.flags(headers)? & !(not_first | not_last))
}

/// Writes the length, the checksum of IPv4, and the sum of the pseudo-header as the checksum of
/// TCP, as a joined frame has them.
pub fn prepare(at: SegmentHeaders, frame: &mut [u8]) -> Option<()> {
    complete_ip(at, frame)?;
    let pseudo = at.pseudo(frame, frame.len())?;
    at.set_checksum(frame, pseudo)
}

fn complete_ip(at: SegmentHeaders, frame: &mut [u8]) -> Option<()> {
    at.set_len(frame, frame.len())?;
    match at.id(frame) {
        Some(id) => at.set_id(frame, id),
        None => Some(()),
    }
}
