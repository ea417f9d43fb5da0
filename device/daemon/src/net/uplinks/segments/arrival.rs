//! Converts data that was read from the kernel to frames.

use vrnic_adapter::ethernet::{self, Joint, SEGMENT_MIN};
use vrnic_packet::pool::Buffer;
use vrnic_packet::segments::cut::cut;
use vrnic_packet::segments::headers::SegmentHeaders;
use vrnic_packet::segments::join::prepare;

use crate::net::frame::{Frame, WrongLength};
use crate::net::line::Log;
use crate::net::status::Reason;
use crate::net::uplinks::offload::{HEADER, Incomplete, Offload, VlanTag, complete, insert_tag};

/// Completes the bytes after an offload header as the header demands, and appends the resulting
/// frames.
pub fn take(received: &[u8], tag: Option<VlanTag>, frames: &mut Vec<Frame>, log: &Log<'_>) {
    let Some((header, bytes)) = received.split_first_chunk::<HEADER>() else { return };
    let each = |frame: ethernet::Frame| match tag {
        Some(tag) => push(insert_tag(frame.bytes(), tag), frames, log),
        None => push(frame, frames, log),
    };
    if let Err(error) = finish(Offload::from_bytes(*header), bytes, each) {
        log.dropped(Reason::Offload, 1, |port| {
            tracing::warn!(port, "a frame was dropped: {error}");
        });
    }
}

/// Does the same as [`take`] for the first `len` bytes of a buffer, which has one free byte or more
/// after them, but leaves segments of TCP joined. A long frame takes the buffer.
pub fn take_joined(buffer: &mut Buffer, len: usize, frames: &mut Vec<Frame>, log: &Log<'_>) {
    let Some(received) = buffer.bytes_mut().get_mut(..len) else { return };
    let Some(joint) = join(received) else { return take(received, None, frames, log) };
    let frame = if len < buffer.len() / 2 {
        // A short frame keeps no long memory while it waits.
        let bytes = buffer.bytes().get(HEADER..len).unwrap_or_default();
        ethernet::Frame::copy_joined(bytes, Some(joint))
    } else {
        ethernet::Frame::within(std::mem::take(buffer), HEADER..len, Some(joint))
    };
    push(frame, frames, log);
}

/// Prepares a frame of joined segments after its header, as one that an adapter has sent. Returns
/// none if it is another frame, or one that does not stay joined.
fn join(received: &mut [u8]) -> Option<Joint> {
    let (header, frame) = received.split_first_chunk_mut::<HEADER>()?;
    let segment =
        Offload::from_bytes(*header).segment().filter(|segment| *segment >= SEGMENT_MIN)?;
    let at = SegmentHeaders::find(frame)?;
    let long = at.data + segment < frame.len();
    if at.is_udp() || !long || !at.is_ip_right(frame) {
        return None;
    }
    let joint = Joint { headers: at.data.try_into().ok()?, segment: segment.try_into().ok()? };
    // Some networks leave another checksum there, which was right before the segments were joined.
    prepare(at, frame)?;
    Some(joint)
}

fn finish(
    offload: Offload,
    bytes: &[u8],
    mut each: impl FnMut(ethernet::Frame),
) -> Result<(), Incomplete> {
    if let Some(segment) = offload.segment() {
        return Ok(cut(bytes, segment, each)?);
    }
    let mut frame = ethernet::Frame::copy(bytes);
    complete(offload, frame.bytes_mut())?;
    each(frame);
    Ok(())
}

/// Appends a frame whose length is not known to be valid.
pub fn push(frame: ethernet::Frame, frames: &mut Vec<Frame>, log: &Log<'_>) {
    match frame.try_into() {
        Ok(frame) => frames.push(frame),
        Err(error) => too_long(error, log),
    }
}

fn too_long(error: WrongLength, log: &Log<'_>) {
    log.dropped(Reason::BadLength, 1, |port| {
        tracing::warn!(port, "a frame was dropped: {error}");
    });
}
