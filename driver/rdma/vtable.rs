// SPDX-License-Identifier: GPL-2.0
//! The table of operations and its trampolines. Each follows one pattern: wrap the core's
//! pointers, call the trait, hand the result back.

use core::{marker::PhantomData, ptr::NonNull};

use kernel::{
    error::from_result,
    ffi::{c_char, c_int, c_uint, c_ulong, c_void},
    fmt,
    prelude::*,
    str::Formatter,
};

use super::{
    bindings,
    device::Device,
    gid::GidAttr,
    mmap,
    object::Object,
    ops::Operations,
    pd::Pd,
    pma,
    stats::StatDesc,
    ucontext::{NewUcontext, Ucontext},
    udata::Udata,
};

mod address;
mod details;
mod memory;
mod queues;
mod srq;

/// Trampolines for driver `T`.
pub(super) struct VTable<T: Operations>(PhantomData<T>);

impl<T: Operations> VTable<T> {
    /// The table; the core copies it.
    pub(super) fn new() -> bindings::ib_device_ops {
        // SAFETY: a plain C struct of numbers and optional functions, for which zero is valid.
        let mut ops: bindings::ib_device_ops = unsafe { core::mem::zeroed() };
        // SAFETY: no preconditions.
        ops.owner = unsafe { bindings::rdma_helper_this_module() };
        ops.driver_id = T::DRIVER_ID;
        ops.uverbs_abi_ver = T::UVERBS_ABI_VERSION;
        ops.set_uverbs_robust_udata(1);

        ops.query_device = Some(Self::query_device);
        ops.query_port = Some(Self::query_port);
        ops.get_port_immutable = Some(Self::get_port_immutable);
        ops.get_link_layer = Some(Self::get_link_layer);
        ops.query_pkey = Some(Self::query_pkey);
        ops.add_gid = Some(Self::add_gid);
        ops.del_gid = Some(Self::del_gid);
        ops.report_port_event = Some(Self::report_port_event);
        ops.get_dev_fw_str = Some(Self::get_dev_fw_str);
        ops.alloc_hw_port_stats = Some(Self::alloc_hw_port_stats);
        ops.get_hw_stats = Some(Self::get_hw_stats);
        ops.process_mad = Some(Self::process_mad);

        ops.size_ib_ucontext = Ucontext::<T>::SIZE;
        ops.alloc_ucontext = Some(Self::alloc_ucontext);
        ops.dealloc_ucontext = Some(Self::dealloc_ucontext);
        ops.disassociate_ucontext = Some(Self::disassociate_ucontext);
        ops.mmap = Some(Self::mmap);
        ops.mmap_free = Some(Self::mmap_free);

        ops.size_ib_pd = Object::<bindings::ib_pd, T::Pd>::SIZE;
        Self::fill_memory(&mut ops);
        Self::fill_address(&mut ops);
        Self::fill_details(&mut ops);
        Self::fill_queues(&mut ops);
        Self::fill_srq(&mut ops);
        ops
    }

