// SPDX-License-Identifier: GPL-2.0
//! Trampolines of protection domains and regions.

use super::*;
use crate::rdma::{
    mr::{Mr, NewMr, UserRegion},
    udata::User,
};

impl<T: Operations> VTable<T> {
    /// Fills in this file's operations.
    pub(super) fn fill_memory(ops: &mut bindings::ib_device_ops) {
        ops.alloc_pd = Some(Self::alloc_pd);
        ops.dealloc_pd = Some(Self::dealloc_pd);
        ops.get_dma_mr = Some(Self::get_dma_mr);
        ops.reg_user_mr = Some(Self::reg_user_mr);
        ops.dereg_mr = Some(Self::dereg_mr);
    }

    unsafe extern "C" fn alloc_pd(
        pd: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the command's payload, or null.
            let user = unsafe { User::from_raw(udata) };
            // SAFETY: called by the core for this device.
            let driver =
                unsafe { Self::with((*pd).device, |_, data| T::alloc_pd(data, user.as_ref())) }?;
            // SAFETY: allocated by the core with the size in the table, and still private.
            unsafe { Object::init(pd, driver) };
            Ok(0)
        })
    }

    unsafe extern "C" fn dealloc_pd(
        pd: *mut bindings::ib_pd,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: set up by `alloc_pd`; nobody uses it after success.
            unsafe {
                let this = Pd::<T>::from_raw(pd);
                Self::with((*pd).device, |_, data| T::dealloc_pd(data, this))?;
                Object::<_, T::Pd>::destroy(pd);
            }
            Ok(0)
        })
    }

    /// Allocates the core's region, or takes the driver's back.
    fn allocate(data: &T::Data<'_>, new: Result<NewMr<T::Mr>>) -> *mut bindings::ib_mr {
        let mr = new.and_then(|new| {
            let allocation = Mr::allocate(new);
            allocation.map_err(|(error, new)| {
                if let Err(error) = T::dereg_mr(data, &new.driver) {
                    pr_err!("a region leaked in the device: {error:?}\n");
                }
                error
            })
        });
        mr.unwrap_or_else(|error| error.to_ptr())
    }

    unsafe extern "C" fn get_dma_mr(
        pd: *mut bindings::ib_pd,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        // SAFETY: the core passes a live protection domain of this driver.
        unsafe {
            Self::with((*pd).device, |_, data| {
                let pd = Pd::<T>::from_raw(pd);
                Self::allocate(data, T::get_dma_mr(data, pd, access as u32))
            })
        }
    }

    unsafe extern "C" fn reg_user_mr(
        pd: *mut bindings::ib_pd,
        start: u64,
        length: u64,
        iova: u64,
        access: c_int,
        dmah: *mut bindings::ib_dmah,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        if !dmah.is_null() {
            return EOPNOTSUPP.to_ptr();
        }
        // SAFETY: the core passes the command's payload, or null.
        if let Some(Err(error)) = unsafe { Udata::from_raw(udata) }.map(|udata| udata.none()) {
            return error.to_ptr();
        }
        let region = UserRegion { start, length, iova, access: access as u32 };
        // SAFETY: the core passes a live protection domain of this driver.
        unsafe {
            Self::with((*pd).device, |device, data| {
                let pd = Pd::<T>::from_raw(pd);
                Self::allocate(data, T::reg_user_mr(data, device, pd, &region))
            })
        }
    }

    unsafe extern "C" fn dereg_mr(
        mr: *mut bindings::ib_mr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: made by `allocate`; nobody uses it after success.
            unsafe {
                let driver = Mr::<T::Mr>::driver(mr);
                Self::with((*mr).device, |_, data| T::dereg_mr(data, driver))?;
                Mr::<T::Mr>::free(mr);
            }
            Ok(0)
        })
    }
}
