// SPDX-License-Identifier: GPL-2.0
//! Trampolines of protection domains, regions and windows.

use super::*;
use crate::rdma::{
    mr::{self, Mr, NewMr, RegionChange, UserRegion},
    mw::{Mw, MwType},
    udata::User,
};

impl<T: Operations> VTable<T> {
    /// Fills in this file's operations.
    pub(super) fn fill_memory(ops: &mut bindings::ib_device_ops) {
        ops.alloc_pd = Some(Self::alloc_pd);
        ops.dealloc_pd = Some(Self::dealloc_pd);
        ops.get_dma_mr = Some(Self::get_dma_mr);
        ops.reg_user_mr = Some(Self::reg_user_mr);
        ops.reg_user_mr_dmabuf = Some(Self::reg_user_mr_dmabuf);
        ops.rereg_user_mr = Some(Self::rereg_user_mr);
        ops.dereg_mr = Some(Self::dereg_mr);
        ops.alloc_mr = Some(Self::alloc_mr);
        ops.map_mr_sg = Some(Self::map_mr_sg);
        ops.size_ib_mw = Mw::<T>::SIZE;
        ops.alloc_mw = Some(Self::alloc_mw);
        ops.dealloc_mw = Some(Self::dealloc_mw);
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

    /// The core's region, or the error as the core wants it.
    fn allocate(create: impl FnOnce() -> Result<NewMr<T::Mr>>) -> *mut bindings::ib_mr {
        Mr::allocate(create).unwrap_or_else(|error| error.to_ptr())
    }

    unsafe extern "C" fn get_dma_mr(
        pd: *mut bindings::ib_pd,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        // SAFETY: the core passes a live protection domain of this driver.
        unsafe {
            Self::with((*pd).device, |_, data| {
                let pd = Pd::<T>::from_raw(pd);
                Self::allocate(|| T::get_dma_mr(data, pd, access as u32))
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
        let udata = unsafe { Udata::from_raw(udata) };
        let region = UserRegion { start, length, iova, access: access as u32 };
        // SAFETY: the core passes a live protection domain of this driver.
        unsafe {
            Self::with((*pd).device, |device, data| {
                let pd = Pd::<T>::from_raw(pd);
                let udata = udata.as_ref();
                Self::allocate(|| T::reg_user_mr(data, device, pd, &region, udata))
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

    unsafe extern "C" fn reg_user_mr_dmabuf(
        pd: *mut bindings::ib_pd,
        offset: u64,
        length: u64,
        iova: u64,
        fd: c_int,
        access: c_int,
        dmah: *mut bindings::ib_dmah,
        _bundle: *mut bindings::uverbs_attr_bundle,
    ) -> *mut bindings::ib_mr {
        if !dmah.is_null() {
            return EOPNOTSUPP.to_ptr();
        }
        let region = UserRegion { start: offset, length, iova, access: access as u32 };
        // SAFETY: the core passes a live protection domain of this driver.
        unsafe {
            Self::with((*pd).device, |device, data| {
                let pd = Pd::<T>::from_raw(pd);
                Self::allocate(|| T::reg_dmabuf_mr(data, device, pd, &region, fd))
            })
        }
    }

    unsafe extern "C" fn rereg_user_mr(
        mr: *mut bindings::ib_mr,
        flags: c_int,
        start: u64,
        length: u64,
        iova: u64,
        access: c_int,
        pd: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        let has = |flag| flags as u32 & flag != 0;
        let access = access as u32;
        let run = || {
            // SAFETY: the core passes the command's payload, or null.
            if let Some(udata) = unsafe { Udata::from_raw(udata) } {
                udata.none()?;
            }
            let change =
                RegionChange {
                    memory: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS)
                        .then_some(UserRegion { start, length, iova, access }),
                    // SAFETY: with this flag the core passes a live protection domain of this driver.
                    pd: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_PD)
                        .then(|| unsafe { Pd::<T>::from_raw(pd) }),
                    access: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS).then_some(access),
                };
            // SAFETY: made by `allocate`; the core lets nobody else use it during the call.
            unsafe {
                let driver = Mr::<T::Mr>::driver(mr);
                let key = Self::with((*mr).device, |device, data| {
                    T::rereg_user_mr(data, device, driver, &change)
                })?;
                (*mr).lkey = key;
                (*mr).rkey = key;
            }
            Ok(())
        };
        // Null: it is the same region.
        run().map_or_else(|error: Error| error.to_ptr(), |()| core::ptr::null_mut())
    }

    unsafe extern "C" fn alloc_mr(
        pd: *mut bindings::ib_pd,
        kind: bindings::ib_mr_type,
        max_pages: u32,
    ) -> *mut bindings::ib_mr {
        if kind != bindings::ib_mr_type_IB_MR_TYPE_MEM_REG {
            return EOPNOTSUPP.to_ptr();
        }
        // SAFETY: the core passes a live protection domain of this driver.
        unsafe {
            Self::with((*pd).device, |_, data| {
                let pd = Pd::<T>::from_raw(pd);
                Self::allocate(|| T::alloc_mr(data, pd, max_pages))
            })
        }
    }

    unsafe extern "C" fn map_mr_sg(
        mr: *mut bindings::ib_mr,
        list: *mut bindings::scatterlist,
        entries: c_int,
        offset: *mut c_uint,
    ) -> c_int {
        // SAFETY: made by `allocate`, and the client's alone.
        let Some(pages) = (unsafe { mr::page_list(mr) }) else { return EINVAL.to_errno() };
        pages.clear();
        // SAFETY: the client's list, mapped for DMA; `set_page` is called for `mr` only.
        unsafe { bindings::ib_sg_to_pages(mr, list, entries, offset, Some(Self::set_page)) }
    }

    unsafe extern "C" fn set_page(mr: *mut bindings::ib_mr, address: u64) -> c_int {
        from_result(|| {
            // SAFETY: the region that `map_mr_sg` was called for.
            unsafe { mr::page_list(mr) }.ok_or(EINVAL)?.push(address)?;
            Ok(0)
        })
    }

    unsafe extern "C" fn alloc_mw(
        mw: *mut bindings::ib_mw,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the command's payload, or null.
            if let Some(udata) = unsafe { Udata::from_raw(udata) } {
                udata.none()?;
            }
            // SAFETY: the core has set up its struct; the protection domain is this driver's.
            let new = unsafe {
                let kind = MwType::from_raw((*mw).type_).ok_or(EINVAL)?;
                Self::with((*mw).device, |_, data| {
                    T::alloc_mw(data, Pd::<T>::from_raw((*mw).pd), kind)
                })
            }?;
            // SAFETY: allocated by the core with the size in the table, and still private.
            unsafe {
                (*mw).rkey = new.rkey;
                Object::init(mw, new.driver);
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn dealloc_mw(mw: *mut bindings::ib_mw) -> c_int {
        from_result(|| {
            // SAFETY: set up by `alloc_mw`; nobody uses it after success.
            unsafe {
                let this = Mw::<T>::from_raw(mw);
                Self::with((*mw).device, |_, data| T::dealloc_mw(data, this))?;
                Object::<_, T::Mw>::destroy(mw);
            }
            Ok(0)
        })
    }
}
