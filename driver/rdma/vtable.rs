// SPDX-License-Identifier: GPL-2.0
//! The tables of operations and their trampolines. Each follows one pattern: wrap the core's
//! pointers, call the trait, hand the result back.
//!
//! All trampolines rely on what the core promises to the functions of `struct ib_device_ops`: they
//! are called for registered devices of this driver; an object that they get is one that the
//! creating operation of this table has set up, and no other code uses one that is being created or
//! that has been destroyed; pointers to attributes are valid during the call. Where a client's
//! handle of a queue pair comes without a look by the core, it may be one of an XRC target, which
//! the driver has not set up: see [`Qp::from_handle`](super::queues::qp::Qp::from_handle).
//!
//! | module | what it holds |
//! | --- | --- |
//! | `port` | ports, of those operations that only one protocol has |
//! | `address` | address handles and multicast groups |
//! | `memory` | protection domains, regions and windows |
//! | `queues` | completion queues and queue pairs |
//! | `srq` | shared receive queues |
//! | `xrcd` | XRC domains |
//! | `dm` | device memory |
//! | `flow` | flows |
//! | `wq` | work queues and tables of them |
//! | `counter` | sets of counters for the work of some queue pairs |
//! | `restrack` | what `rdma resource show` asks drivers for |
//! | `iwcm` | the connection manager of iWARP devices |

use core::{marker::PhantomData, ptr::NonNull};

use kernel::{
    error::from_result,
    ffi::{c_char, c_int, c_uint, c_ulong, c_void},
    fmt,
    module::this_module,
    prelude::*,
    str::Formatter,
};

use super::{
    device::{Device, DeviceChange},
    object::{Object, Wrapper},
    ops::Operations,
    pd::Pd,
    port::attr::Protocol,
    port::stats::StatDesc,
    user::mmap,
    user::ucontext::{NewUcontext, Ucontext},
    user::udata::Udata,
};
use crate::bindings;

/// The entry of an operation that drivers may lack. Operations without which the core could not use
/// or destroy what another one creates depend on that one: a driver that has it and lacks them does
/// not link.
macro_rules! optional {
    ($has:ident => $operation:ident) => {
        if T::$has { Some(Self::$operation) } else { None }
    };
}

mod address;
mod counter;
mod dm;
mod flow;
mod iwcm;
mod memory;
mod port;
mod queues;
mod restrack;
mod srq;
mod wq;
mod xrcd;

/// A table without operations.
// SAFETY: a C struct of numbers and optional pointers, for which zero is valid.
const EMPTY: bindings::ib_device_ops = unsafe { core::mem::zeroed() };

/// Trampolines for driver `T`.
pub(super) struct VTable<T: Operations>(PhantomData<T>);

/// The C struct of an object, which names its device.
trait CoreObject {
    /// Returns its device.
    ///
    /// # Safety
    ///
    /// `object` must be valid.
    unsafe fn device(object: *mut Self) -> *mut bindings::ib_device;
}

macro_rules! core_objects {
    ($($object:ident)*) => {
        $(impl CoreObject for bindings::$object {
            unsafe fn device(object: *mut Self) -> *mut bindings::ib_device {
                // SAFETY: the caller promises that the object is valid. The field does not change.
                unsafe { (*object).device }
            }
        })*
    };
}

core_objects! {
    ib_ah ib_cq ib_dm ib_flow ib_mr ib_mw ib_pd ib_qp ib_rwq_ind_table ib_srq ib_ucontext ib_wq
    ib_xrcd
}

