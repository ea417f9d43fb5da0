// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The outstanding requests of a queue. Polling completes them when the adapter is dead.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use crate::mapping::Mapping;
use crate::ring::{Ring, Shape};

/// The outstanding requests of a queue. Posting writes to it, in a cache line of its own; it is
/// hardly ever read.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Posted {
    /// The index after the last request posted.
    end: AtomicU32,
    /// The entries, each of which begins with the identifier of its request.
    ids: Ring,
}

impl Posted {
    /// Creates an empty queue, whose identifiers are in `ids`.
    pub(crate) fn new(ids: Ring) -> Self {
        Self { end: AtomicU32::new(0), ids }
    }

    /// Records that all requests below `end` are posted.
    #[inline]
    pub(crate) fn publish(&self, end: u32) {
        self.end.store(end, Ordering::Release);
    }

    /// Returns the identifier of the request at `index`, the first that has not completed; `None`
    /// if all have.
    pub(crate) fn outstanding(&self, index: u32) -> Option<u64> {
        let count = self.end.load(Ordering::Acquire).wrapping_sub(index);
        let is = (1..=self.ids.size()).contains(&count);
        is.then(|| self.ids.entry(index).first().map_or(0, |id| id.load(Ordering::Relaxed)))
    }
}

/// Allocates copies of two words of each entry of a send queue in the adapter's memory, which
/// cannot be read when the adapter is gone: the identifier of the request, and the last word of its
/// header while that is withheld.
///
/// # Errors
/// The errors of mmap; `ENOMEM`.
pub(crate) fn room(log_size: u8) -> Result<Ring, Errno> {
    let shape = Shape { log_size, log_stride: 4 };
    Ring::new(Mapping::anonymous(shape.bytes())?, shape)
}
