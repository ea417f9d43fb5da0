//! Queues that allocate memory when it is needed: first for a few entries, then for all.

use std::collections::VecDeque;

/// Number of entries for which a queue allocates memory at first.
pub const FEW: usize = 8;

/// Makes room for another entry of a queue of at most `capacity` entries.
pub(crate) fn make_room<T>(queue: &mut VecDeque<T>, capacity: usize) {
    if queue.len() == queue.capacity() {
        let places = if queue.len() < FEW { FEW.min(capacity) } else { capacity };
        queue.reserve_exact(places.saturating_sub(queue.len()));
    }
}

/// Returns the number of bytes of a queue with room for more than a few entries, or 0 for a few.
pub(crate) const fn bytes<T>(capacity: usize) -> usize {
    if capacity > FEW { capacity * size_of::<T>() } else { 0 }
}
