//! The frame, or the frames, of a work request.

use vrnic_abi::cq::Status;
use vrnic_abi::sq::{Flags, MAX_FRAME, MIN_FRAME, Opcode};
use vrnic_packet::pool::Buffer;
use vrnic_packet::segments::join::join;
use vrnic_packet::{offload, segments};

use crate::datapath::sgl::SgList;
use crate::datapath::turn::TurnContext;
use crate::ethernet::{Frame, SEGMENT_MIN};
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::completion::WrError;
use crate::objects::qp::Qp;
use crate::requests::wqe::SendWqe;

/// Appends the frames of a work request to `frames`. `joins` is true if segments may stay joined.
///
/// # Errors
/// Returns the error with which the work request ends.
pub(super) fn compose<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    send: &SendWqe,
    raw: &[u8],
    joins: bool,
    frames: &mut Vec<Frame>,
) -> Result<(), WrError> {
    let mut source = SgList::default();
    source.add_source(here, qp.user(), send, raw)?;
    if send.opcode == Opcode::Segment {
        return segment(here, send, raw, &source, joins, frames);
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
    Ok(())
}

/// Appends the frames of a SEGMENT.
fn segment<H: Host>(
    here: &TurnContext<'_, H>,
    send: &SendWqe,
    raw: &[u8],
    payload: &SgList<'_>,
    joins: bool,
    frames: &mut Vec<Frame>,
) -> Result<(), WrError> {
    let parameters = SendWqe::segmentation(raw).ok_or(Status::LocQpOpErr)?;
    let mss = usize::from(parameters.mss);
    if parameters.headers.len() + mss > MAX_FRAME as usize {
        return Err(Status::LocLenErr.into());
    }
    // CAST: no SEGMENT is longer than `MAX_SEGMENT`.
    let length = send.length as usize;
    let mut buffer = Buffer::of(length);
    let bytes = buffer.bytes_mut().get_mut(..length).unwrap_or_default();
    let (head, data) =
        bytes.split_at_mut_checked(parameters.headers.len()).ok_or(Status::LocLenErr)?;
    head.copy_from_slice(parameters.headers);
    payload.read::<H>(&here.memory, 0, data).map_err(|_| Denied::Memory)?;
    let whole = join(bytes, parameters.headers.len(), parameters.mss).ok_or(Status::LocQpOpErr)?;
    let frame = Frame::within(buffer, 0..length, whole);
    if joins && mss >= SEGMENT_MIN || whole.is_none() {
        frames.push(frame);
        return Ok(());
    }
    segments::cut::each_of(frame, |frame| frames.push(frame)).map_err(|_| Status::LocQpOpErr.into())
}
