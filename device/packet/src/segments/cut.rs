//! Cuts a long UDP datagram or TCP segment into its frames.

use super::headers::{FIRST, LAST, SHORTEST, SegmentHeaders};
use crate::frame::Frame;

/// Maximum number of frames that a datagram is cut into; the kernel joins no more
/// (`UDP_MAX_SEGMENTS`).
const MAX_FRAMES: usize = 256;

/// The reason for which a frame cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCut {
    /// The packet is neither UDP nor TCP, or would become too many frames or too long ones.
    Kind,
    /// The checksum of its IP header is wrong. The frames would have right ones.
    Header,
}

/// Cuts a frame: `segment` is the length of the data in each frame except the last. `each` receives
/// the frames.
///
/// # Errors
/// See [`NotCut`].
pub fn cut(frame: &[u8], segment: usize, mut each: impl FnMut(Frame)) -> Result<(), NotCut> {
    let at = SegmentHeaders::find(frame).ok_or(NotCut::Kind)?;
    let (headers, data) = frame.split_at_checked(at.data).ok_or(NotCut::Kind)?;
    let many = if at.is_udp() {
        data.len() > segment.saturating_mul(MAX_FRAMES)
    } else {
        segment < SHORTEST
    };
    if many {
        return Err(NotCut::Kind);
    }
    if !at.is_ip_right(headers) {
        return Err(NotCut::Header);
    }
    let pieces = data.chunks(segment.max(1));
    let last = pieces.len().saturating_sub(1);
    for (number, data) in pieces.enumerate() {
        let frame = one(at, headers, data, Place { number, last: number == last, segment });
        each(frame.ok_or(NotCut::Kind)?);
    }
    Ok(())
}

/// Passes the frames that a frame stands for to `each`.
///
/// # Errors
/// Returns an error if a joined frame cannot be cut.
pub fn each_of(frame: Frame, mut each: impl FnMut(Frame)) -> Result<(), NotCut> {
    match frame.joint() {
        Some(joint) => {
            cut(frame.bytes(), joint.segment.into(), |one| each(one.with_origin_of(&frame)))
        }
        None => {
            each(frame);
            Ok(())
        }
    }
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
fn one(at: SegmentHeaders, headers: &[u8], data: &[u8], place: Place) -> Option<Frame> {
    let mut frame = Frame::of_parts(&[headers, data]);
    write(at, headers, frame.bytes_mut(), place)?;
    Some(frame)
}

/// Completes the headers of one of the frames, which are still those of all of them.
fn write(at: SegmentHeaders, headers: &[u8], frame: &mut [u8], place: Place) -> Option<()> {
    at.set_len(frame, frame.len())?;
    if let Some(id) = at.id(headers) {
        at.set_id(frame, id.wrapping_add(u16::try_from(place.number).ok()?))?;
    }
    if at.is_roce(headers) {
        // A RoCE packet needs no UDP checksum, because it has the ICRC.
        return at.set_checksum(frame, 0);
    }
    if !at.is_udp() {
        let before = u32::try_from(place.number * place.segment).ok()?;
        at.set_number(frame, at.number(headers)?.wrapping_add(before))?;
        let not_last = if place.last { 0 } else { LAST };
        let not_first = if place.number == 0 { 0 } else { FIRST };
        at.set_flags(frame, at.flags(headers)? & !(not_last | not_first))?;
    }
    at.complete(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::join::join;

    #[test]
    fn the_frames_have_the_origin_of_the_one_that_is_cut() {
        // Ethernet, IPv4 and TCP.
        let ip = [0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let tcp = [0, 7, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
        let mut bytes = [&[2; 12][..], &[8, 0], &ip, &tcp, &[9; 250]].concat();
        let joint = join(&mut bytes, 54, 100).expect("TCP");
        let mut frame = Frame::copy_joined(&bytes, joint);
        frame.set_composed();
        let mut count = 0;
        let cut = each_of(frame, |one| {
            assert!(one.is_composed() && !one.is_for_switch());
            count += 1;
        });
        assert_eq!((cut, count), (Ok(()), 3));
    }
}
