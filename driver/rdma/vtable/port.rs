// SPDX-License-Identifier: GPL-2.0
//! Trampolines of ports, of those operations that only one protocol has.

use super::*;
use crate::rdma::{
    port::gid::GidAttr,
    port::mad::{Mad, MadResult},
};

impl<T: Operations> VTable<T> {
    /// The operations of ports of RoCE.
    pub(super) const ROCE: bindings::ib_device_ops = bindings::ib_device_ops {
        get_link_layer: optional!(HAS_GET_LINK_LAYER => get_link_layer),
        query_pkey: optional!(HAS_QUERY_PKEY => query_pkey),
        add_gid: optional!(HAS_ADD_GID => add_gid),
        del_gid: optional!(HAS_ADD_GID => del_gid),
        process_mad: optional!(HAS_PROCESS_MAD => process_mad),
        ..EMPTY
    };

    /// The operations of ports of iWARP.
    pub(super) const IWARP: bindings::ib_device_ops =
        bindings::ib_device_ops { query_gid: optional!(HAS_QUERY_GID => query_gid), ..EMPTY };

    unsafe extern "C" fn query_gid(
        device: *mut bindings::ib_device,
        port: u32,
        index: c_int,
        out: *mut bindings::ib_gid,
    ) -> c_int {
        from_result(|| {
            let index = u32::try_from(index)?;
            // SAFETY: the core calls this as an operation of this device.
            let gid = unsafe { Self::with(device, |_, data| T::query_gid(data, port, index)) }?;
            // SAFETY: the core passes a place of its own; all views of the union are bytes.
            unsafe { out.cast::<[u8; 16]>().write(gid) };
            Ok(0)
        })
    }

    unsafe extern "C" fn get_link_layer(
        _device: *mut bindings::ib_device,
        port: u32,
    ) -> bindings::rdma_link_layer {
        T::get_link_layer(port) as bindings::rdma_link_layer
    }

    unsafe extern "C" fn query_pkey(
        device: *mut bindings::ib_device,
        port: u32,
        index: u16,
        out: *mut u16,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core calls this as an operation of this device.
            let pkey = unsafe { Self::with(device, |_, data| T::query_pkey(data, port, index)) }?;
            // SAFETY: the core passes a place of its own.
            unsafe { *out = pkey };
            Ok(0)
        })
    }

    unsafe extern "C" fn add_gid(
        attr: *const bindings::ib_gid_attr,
        _context: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: this is an operation, with the argument that the core has passed.
        unsafe { Self::with_gid(attr, T::add_gid) }
    }

    unsafe extern "C" fn del_gid(
        attr: *const bindings::ib_gid_attr,
        _context: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: this is an operation, with the argument that the core has passed.
        unsafe { Self::with_gid(attr, T::del_gid) }
    }

    /// Runs `f` with an entry of the GID table.
    ///
    /// # Safety
    ///
    /// To be called from an operation, with its argument.
    unsafe fn with_gid(
        attr: *const bindings::ib_gid_attr,
        f: fn(&T::Data<'_>, &GidAttr) -> Result,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes a valid entry, of one of this driver's devices.
            let device = unsafe { (*attr).device };
            // SAFETY: the core passes a valid entry.
            let gid = unsafe { GidAttr::from_raw(attr) };
            // SAFETY: the caller promises that this is an operation, of the entry's device.
            unsafe { Self::with(device, |_, data| f(data, gid)) }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn process_mad(
        device: *mut bindings::ib_device,
        _flags: c_int,
        port: u32,
        received: *const bindings::ib_wc,
        _grh: *const bindings::ib_grh,
        mad: *const bindings::ib_mad,
        answer: *mut bindings::ib_mad,
        _answer_size: *mut usize,
        _pkey_index: *mut u16,
    ) -> c_int {
        // SAFETY: the core passes a datagram, which does not change during the call.
        let mad = Mad::new(unsafe { &*mad }, received);
        // SAFETY: the core passes a datagram of its own for the answer; what is not written stays
        // as it is.
        let answer = unsafe { &mut (*answer).data };
        // SAFETY: the core calls this as an operation of this device.
        let result: MadResult =
            unsafe { Self::with(device, |_, data| T::process_mad(data, port, &mad, answer)) };
        // CAST: a small bit mask.
        result.bits() as c_int
    }
}
