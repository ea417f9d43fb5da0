//! Queues that allocate memory when they need it: first for a few entries, then for all entries.

use std::collections::VecDeque;

/// Number of entries for which a queue allocates memory at first.
pub const INITIAL_CAPACITY: usize = 8;

/// Makes room for another entry of a queue of at most `capacity` entries.
pub(crate) fn make_room<T>(queue: &mut VecDeque<T>, capacity: usize) {
    if queue.len() == queue.capacity() {
        let places =
            if queue.len() < INITIAL_CAPACITY { INITIAL_CAPACITY.min(capacity) } else { capacity };
        queue.reserve_exact(places.saturating_sub(queue.len()));
    }
}

/// Returns the number of bytes of a queue with this capacity, or 0 if the capacity is at most
/// [`INITIAL_CAPACITY`].
pub(crate) const fn bytes<T>(capacity: usize) -> usize {
    if capacity > INITIAL_CAPACITY { capacity * size_of::<T>() } else { 0 }
}
