//! The frame, or the frames, of a work request.

use vrnic_abi::cq::Status;
use vrnic_abi::sq::{Flags, MAX_FRAME, MIN_FRAME, Opcode};
use vrnic_packet::pool::Buffer;
use vrnic_packet::segments::join::{join, part};
use vrnic_packet::{offload, segments};

use crate::datapath::sgl::SgList;
use crate::datapath::turn::TurnContext;
use crate::ethernet::{Frame, SEGMENT_MIN};
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::completion::WrError;
use crate::objects::qp::Qp;
use crate::requests::wqe::{Segmentation, SendWqe};

/// Maximum number of frames into which a SEGMENT is cut at once.
pub(super) const PORTION: usize = 16;

/// Appends frames of a work request to `frames`: all of them, or those of a portion of a SEGMENT
/// after the first `done` bytes of its data. Returns how many bytes of the data are done then, if
/// there are more. `joins` is true if segments may stay joined.
///
/// # Errors
/// Returns the error with which the work request ends.
pub(super) fn compose<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    send: &SendWqe,
    raw: &[u8],
    joins: bool,
    done: u64,
    frames: &mut Vec<Frame>,
) -> Result<Option<u64>, WrError> {
    let mut source = SgList::default();
    source.add_source(here, qp.user(), send, raw)?;
    if send.opcode == Opcode::Segment {
        return segment(here, send, raw, &source, joins, done, frames);
    }
    if send.length < u64::from(MIN_FRAME) {
        return Err(Status::LocLenErr.into());
    }
    // CAST: no frame is longer than `MAX_FRAME`.
    let length = send.length as usize;
    let mut buffer = Buffer::of(length);
    let bytes = buffer.bytes_mut().get_mut(..length).unwrap_or_default();
    source.read::<H>(&here.memory, 0, bytes).map_err(|_| Denied::Memory)?;
    if send.flags.contains(Flags::IP_CSUM) {
        offload::complete(bytes);
    }
    frames.push(Frame::within(buffer, 0..length, None));
    Ok(None)
}

/// Appends the frames of a SEGMENT, or of a portion of it.
fn segment<H: Host>(
    here: &TurnContext<'_, H>,
    send: &SendWqe,
    raw: &[u8],
    payload: &SgList<'_>,
    joins: bool,
    done: u64,
    frames: &mut Vec<Frame>,
) -> Result<Option<u64>, WrError> {
    let Segmentation { mss, headers, .. } = SendWqe::segmentation(raw).ok_or(Status::LocQpOpErr)?;
    let (segment, headers_len) = (usize::from(mss), headers.len() as u64);
    if headers.len() + segment > MAX_FRAME as usize {
        return Err(Status::LocLenErr.into());
    }
    let joins = joins && segment >= SEGMENT_MIN;
    let all = send.length.checked_sub(headers_len).ok_or(Status::LocLenErr)?;
    let left = all.saturating_sub(done);
    let now = if joins { left } else { left.min(u64::from(mss) * PORTION as u64) };
    let is_last = now == left;
    // CAST: no SEGMENT is longer than `MAX_SEGMENT`.
    let length = (headers_len + now) as usize;
    let mut buffer = Buffer::of(length);
    let bytes = buffer.bytes_mut().get_mut(..length).unwrap_or_default();
    let (head, data) = bytes.split_at_mut_checked(headers.len()).ok_or(Status::LocLenErr)?;
    head.copy_from_slice(headers);
    payload.read::<H>(&here.memory, done, data).map_err(|_| Denied::Memory)?;
    if done > 0 || !is_last {
        let done = u32::try_from(done).unwrap_or(u32::MAX);
        part(head, mss, done, is_last).ok_or(Status::LocQpOpErr)?;
    }
    let whole = join(bytes, headers.len(), mss).ok_or(Status::LocQpOpErr)?;
    let frame = Frame::within(buffer, 0..length, whole);
    if joins || whole.is_none() {
        frames.push(frame);
    } else {
        segments::cut::each_of(frame, |frame| frames.push(frame))
            .map_err(|_| Status::LocQpOpErr)?;
    }
    Ok((!is_last).then_some(done + now))
}
