//! Cuts a long UDP datagram into its frames.

use super::headers::Headers;
use crate::net::checksum::{of_udp, sum};
use crate::net::offload::Incomplete;

/// Maximum number of frames that a datagram is cut into; the kernel joins no more
/// (`UDP_MAX_SEGMENTS`).
const MOST: usize = 256;

/// Cuts a frame: `segment` is the length of the data in each frame except the last. `each` receives
/// the frames.
///
/// # Errors
/// Returns an error if it is not a UDP datagram, or would become too many frames.
pub fn cut(frame: &[u8], segment: usize, mut each: impl FnMut(Vec<u8>)) -> Result<(), Incomplete> {
    let at = Headers::find(frame).ok_or(Incomplete::Segments)?;
    let (headers, data) = frame.split_at_checked(at.data()).ok_or(Incomplete::Segments)?;
    if data.len() > segment.saturating_mul(MOST) {
        return Err(Incomplete::Segments);
    }
    for (number, data) in (0..).zip(data.chunks(segment.max(1))) {
        let frame = one(at, headers, data, number);
        each(frame.ok_or(Incomplete::Segments)?);
    }
    Ok(())
}

/// Returns one of the frames.
fn one(at: Headers, headers: &[u8], data: &[u8], number: u16) -> Option<Vec<u8>> {
    let len = headers.len() + data.len();
    let mut frame = Vec::with_capacity(len);
    frame.extend_from_slice(headers);
    frame.extend_from_slice(data);
    at.set_len(&mut frame, len)?;
    if let Some(id) = at.id(headers) {
        at.set_id(&mut frame, id.wrapping_add(number))?;
    }
    // A RoCE packet needs no UDP checksum, because it has the ICRC.
    at.set_checksum(&mut frame, 0)?;
    if !at.is_roce(headers) {
        let pseudo = at.pseudo(&frame, len)?;
        let checksum = of_udp(u64::from(pseudo) + sum(frame.get(at.udp..)?));
        at.set_checksum(&mut frame, checksum)?;
    }
    Some(frame)
}