impl<T: Operations> VTable<T> {
    /// The tables of devices of any protocol; the core takes from each what it has.
    pub(super) const COMMON: &'static [&'static bindings::ib_device_ops] = &[
        &Self::COUNTERS,
        &Self::DEVICE,
        &Self::DEVICE_MEMORY,
        &Self::FLOWS,
        &Self::MEMORY,
        &Self::QUEUES,
        &Self::RESTRACK,
        &Self::SRQ,
        &Self::WORK_QUEUES,
    ];

    /// Returns the further tables of devices of this protocol, which an iWARP device's connection
    /// manager completes.
    pub(super) fn of_protocol(protocol: Protocol) -> &'static [&'static bindings::ib_device_ops] {
        match protocol {
            Protocol::Roce => const { &[&Self::ROCE, &Self::ADDRESS, &Self::XRCD] },
            Protocol::Iwarp => const { &[&Self::IWARP] },
        }
    }

    /// Operations of the device and its ports, and of contexts.
    const DEVICE: bindings::ib_device_ops = bindings::ib_device_ops {
        owner: this_module::<<T as Operations>::OwnerModule>().as_ptr(),
        driver_id: T::DRIVER_ID,
        uverbs_abi_ver: T::UVERBS_ABI_VERSION,
        query_device: Some(Self::query_device),
        modify_device: optional!(HAS_MODIFY_DEVICE => modify_device),
        query_port: Some(Self::query_port),
        get_port_immutable: Some(Self::get_port_immutable),
        report_port_event: optional!(HAS_REPORT_PORT_EVENT => report_port_event),
        get_dev_fw_str: optional!(HAS_GET_DEV_FW_STR => get_dev_fw_str),
        alloc_hw_port_stats: optional!(HAS_GET_HW_STATS => alloc_hw_port_stats),
        get_hw_stats: optional!(HAS_GET_HW_STATS => get_hw_stats),
        modify_hw_stat: optional!(HAS_MODIFY_HW_STAT => modify_hw_stat),
        size_ib_ucontext: Ucontext::<T>::SIZE,
        alloc_ucontext: optional!(HAS_ALLOC_UCONTEXT => alloc_ucontext),
        dealloc_ucontext: optional!(HAS_ALLOC_UCONTEXT => dealloc_ucontext),
        query_ucontext: optional!(HAS_QUERY_UCONTEXT => query_ucontext),
        disassociate_ucontext: optional!(HAS_ALLOC_UCONTEXT => disassociate_ucontext),
        mmap: optional!(HAS_ALLOC_UCONTEXT => mmap),
        mmap_free: optional!(HAS_ALLOC_UCONTEXT => mmap_free),
        ..EMPTY
    };

    /// Runs `f` with the device and the registration's data.
    ///
    /// # Safety
    ///
    /// To be called from an operation, with the device that it is for.
    unsafe fn with<R>(
        device: *mut bindings::ib_device,
        f: impl for<'a> FnOnce(&'a Device<T>, &'a T::Data<'a>) -> R,
    ) -> R {
        // SAFETY: the core calls operations of registered devices only, and only a `Device<T>` has
        // this table.
        let device = unsafe { Device::<T>::from_raw(device) };
        // SAFETY: the caller promises that this is an operation of the device.
        unsafe { device.with_data(f) }
    }

    /// Runs `f` with the device of an object and the registration's data.
    ///
    /// # Safety
    ///
    /// To be called from an operation, with an object that the core has passed to it.
    unsafe fn with_device_of<C: CoreObject, R>(
        object: *mut C,
        f: impl for<'a> FnOnce(&'a Device<T>, &'a T::Data<'a>) -> R,
    ) -> R {
        // SAFETY: the core passes valid objects, whose device it has set before.
        let device = unsafe { C::device(object) };
        // SAFETY: the caller promises that this is an operation, which is one of the object's
        // device.
        unsafe { Self::with(device, f) }
    }

    /// Runs `f` with the registration's data, the device of an object, and the object.
    ///
    /// # Safety
    ///
    /// To be called from an operation, with an object that the core has passed to it, and that the
    /// creating operation has set up as an `O`.
    unsafe fn on<O: Wrapper<Core: CoreObject>, R>(
        object: *mut O::Core,
        f: impl FnOnce(&T::Data<'_>, &Device<T>, &O) -> R,
    ) -> R {
        // SAFETY: the caller promises that the object was set up. The core keeps it until the
        // operation has returned.
        let this = unsafe { O::from_raw(object) };
        // SAFETY: the caller promises that this is an operation, with an object of the core's.
        unsafe { Self::with_device_of(object, |device, data| f(data, device, this)) }
    }

    /// Destroys an object by `f`, and drops the driver's part of it if that succeeds.
    ///
    /// # Safety
    ///
    /// As for [`Self::on`], from the operation that destroys the object. If `f` succeeds, it must
    /// have revoked the object's link, if there is one.
    unsafe fn destroy<O: Wrapper<Core: CoreObject>>(
        object: *mut O::Core,
        f: impl FnOnce(&T::Data<'_>, &O) -> Result,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the caller promises what the callee asks for.
            unsafe { Self::on(object, |data, _, this| f(data, this)) }?;
            // SAFETY: the device has let go of the object, its link was revoked, and the core frees
            // it after this, so no code uses it.
            unsafe { O::destroy(object) };
            Ok(0)
        })
    }

    unsafe extern "C" fn query_device(
        device: *mut bindings::ib_device,
        out: *mut bindings::ib_device_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the payload of the command, or null to kernel callers.
            unsafe { Udata::expect_none(udata) }?;
            // SAFETY: the core calls this as an operation of this device.
            let attr = unsafe { Self::with(device, |_, data| T::query_device(data)) }?;
            // SAFETY: the device is valid; its GUID does not change.
            let guid = unsafe { (*device).node_guid };
            // SAFETY: the core passes a struct of its own that it has zeroed (`setup_device`,
            // `ib_uverbs_ex_query_device`).
            attr.write_to(unsafe { &mut *out }, guid);
            Ok(0)
        })
    }

    unsafe extern "C" fn modify_device(
        device: *mut bindings::ib_device,
        mask: c_int,
        change: *mut bindings::ib_device_modify,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes a struct that does not change, and whose fields that the mask
            // names its caller has set.
            let change = unsafe { DeviceChange::from_raw(change, mask) }?;
            // SAFETY: the core calls this as an operation of this device.
            unsafe { Self::with(device, |_, data| T::modify_device(data, &change)) }?;
            if let Some(description) = change.node_desc {
                // SAFETY: the device is valid; only the field's address is made.
                let field = unsafe { &raw mut (*device).node_desc };
                // SAFETY: the field is part of a valid device. Only the core reads it, byte by
                // byte, so that one that is being changed does no harm.
                unsafe { field.write(description) };
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn query_port(
        device: *mut bindings::ib_device,
        port: u32,
        out: *mut bindings::ib_port_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core calls this as an operation of this device.
            let attr =
                unsafe { Self::with(device, |device, data| T::query_port(data, device, port)) }?;
            // SAFETY: the core passes a struct of its caller's that it has zeroed
            // (`__ib_query_port`, `iw_query_port`).
            attr.write_to(unsafe { &mut *out });
            Ok(0)
        })
    }

    unsafe extern "C" fn report_port_event(
        device: *mut bindings::ib_device,
        _netdev: *mut bindings::net_device,
        event: c_ulong,
    ) {
        // SAFETY: the core calls this as an operation of this device.
        unsafe { Self::with(device, |_, data| T::report_port_event(data, event)) };
    }

    unsafe extern "C" fn get_port_immutable(
        device: *mut bindings::ib_device,
        port: u32,
        out: *mut bindings::ib_port_immutable,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core calls this as an operation of this device.
            let port = unsafe { Self::with(device, |_, data| T::get_port_immutable(data, port)) }?;
            // SAFETY: the core passes a struct of its own, which `alloc_port_data` has zeroed.
            port.write_to(unsafe { &mut *out });
            Ok(0)
        })
    }

    unsafe extern "C" fn get_dev_fw_str(device: *mut bindings::ib_device, out: *mut c_char) {
        const LENGTH: usize = bindings::IB_FW_VERSION_NAME_MAX as usize;
        // SAFETY: the core passes room for that many bytes.
        unsafe { out.write_bytes(0, LENGTH) };
        // SAFETY: the bytes were written above; the last stays zero.
        let buffer = unsafe { core::slice::from_raw_parts_mut(out.cast::<u8>(), LENGTH - 1) };
        let mut formatter = Formatter::new(buffer);
        // The rest of a long text is left out.
        let _: fmt::Result =
            // SAFETY: the core calls this as an operation of this device.
            unsafe { Self::with(device, |_, data| T::get_dev_fw_str(data, &mut formatter)) };
    }

    unsafe extern "C" fn alloc_hw_port_stats(
        _device: *mut bindings::ib_device,
        _port: u32,
    ) -> *mut bindings::rdma_hw_stats {
        Self::alloc_stats()
    }

    /// Allocates room for the values of all counters.
    fn alloc_stats() -> *mut bindings::rdma_hw_stats {
        let descs: *const StatDesc = T::STATS.as_ptr();
        let Ok(count) = c_int::try_from(T::STATS.len()) else {
            return core::ptr::null_mut();
        };
        let lifespan = bindings::RDMA_HW_STATS_DEFAULT_LIFESPAN as usize;
        // SAFETY: `StatDesc` is transparent, and the table of that length is static.
        unsafe { bindings::rdma_helper_alloc_stats(descs.cast(), count, lifespan) }
    }

    unsafe extern "C" fn get_hw_stats(
        device: *mut bindings::ib_device,
        stats: *mut bindings::rdma_hw_stats,
        port: u32,
        _index: c_int,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes what `alloc_hw_port_stats` has allocated, with its lock held.
            let values = unsafe { Self::values(stats) };
            // SAFETY: the core calls this as an operation of this device.
            unsafe { Self::with(device, |_, data| T::get_hw_stats(data, port, values)) }?;
            Ok(c_int::try_from(T::STATS.len())?)
        })
    }

    unsafe extern "C" fn modify_hw_stat(
        device: *mut bindings::ib_device,
        port: u32,
        index: c_uint,
        enable: bool,
    ) -> c_int {
        from_result(|| {
            let index = usize::try_from(index)?;
            // SAFETY: the core calls this as an operation of this device.
            unsafe { Self::with(device, |_, data| T::modify_hw_stat(data, port, index, enable)) }?;
            Ok(0)
        })
    }

    /// Returns the values of all counters.
    ///
    /// # Safety
    ///
    /// `stats` must come from [`Self::alloc_stats`], and no other code use it during `'a`.
    unsafe fn values<'a>(stats: *mut bindings::rdma_hw_stats) -> &'a mut [u64] {
        // SAFETY: the caller passes a valid struct; only the field's address is made.
        let first = unsafe { (&raw mut (*stats).value).cast::<u64>() };
        // SAFETY: there is room for this many values, and the caller gives access to them.
        unsafe { core::slice::from_raw_parts_mut(first, T::STATS.len()) }
    }

    unsafe extern "C" fn alloc_ucontext(
        context: *mut bindings::ib_ucontext,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the payload of the command.
            let udata = unsafe { Udata::from_raw(udata) }.ok_or(EINVAL)?;
            let raw = NonNull::new(context).ok_or(EINVAL)?;
            // SAFETY: the core passes the context that it is opening.
            let new = unsafe { NewUcontext::<T>::new(raw) }?;
            // SAFETY: the core calls this as an operation of the context's device.
            let driver = unsafe {
                Self::with_device_of(context, |_, data| T::alloc_ucontext(data, &new, &udata))
            };
            // SAFETY: called once, in the trampoline that made `new`.
            unsafe { new.finish(driver) }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn dealloc_ucontext(context: *mut bindings::ib_ucontext) {
        // SAFETY: the core passes a context that `alloc_ucontext` has set up.
        unsafe {
            Self::on(context, |data, _, context: &Ucontext<T>| {
                context.remove_all_mappings();
                T::dealloc_ucontext(data, context);
            })
        };
        // SAFETY: the core frees the context after this, so no code uses it.
        unsafe { Ucontext::<T>::destroy(context) };
    }

    unsafe extern "C" fn query_ucontext(
        context: *mut bindings::ib_ucontext,
        bundle: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the bundle belongs to the method that runs.
            let raw = unsafe { bindings::rdma_helper_bundle_udata(bundle) };
            // SAFETY: the payload is part of the bundle.
            let udata = unsafe { Udata::from_raw(raw) }.ok_or(EINVAL)?;
            // SAFETY: the core passes a context that `alloc_ucontext` has set up.
            unsafe {
                Self::on(context, |data, _, context: &Ucontext<T>| {
                    T::query_ucontext(data, context, &udata)
                })
            }?;
            Ok(0)
        })
    }

    /// Does nothing: the core has already unmapped everything, and nothing else keeps the device.
    unsafe extern "C" fn disassociate_ucontext(_context: *mut bindings::ib_ucontext) {}

    unsafe extern "C" fn mmap(
        context: *mut bindings::ib_ucontext,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes an open context and the area that mmap is setting up.
            unsafe { mmap::map(context, vma) }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn mmap_free(entry: *mut bindings::rdma_user_mmap_entry) {
        // SAFETY: the core calls this once for each key, when it has been removed and its mappings
        // have gone.
        unsafe { mmap::free(entry) };
    }
}
