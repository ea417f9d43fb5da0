//! Bytes of a message that become visible in another order, because of a rule for faults.

use std::ops::Range;

use crate::datapath::disorder::{Disorder, MAX_BLOCKS};
use crate::datapath::sgl::SgList;
use crate::host::Host;

/// Bytes of a message that are kept until their blocks are placed.
pub(super) struct Reordering<'b> {
    /// The place of the first byte in the message.
    pub(super) start: u64,
    pub(super) bytes: &'b [u8],
    /// The seed of the order.
    pub(super) seed: u64,
}

impl Reordering<'_> {
    /// Places the next blocks, and advances `place`, which is that of a block in the order. Returns
    /// whether all blocks have been placed.
    ///
    /// # Errors
    /// Returns the bytes of the message that could not be stored.
    pub(super) fn place<H: Host>(
        &self,
        side: &SgList<'_>,
        memory: &H::Held<'_>,
        place: &mut u64,
    ) -> Result<bool, Range<u64>> {
        let order = Disorder::new(self.bytes.len() as u64, self.seed);
        for _ in 0..MAX_BLOCKS {
            let Some([from, to]) = order.at(*place) else { return Ok(true) };
            // CAST: within the bytes.
            let block = self.bytes.get(from as usize..to as usize).unwrap_or_default();
            let at = self.start.saturating_add(from)..self.start.saturating_add(to);
            side.write::<H>(memory, at.start, block).map_err(|_| at)?;
            *place += 1;
        }
        Ok(order.at(*place).is_none())
    }
}