    /// Runs `f` with the device and the registration's data.
    ///
    /// # Safety
    ///
    /// To be called from an operation, with the device that it is for.
    unsafe fn with<R>(
        device: *mut bindings::ib_device,
        f: impl for<'a> FnOnce(&'a Device<T>, &'a T::Data<'a>) -> R,
    ) -> R {
        // SAFETY: the core only calls operations of registered devices.
        unsafe { Device::<T>::from_raw(device).with_data(f) }
    }

    unsafe extern "C" fn query_device(
        device: *mut bindings::ib_device,
        out: *mut bindings::ib_device_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core's pointers; `udata` is null for kernel callers.
            if let Some(udata) = unsafe { Udata::from_raw(udata) } {
                udata.none()?;
            }
            // SAFETY: called by the core for this device.
            let attr = unsafe { Self::with(device, |_, data| T::query_device(data)) }?;
            // SAFETY: `out` is the core's, zeroed.
            unsafe { attr.write_to(&mut *out, (*device).node_guid) };
            Ok(0)
        })
    }

    unsafe extern "C" fn query_port(
        device: *mut bindings::ib_device,
        _port: u32,
        out: *mut bindings::ib_port_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: called by the core for this device.
            let attr = unsafe { Self::with(device, |device, data| T::query_port(data, device)) }?;
            // SAFETY: `out` is the core's, zeroed.
            attr.write_to(unsafe { &mut *out });
            Ok(0)
        })
    }

    /// Nothing: the pairing reports such events, those of a port that opens when the driver knows.
    unsafe extern "C" fn report_port_event(
        _device: *mut bindings::ib_device,
        _netdev: *mut bindings::net_device,
        _event: c_ulong,
    ) {
    }

    unsafe extern "C" fn get_port_immutable(
        device: *mut bindings::ib_device,
        _port: u32,
        out: *mut bindings::ib_port_immutable,
    ) -> c_int {
        from_result(|| {
            // SAFETY: called by the core for this device.
            let attr = unsafe { Self::with(device, |device, data| T::query_port(data, device)) }?;
            // SAFETY: `out` is the core's.
            let out = unsafe { &mut *out };
            // `RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP`: management datagrams, and with them the
            // connection manager.
            out.core_cap_flags = bindings::RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP
                | bindings::RDMA_CORE_CAP_IB_MAD
                | bindings::RDMA_CORE_CAP_IB_CM
                | bindings::RDMA_CORE_CAP_AF_IB
                | bindings::RDMA_CORE_CAP_ETH_AH;
            out.gid_tbl_len = attr.gid_table_len.try_into()?;
            out.pkey_tbl_len = 1;
            out.max_mad_size = bindings::IB_MGMT_MAD_SIZE;
            Ok(0)
        })
    }

    unsafe extern "C" fn get_link_layer(
        _device: *mut bindings::ib_device,
        _port: u32,
    ) -> bindings::rdma_link_layer {
        bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET
    }

    unsafe extern "C" fn query_pkey(
        _device: *mut bindings::ib_device,
        _port: u32,
        index: u16,
        out: *mut u16,
    ) -> c_int {
        /// The only one that RoCE has: full member of the default partition.
        const DEFAULT_PKEY: u16 = 0xffff;
        if index != 0 {
            return EINVAL.to_errno();
        }
        // SAFETY: `out` is the core's.
        unsafe { *out = DEFAULT_PKEY };
        0
    }

    unsafe extern "C" fn add_gid(
        attr: *const bindings::ib_gid_attr,
        _context: *mut *mut c_void,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes a valid entry of one of its devices.
            unsafe {
                Self::with((*attr).device, |_, data| T::add_gid(data, GidAttr::from_raw(attr)))
            }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn del_gid(
        attr: *const bindings::ib_gid_attr,
        _context: *mut *mut c_void,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes a valid entry of one of its devices.
            unsafe {
                Self::with((*attr).device, |_, data| T::del_gid(data, GidAttr::from_raw(attr)))
            }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn get_dev_fw_str(device: *mut bindings::ib_device, out: *mut c_char) {
        const LENGTH: usize = bindings::IB_FW_VERSION_NAME_MAX as usize;
        // SAFETY: `out` has room for that many bytes; the last stays zero.
        let buffer = unsafe {
            out.write_bytes(0, LENGTH);
            core::slice::from_raw_parts_mut(out.cast::<u8>(), LENGTH - 1)
        };
        let mut formatter = Formatter::new(buffer);
        // SAFETY: called by the core for this device.
        // What does not fit is left out.
        let _: fmt::Result =
            unsafe { Self::with(device, |_, data| T::fw_version(data, &mut formatter)) };
    }

    unsafe extern "C" fn alloc_hw_port_stats(
        _device: *mut bindings::ib_device,
        _port: u32,
    ) -> *mut bindings::rdma_hw_stats {
        let descs: *const StatDesc = T::STATS.as_ptr();
        let Ok(count) = c_int::try_from(T::STATS.len()) else {
            return core::ptr::null_mut();
        };
        // SAFETY: `StatDesc` is transparent and the table static.
        unsafe {
            bindings::rdma_alloc_hw_stats_struct(
                descs.cast(),
                count,
                bindings::RDMA_HW_STATS_DEFAULT_LIFESPAN as usize,
            )
        }
    }

    unsafe extern "C" fn get_hw_stats(
        device: *mut bindings::ib_device,
        stats: *mut bindings::rdma_hw_stats,
        _port: u32,
        _index: c_int,
    ) -> c_int {
        from_result(|| {
            let count = T::STATS.len();
            // SAFETY: allocated by `alloc_hw_port_stats` with room for so many values, and
            // locked by the core.
            let values = unsafe {
                let first = (&raw mut (*stats).value).cast::<u64>();
                core::slice::from_raw_parts_mut(first, count)
            };
            // SAFETY: called by the core for this device.
            unsafe { Self::with(device, |_, data| T::read_stats(data, values)) }?;
            Ok(c_int::try_from(count)?)
        })
    }

    /// Answers the core's own questions for the port's counters. All else, and whatever came from the network,
    /// goes on to the core's agents.
    unsafe extern "C" fn process_mad(
        device: *mut bindings::ib_device,
        _flags: c_int,
        _port: u32,
        received: *const bindings::ib_wc,
        _grh: *const bindings::ib_grh,
        question: *const bindings::ib_mad,
        answer: *mut bindings::ib_mad,
        _answer_size: *mut usize,
        _pkey_index: *mut u16,
    ) -> c_int {
        // CAST: small bit masks of the core.
        const PASSED: c_int = bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS as c_int;
        const ANSWERED: c_int = PASSED | bindings::ib_mad_result_IB_MAD_RESULT_REPLY as c_int;
        const FAILED: c_int = bindings::ib_mad_result_IB_MAD_RESULT_FAILURE as c_int;
        // SAFETY: the core's datagram.
        let header = unsafe { &(*question).mad_hdr };
        if !received.is_null()
            || u32::from(header.mgmt_class) != bindings::IB_MGMT_CLASS_PERF_MGMT
            || u32::from(header.method) != bindings::IB_MGMT_METHOD_GET
        {
            return PASSED;
        }
        let Some(attribute) = pma::Attribute::from_raw(u16::from_be(header.attr_id)) else {
            return FAILED;
        };
        // SAFETY: called by the core for this device.
        let counters = unsafe { Self::with(device, |_, data| T::port_counters(data)) };
        let Ok(counters) = counters else { return FAILED };
        // SAFETY: the core's own datagram, with room for the data; what is not written there stays as it is.
        let data = unsafe { &mut (*answer).data };
        if let Some(out) = data.get_mut(pma::DATA_OFFSET..) {
            // CAST: there is one port.
            counters.write(attribute, super::device::PORT as u8, out);
        }
        ANSWERED
    }

    unsafe extern "C" fn alloc_ucontext(
        context: *mut bindings::ib_ucontext,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the new context and the command's payload.
            let (udata, device) = unsafe { (Udata::from_raw(udata), (*context).device) };
            let udata = udata.ok_or(EINVAL)?;
            let context = NonNull::new(context).ok_or(EINVAL)?;
            // SAFETY: as above.
            let context = unsafe { NewUcontext::<T>::new(context) }?;
            // SAFETY: called by the core for this device.
            let driver =
                unsafe { Self::with(device, |_, data| T::alloc_ucontext(data, &context, &udata)) };
            // SAFETY: called once.
            unsafe { context.finish(driver) }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn dealloc_ucontext(context: *mut bindings::ib_ucontext) {
        // SAFETY: a context that `alloc_ucontext` has set up; nobody uses it after this.
        unsafe {
            let this = Ucontext::<T>::from_raw(context);
            this.remove_all_mappings();
            Self::with((*context).device, |_, data| T::dealloc_ucontext(data, this));
            NewUcontext::<T>::destroy(context);
        }
    }

    /// The core has already unmapped everything; nothing else keeps the device.
    unsafe extern "C" fn disassociate_ucontext(_context: *mut bindings::ib_ucontext) {}

    unsafe extern "C" fn mmap(
        context: *mut bindings::ib_ucontext,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core's pointers, valid for the call.
            unsafe { mmap::map(context, vma) }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn mmap_free(entry: *mut bindings::rdma_user_mmap_entry) {
        // SAFETY: the core calls this once, for a key that has been removed.
        unsafe { mmap::free(entry) };
    }
}
