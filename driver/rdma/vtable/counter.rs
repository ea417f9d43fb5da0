// SPDX-License-Identifier: GPL-2.0
//! Trampolines of sets of counters. The core allocates a set, binds its first queue pair, and keeps
//! the set until the last one is unbound. It holds the lock of a set in all operations but the one
//! that ends it.

use super::*;
use crate::rdma::queues::qp::Qp;

impl<T: Operations> VTable<T> {
    /// The operations of this file.
    pub(super) const COUNTERS: bindings::ib_device_ops = bindings::ib_device_ops {
        size_rdma_counter: core::mem::size_of::<bindings::rdma_counter>(),
        counter_init: optional!(HAS_CREATE_COUNTERS => init_counter),
        counter_alloc_stats: optional!(HAS_CREATE_COUNTERS => alloc_counter_stats),
        counter_bind_qp: optional!(HAS_CREATE_COUNTERS => bind_counter),
        counter_unbind_qp: optional!(HAS_CREATE_COUNTERS => unbind_counter),
        counter_update_stats: optional!(HAS_CREATE_COUNTERS => update_counter),
        counter_dealloc: optional!(HAS_CREATE_COUNTERS => end_counter),
        ..EMPTY
    };

    /// Does nothing: the driver has no part of its own in the core's struct.
    unsafe extern "C" fn init_counter(_counter: *mut bindings::rdma_counter) {}

    unsafe extern "C" fn alloc_counter_stats(
        _counter: *mut bindings::rdma_counter,
    ) -> *mut bindings::rdma_hw_stats {
        Self::alloc_stats()
    }

    unsafe extern "C" fn bind_counter(
        counter: *mut bindings::rdma_counter,
        qp: *mut bindings::ib_qp,
        _port: u32,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes a valid set, whose lock it holds.
            let known = unsafe { (*counter).id };
            // SAFETY: the core passes a queue pair that it tracks, and so one that `create_qp` has
            // set up.
            let set = unsafe {
                Self::on(qp, |data, _, qp: &Qp<T>| {
                    let set = if known == 0 { T::create_counters(data)? } else { known };
                    let bound = T::bind_counters(data, qp, Some(set));
                    if bound.is_err() && known == 0 {
                        // The first error is the one to report.
                        let _ = T::destroy_counters(data, set);
                    }
                    bound.map(|()| set)
                })
            }?;
            // SAFETY: the set is valid, and the core holds its lock.
            unsafe { (*counter).id = set };
            // SAFETY: the queue pair is valid, and the core changes the field by these operations
            // alone, with the lock of the set.
            unsafe { (*qp).counter = counter };
            Ok(0)
        })
    }

    unsafe extern "C" fn unbind_counter(qp: *mut bindings::ib_qp, _port: u32) -> c_int {
        from_result(|| {
            // SAFETY: as in `bind_counter`.
            unsafe { Self::on(qp, |data, _, qp: &Qp<T>| T::bind_counters(data, qp, None)) }?;
            // SAFETY: as in `bind_counter`.
            unsafe { (*qp).counter = core::ptr::null_mut() };
            Ok(0)
        })
    }

    unsafe extern "C" fn update_counter(counter: *mut bindings::rdma_counter) -> c_int {
        from_result(|| {
            // SAFETY: the core passes a valid set, whose lock it holds.
            let (device, set, stats) =
                unsafe { ((*counter).device, (*counter).id, (*counter).stats) };
            // SAFETY: `alloc_counter_stats` has allocated them, and the core holds the lock.
            let values = unsafe { Self::values(stats) };
            // SAFETY: the core calls this as an operation of this device.
            unsafe { Self::with(device, |_, data| T::read_counters(data, set, values)) }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn end_counter(counter: *mut bindings::rdma_counter) -> c_int {
        from_result(|| {
            // SAFETY: the core passes a valid set that it is going to free.
            let (device, set) = unsafe { ((*counter).device, (*counter).id) };
            // SAFETY: the core calls this as an operation of this device.
            unsafe { Self::with(device, |_, data| T::destroy_counters(data, set)) }?;
            Ok(0)
        })
    }
}
