//! Where doorbells are in BAR2, and which worker looks at them.

use vrnic_abi::uar::{SLOT_LEN, UAR_LEN};

/// Returns the offset in BAR2 of a slot.
#[must_use]
pub fn offset(uar: u32, slot: u32) -> u64 {
    base(uar) + u64::from(slot) * u64::from(SLOT_LEN)
}

/// Returns the offset in BAR2 of a UAR.
#[must_use]
pub fn base(uar: u32) -> u64 {
    u64::from(uar) * u64::from(UAR_LEN)
}

/// Returns the groups whose doorbells `worker` of `workers` looks at, as bits of the summary.
#[must_use]
pub fn groups_of(worker: usize, workers: usize) -> u64 {
    (worker..64).step_by(workers.max(1)).fold(0, |mask, group| mask | 1 << group)
}

/// Returns the worker, of `workers`, that looks at the doorbell of `slot`.
#[must_use]
pub fn worker_of(slot: u32, workers: usize) -> usize {
    vrnic_abi::uar::group(slot) as usize % workers.max(1)
}
