// SPDX-License-Identifier: GPL-2.0
//! Sets of counters that count the work of some queue pairs (`rdma statistic qp`).

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

use super::{driver::Driver, queues::qp::Qp};

/// The operations of sets of counters. A set has a number of the device, which is not zero.
///
/// C: `counter_*` of `struct ib_device_ops`.
#[vtable]
pub(crate) trait CounterOperations: Driver {
    /// Creates a set, and returns its number.
    fn create_counters(_data: &Self::Data<'_>) -> Result<u32> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Destroys a set, which counts the work of no queue pair.
    fn destroy_counters(_data: &Self::Data<'_>, _set: u32) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Makes a set, or none, count the work of a queue pair from now on.
    fn bind_counters(_data: &Self::Data<'_>, _qp: &Qp<Self>, _set: Option<u32>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Reads the counters of a set, in the order of
    /// [`Operations::STATS`](super::ops::Operations::STATS).
    fn read_counters(_data: &Self::Data<'_>, _set: u32, _values: &mut [u64]) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}
