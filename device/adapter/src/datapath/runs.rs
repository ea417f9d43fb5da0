//! The addresses of a short part of a message, looked up once. Pages that come and go may become
//! absent between two look-ups, but the addresses of one look-up can be used as long as the guest's
//! memory is held.

use std::ops::Range;

use arrayvec::ArrayVec;
use vrnic_abi::GuestAddr;
use vrnic_abi::sq::MAX_SGE;

use crate::datapath::sgl::SgList;
use crate::host::{HeldMemory, Host};

/// Maximum number of contiguous pieces of a part: each segment begins one, and crosses at most one
/// border of pages, which have at least 4,096 bytes.
const MAX_RUNS: usize = 2 * MAX_SGE as usize;

/// The addresses of some bytes.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// The addresses, and the places of their bytes in the part.
    runs: ArrayVec<(GuestAddr, Range<usize>), MAX_RUNS>,
    len: usize,
}

impl Runs {
    /// Looks up the bytes `range` of a list, at most 4,096 of them. Returns `None` if pages are
    /// absent.
    #[must_use]
    pub(crate) fn find(list: &SgList<'_>, range: Range<u64>) -> Option<Self> {
        let len = range.end.checked_sub(range.start)?;
        let mut this = Self { runs: ArrayVec::new(), len: usize::try_from(len).ok()? };
        list.pieces(range.start, len, |addr, range| this.runs.try_push((addr, range)).ok())?;
        Some(this)
    }

    /// Writes all bytes. Returns `None` if the memory is not accessible, or if these are not as
    /// many bytes.
    #[must_use]
    pub(crate) fn write<H: Host>(&self, memory: &H::Held<'_>, from: &[u8]) -> Option<()> {
        if from.len() != self.len {
            return None;
        }
        self.runs
            .iter()
            .try_for_each(|(addr, range)| memory.write(*addr, from.get(range.clone())?).ok())?;
        memory.settle();
        Some(())
    }
}
