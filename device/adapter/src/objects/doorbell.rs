//! The worker that polls a doorbell.

use vrnic_abi::SlotIndex;

/// Returns the groups whose doorbells `worker` of `workers` polls, as bits of the summary.
#[must_use]
pub fn groups_of(worker: usize, workers: usize) -> u64 {
    (worker..64).step_by(workers.max(1)).fold(0, |mask, group| mask | 1 << group)
}

/// Returns the worker, of `workers`, that polls the doorbell of `slot`.
#[must_use]
pub fn worker_of(slot: SlotIndex, workers: usize) -> usize {
    slot.group() as usize % workers.max(1)
}
