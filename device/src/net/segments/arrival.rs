//! Converts data that was read from the kernel to frames.

use super::cut::cut;
use crate::net::frame::Frame;
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
        Err(error) => log.dropped(Reason::BadLength, 1, |port| {
            tracing::warn!(port, "a frame was dropped: {error}");
        }),
    }
}
