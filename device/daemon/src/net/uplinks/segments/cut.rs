//! Cuts a joined frame into its frames.

use vrnic_packet::segments::cut::{self, NotCut};

use crate::net::frame::Frame;
use crate::net::uplinks::offload::Incomplete;

impl From<NotCut> for Incomplete {
    fn from(why: NotCut) -> Self {
        match why {
            NotCut::Kind => Self::Segments,
            NotCut::Header => Self::Header,
        }
    }
}

/// Passes the frames that a frame stands for to `each`.
///
/// # Errors
/// Returns an error if a joined frame cannot be cut.
pub fn each_of(frame: Frame, mut each: impl FnMut(Frame)) -> Result<(), Incomplete> {
    let mut long = false;
    cut::each_of(frame.into(), |frame| match frame.try_into() {
        Ok(frame) => each(frame),
        Err(_) => long = true,
    })?;
    if long { Err(Incomplete::Segments) } else { Ok(()) }
}
