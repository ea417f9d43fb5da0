// SPDX-License-Identifier: GPL-2.0
//! Trampolines of protection domains, regions and windows.

use super::*;
use crate::rdma::{
    memory::mr::{self, Advice, Mr, NewMr, RegionChange, UserRegion},
    memory::mw::{Mw, MwType},
    user::ucontext::User,
};

impl<T: Operations> VTable<T> {
    /// The operations of this file.
    pub(super) const MEMORY: bindings::ib_device_ops = bindings::ib_device_ops {
        size_ib_pd: Pd::<T>::SIZE,
        alloc_pd: Some(Self::alloc_pd),
        dealloc_pd: Some(Self::dealloc_pd),
        get_dma_mr: Some(Self::get_dma_mr),
        reg_user_mr: Some(Self::reg_user_mr),
        reg_user_mr_dmabuf: optional!(HAS_REG_USER_MR_DMABUF => reg_user_mr_dmabuf),
        rereg_user_mr: optional!(HAS_REREG_USER_MR => rereg_user_mr),
        dereg_mr: Some(Self::dereg_mr),
        advise_mr: optional!(HAS_ADVISE_MR => advise_mr),
        alloc_mr: optional!(HAS_ALLOC_MR => alloc_mr),
        map_mr_sg: optional!(HAS_ALLOC_MR => map_mr_sg),
        size_ib_mw: Mw::<T>::SIZE,
        alloc_mw: optional!(HAS_ALLOC_MW => alloc_mw),
        dealloc_mw: optional!(HAS_ALLOC_MW => dealloc_mw),
        ..EMPTY
    };

