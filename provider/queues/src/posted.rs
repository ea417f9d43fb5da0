// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What is outstanding on a queue: who polls completes it when the adapter is dead.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use crate::mapping::Mapping;
use crate::ring::{Ring, Shape};

/// The requests of a queue. Written by who posts, on a line of their own, and hardly ever read.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Posted {
    /// Index behind the last one posted.
    end: AtomicU32,
    /// Entries that begin with the identifier of their request.
    ids: Ring,
}

impl Posted {
    /// Of an empty queue, whose identifiers stand in `ids`.
    pub(crate) fn new(ids: Ring) -> Self {
        Self { end: AtomicU32::new(0), ids }
    }

    /// All requests below `end` are posted.
    #[inline]
    pub(crate) fn publish(&self, end: u32) {
        self.end.store(end, Ordering::Release);
    }

    /// The identifier of the request at `index`, the first that has not completed, if there is one.
    pub(crate) fn outstanding(&self, index: u32) -> Option<u64> {
        let count = self.end.load(Ordering::Acquire).wrapping_sub(index);
        let is = (1..=self.ids.size()).contains(&count);
        is.then(|| self.ids.entry(index).first().map_or(0, |id| id.load(Ordering::Relaxed)))
    }
}

/// Room for what is kept of the entries of a queue that cannot be read back, nor at all when the adapter is gone: the
/// identifier of the request, and a word of its header while that is withheld.
///
/// # Errors
/// Those of mmap.
pub(crate) fn room(log_size: u8) -> Result<Ring, Errno> {
    let shape = Shape { log_size, log_stride: 4 };
    Ring::new(Mapping::anonymous(shape.bytes())?, shape)
}
