//! Prepares a long segment of TCP as one to which others were joined ([`crate::frame::Joint`]).

use super::headers::{Headers, Protocol};
use crate::frame::Joint;

/// Completes the headers of a segment of TCP, of which `headers` bytes are not data, so that it
/// stands for frames with `segment` bytes of data each. A segment with no more data than that is
/// completed as a frame, and there is no joint then.
///
/// Returns `None` if the bytes do not begin with headers of TCP of this length.
pub fn join(frame: &mut [u8], headers: usize, segment: u16) -> Option<Option<Joint>> {
    let at = Headers::find(frame)?;
    if at.protocol != Protocol::Tcp || at.data != headers {
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

/// Writes the length, the checksum of IPv4, and the sum of the pseudo-header as the checksum of
/// TCP, as a joined frame has them.
pub fn prepare(at: Headers, frame: &mut [u8]) -> Option<()> {
    complete_ip(at, frame)?;
    let pseudo = at.pseudo(frame, frame.len())?;
    at.set_checksum(frame, pseudo)
}

fn complete_ip(at: Headers, frame: &mut [u8]) -> Option<()> {
    at.set_len(frame, frame.len())?;
    match at.id(frame) {
        Some(id) => at.set_id(frame, id),
        None => Some(()),
    }
}