    unsafe extern "C" fn alloc_pd(
        pd: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the payload of a command of an open context, or null.
            let user = unsafe { User::from_raw(udata) };
            // SAFETY: the core calls this as an operation of the domain's device.
            let driver =
                unsafe { Self::with_device_of(pd, |_, data| T::alloc_pd(data, user.as_ref())) }?;
            // SAFETY: the core has allocated the domain with the size in the table, and only this
            // call knows it.
            unsafe { Object::init(pd, driver) };
            Ok(0)
        })
    }

    unsafe extern "C" fn dealloc_pd(
        pd: *mut bindings::ib_pd,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: this destroys a domain that `alloc_pd` has set up.
        unsafe { Self::destroy(pd, T::dealloc_pd) }
    }

    /// Creates a region in a domain. Returns the core's struct of it, or an error pointer.
    ///
    /// # Safety
    ///
    /// To be called from an operation, with a domain that the core has passed to it.
    pub(super) unsafe fn allocate(
        pd: *mut bindings::ib_pd,
        create: impl FnOnce(&T::Data<'_>, &Device<T>, &Pd<T>) -> Result<NewMr<T::Mr>>,
    ) -> *mut bindings::ib_mr {
        // SAFETY: the caller promises that this is an operation. The core passes a domain that
        // `alloc_pd` has set up.
        let created =
            unsafe { Self::on(pd, |data, device, pd| Mr::allocate(|| create(data, device, pd))) };
        created.unwrap_or_else(|error| error.to_ptr())
    }

    unsafe extern "C" fn get_dma_mr(
        pd: *mut bindings::ib_pd,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        // SAFETY: this is an operation, with the domain that the core has passed.
        unsafe { Self::allocate(pd, |data, _, pd| T::get_dma_mr(data, pd, access as u32)) }
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
        // SAFETY: the core passes the payload of the command, or null.
        let udata = unsafe { Udata::from_raw(udata) };
        let region = UserRegion { start, length, iova, access: access as u32 };
        let create = |data: &T::Data<'_>, device: &Device<T>, pd: &Pd<T>| {
            T::reg_user_mr(data, device, pd, &region, udata.as_ref())
        };
        // SAFETY: this is an operation, with the domain that the core has passed.
        unsafe { Self::allocate(pd, create) }
    }

    unsafe extern "C" fn dereg_mr(
        mr: *mut bindings::ib_mr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: this destroys a region that `allocate` has made.
        unsafe { Self::destroy(mr, |data, mr: &Mr<T::Mr>| T::dereg_mr(data, mr)) }
    }

    unsafe extern "C" fn advise_mr(
        pd: *mut bindings::ib_pd,
        advice: bindings::ib_uverbs_advise_mr_advice,
        flags: u32,
        list: *mut bindings::ib_sge,
        count: u32,
        _attrs: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        use bindings::{
            ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH as PREFETCH,
            ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT as NO_FAULT,
            ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE as WRITE,
            ib_uverbs_advise_mr_flag_IB_UVERBS_ADVISE_MR_FLAG_FLUSH as FLUSH,
        };
        if ![PREFETCH, NO_FAULT, WRITE].contains(&advice) {
            return EOPNOTSUPP.to_errno();
        }
        from_result(|| {
            for index in 0..count as usize {
                // SAFETY: the core passes a list of this many entries.
                let sge = unsafe { &*list.add(index) };
                let advice = Advice {
                    lkey: sge.lkey,
                    address: sge.addr,
                    length: sge.length,
                    write: advice == WRITE,
                    fault: advice != NO_FAULT,
                    waits: flags & FLUSH != 0,
                };
                // SAFETY: the core passes a domain that `alloc_pd` has set up.
                unsafe { Self::on(pd, |data, _, pd| T::advise_mr(data, pd, &advice)) }?;
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
        let create = |data: &T::Data<'_>, device: &Device<T>, pd: &Pd<T>| {
            T::reg_user_mr_dmabuf(data, device, pd, &region, fd)
        };
        // SAFETY: this is an operation, with the domain that the core has passed.
        unsafe { Self::allocate(pd, create) }
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
            // SAFETY: the core passes the payload of the command, or null.
            unsafe { Udata::expect_none(udata) }?;
            let region = UserRegion { start, length, iova, access };
            let change = RegionChange {
                memory: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS).then_some(region),
                // SAFETY: with this flag the core passes a domain that `alloc_pd` has set up.
                pd: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_PD)
                    .then(|| unsafe { Pd::<T>::from_raw(pd) }),
                access: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS).then_some(access),
            };
            // SAFETY: the core passes a region that `allocate` has made.
            let key = unsafe {
                Self::on(mr, |data, device, mr: &Mr<T::Mr>| {
                    T::rereg_user_mr(data, device, mr, &change)
                })
            }?;
            // SAFETY: the region is valid, and the core lets no other code use it during the call.
            unsafe { (*mr).lkey = key };
            // SAFETY: the region is valid, and the core lets no other code use it during the call.
            unsafe { (*mr).rkey = key };
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
        // SAFETY: this is an operation, with the domain that the core has passed.
        unsafe { Self::allocate(pd, |data, _, pd| T::alloc_mr(data, pd, max_pages)) }
    }

    unsafe extern "C" fn map_mr_sg(
        mr: *mut bindings::ib_mr,
        list: *mut bindings::scatterlist,
        entries: c_int,
        offset: *mut c_uint,
    ) -> c_int {
        // SAFETY: the core passes a region that `allocate` has made, which only the client uses.
        let Some(pages) = (unsafe { mr::page_list(mr) }) else { return EINVAL.to_errno() };
        pages.clear();
        // SAFETY: the client passes a list that is mapped for DMA; `set_page` is called for `mr`
        // only.
        unsafe { bindings::ib_sg_to_pages(mr, list, entries, offset, Some(Self::set_page)) }
    }

    unsafe extern "C" fn set_page(mr: *mut bindings::ib_mr, address: u64) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the region that `map_mr_sg` was called for.
            let pages = unsafe { mr::page_list(mr) }.ok_or(EINVAL)?;
            pages.push(address)?;
            Ok(0)
        })
    }

    unsafe extern "C" fn alloc_mw(
        mw: *mut bindings::ib_mw,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the payload of the command, or null.
            unsafe { Udata::expect_none(udata) }?;
            // SAFETY: the core passes a window whose type it has set.
            let kind = MwType::from_raw(unsafe { (*mw).type_ }).ok_or(EINVAL)?;
            // SAFETY: the core passes a window whose domain it has set.
            let pd = unsafe { (*mw).pd };
            // SAFETY: the core names a domain that `alloc_pd` has set up.
            let pd = unsafe { Pd::<T>::from_raw(pd) };
            // SAFETY: the core calls this as an operation of the window's device.
            let new = unsafe { Self::with_device_of(mw, |_, data| T::alloc_mw(data, pd, kind)) }?;
            // SAFETY: the window is valid, and only this call knows it.
            unsafe { (*mw).rkey = new.rkey };
            // SAFETY: the core has allocated the window with the size in the table, and only this
            // call knows it.
            unsafe { Object::init(mw, new.driver) };
            Ok(0)
        })
    }

    unsafe extern "C" fn dealloc_mw(mw: *mut bindings::ib_mw) -> c_int {
        // SAFETY: this destroys a window that `alloc_mw` has set up.
        unsafe { Self::destroy(mw, T::dealloc_mw) }
    }
}
