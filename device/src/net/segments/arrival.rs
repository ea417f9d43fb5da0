//! Converts data that was read from the kernel to frames.

use vrnic_adapter::ethernet::{self, Joint, SEGMENT_MIN};

use super::cut::cut;
use super::headers::{Headers, Protocol};
use crate::net::frame::{Frame, WrongLength};
use crate::net::line::Log;
use crate::net::offload::{HEADER, Incomplete, Offload, VlanTag, complete, insert_tag};
use crate::net::status::Reason;

/// Completes the bytes behind an offload header as the header demands, and appends the resulting
/// frames.
pub fn take(received: &[u8], tag: Option<VlanTag>, frames: &mut Vec<Frame>, log: &Log<'_>) {
    let Some((header, bytes)) = received.split_first_chunk::<HEADER>() else { return };
    let each = |bytes| append(bytes, tag, frames, log);
    if let Err(error) = finish(Offload::from_bytes(*header), bytes, each) {
        log.dropped(Reason::Offload, 1, |port| {
            tracing::warn!(port, "a frame was dropped: {error}");
        });
    }
}

/// Does the same as [`take`] for the bytes from `HEADER` on of a buffer, but leaves segments of TCP
/// joined, and takes the buffer for them.
pub fn take_joined(received: &mut Vec<u8>, frames: &mut Vec<Frame>, log: &Log<'_>) {
    if let Some(joint) = join(received) {
        let bytes = std::mem::take(received);
        let frame = if bytes.len() < bytes.capacity() / 2 {
            // A short frame keeps no long memory while it waits.
            let frame = bytes.get(HEADER..).unwrap_or_default().to_vec();
            *received = bytes;
            ethernet::Frame::behind(frame, 0, Some(joint))
        } else {
            // CAST: it is 10.
            ethernet::Frame::behind(bytes, HEADER as u16, Some(joint))
        };
        match Frame::try_from(frame) {
            Ok(frame) => frames.push(frame),
            Err(error) => too_long(error, log),
        }
        return;
    }
    take(received, None, frames, log);
}

/// Prepares a frame of joined segments behind its header, as one that an adapter has sent. Returns
/// none if it is another frame, or one that does not stay joined.
fn join(received: &mut [u8]) -> Option<Joint> {
    let (header, frame) = received.split_first_chunk_mut::<HEADER>()?;
    let segment =
        Offload::from_bytes(*header).segment().filter(|segment| *segment >= SEGMENT_MIN)?;
    let at = Headers::find(frame)?;
    let long = at.data + segment < frame.len();
    if at.protocol != Protocol::Tcp || !long || !at.is_ip_right(frame) {
        return None;
    }
    let joint = Joint { headers: at.data.try_into().ok()?, segment: segment.try_into().ok()? };
    // Some networks leave another checksum there, which was right before the segments were joined.
    at.set_len(frame, frame.len())?;
    if let Some(id) = at.id(frame) {
        at.set_id(frame, id)?;
    }
    let pseudo = at.pseudo(frame, frame.len())?;
    at.set_checksum(frame, pseudo)?;
    Some(joint)
}

fn finish(offload: Offload, bytes: &[u8], mut each: impl FnMut(Vec<u8>)) -> Result<(), Incomplete> {
    if let Some(segment) = offload.segment() {
        return cut(bytes, segment, each);
    }
    let mut bytes = bytes.to_vec();
    complete(offload, &mut bytes)?;
    each(bytes);
    Ok(())
}

/// Appends a frame.
pub fn append(mut bytes: Vec<u8>, tag: Option<VlanTag>, frames: &mut Vec<Frame>, log: &Log<'_>) {
    if let Some(tag) = tag {
        insert_tag(&mut bytes, tag);
    }
    match Frame::new(bytes) {
        Ok(frame) => frames.push(frame),
        Err(error) => too_long(error, log),
    }
}

fn too_long(error: WrongLength, log: &Log<'_>) {
    log.dropped(Reason::BadLength, 1, |port| {
        tracing::warn!(port, "a frame was dropped: {error}");
    });
}
