// SPDX-License-Identifier: GPL-2.0
//! Memory regions. These the driver allocates, not the core.

use core::{mem::offset_of, ops::Deref};

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*, types::Opaque};

use crate::bindings;
use crate::rdma::{
    device::Device, driver::Driver, memory::page_list::PageList, object::Wrapper, pd::Pd,
    user::udata::Udata,
};

/// The operations of memory regions.
#[vtable]
pub(crate) trait MrOperations: Driver {
    /// Registers all of memory, addressed by DMA address, for kernel clients.
    fn get_dma_mr(data: &Self::Data<'_>, pd: &Pd<Self>, access: u32) -> Result<NewMr<Self::Mr>>;

    /// Registers memory of a process. `udata` is the payload of its provider; none comes from a
    /// kernel client.
    fn reg_user_mr(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        pd: &Pd<Self>,
        region: &UserRegion,
        udata: Option<&Udata<'_>>,
    ) -> Result<NewMr<Self::Mr>>;

    /// Removes a region; on return the device no longer touches its memory.
    fn dereg_mr(data: &Self::Data<'_>, mr: &Self::Mr) -> Result;

    /// Registers the DMA buffer `fd` as [`Self::reg_user_mr`] registers memory; `start` is the
    /// offset in it.
    fn reg_user_mr_dmabuf(
        _data: &Self::Data<'_>,
        _device: &Device<Self>,
        _pd: &Pd<Self>,
        _region: &UserRegion,
        _fd: i32,
    ) -> Result<NewMr<Self::Mr>> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Gives pages of regions that are registered on demand to the device, for a range that the
    /// program names by a local key.
    fn advise_mr(_data: &Self::Data<'_>, _pd: &Pd<Self>, _advice: &Advice) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes a region of a process, which is as it was on an error. Returns its new key.
    fn rereg_user_mr(
        _data: &Self::Data<'_>,
        _device: &Device<Self>,
        _mr: &Self::Mr,
        _change: &RegionChange<'_, Self>,
    ) -> Result<u32> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Allocates a region of up to `max_pages` pages for fast registration, with its page list.
    fn alloc_mr(
        _data: &Self::Data<'_>,
        _pd: &Pd<Self>,
        _max_pages: u32,
    ) -> Result<NewMr<Self::Mr>> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A range of a region that a program expects to need.
///
/// C: `enum ib_uverbs_advise_mr_advice` and an `ib_sge`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advice {
    /// The key.
    pub(crate) lkey: u32,
    /// The first address, as work requests name it.
    pub(crate) address: u64,
    /// Number of bytes.
    pub(crate) length: u32,
    /// True if it will be written.
    pub(crate) write: bool,
    /// True if pages that are absent in the process are wanted, too.
    pub(crate) fault: bool,
    /// True if the program waits for the result.
    pub(crate) waits: bool,
}

/// A new region.
pub(crate) struct NewMr<D> {
    /// Key for local access.
    pub(crate) lkey: u32,
    /// Key for the peers.
    pub(crate) rkey: u32,
    /// Of a region for fast registration: the list that is registered.
    pub(crate) pages: Option<PageList>,
    /// The driver's part.
    pub(crate) driver: D,
}

/// The memory that a process wants to register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserRegion {
    /// First byte in the process.
    pub(crate) start: u64,
    /// Number of bytes.
    pub(crate) length: u64,
    /// First byte as work requests will name it.
    pub(crate) iova: u64,
    /// Rights (`enum ib_access_flags`); the optional ones may be ignored.
    pub(crate) access: u32,
}

/// The changes to a region; see `ibv_rereg_mr(3)`.
pub(crate) struct RegionChange<'a, T: Driver> {
    /// Other memory; its rights are `access`, or the old ones.
    pub(crate) memory: Option<UserRegion>,
    /// Another protection domain.
    pub(crate) pd: Option<&'a Pd<T>>,
    /// Other rights (`enum ib_access_flags`).
    pub(crate) access: Option<u32>,
}

/// A region as [`Mr::allocate`] makes it: the core's struct first, the driver's part last. Derefs
/// to the driver's part.
///
/// # Invariants
///
/// The region is in a box of its own, and known to the core by `base.core` from [`Mr::allocate`] to
/// [`Wrapper::destroy`].
#[repr(C)]
pub(crate) struct Mr<D> {
    base: Base,
    driver: D,
}

/// The fields that all regions have, whatever the driver's part is.
///
/// # Invariants
///
/// `core` is a valid `ib_mr`, to which the core and the region's client write. `pages` does not
/// change; it is there if and only if the region is one for fast registration.
#[repr(C)]
struct Base {
    core: Opaque<bindings::ib_mr>,
    pages: Option<PageList>,
}

const _: () = assert!(offset_of!(Base, core) == 0);

/// The registration that a work request asks for: the region's page list as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// The key that the region gets.
    pub(crate) key: u32,
    /// Rights (`enum ib_access_flags`).
    pub(crate) access: u32,
    /// First byte as work requests name it.
    pub(crate) iova: u64,
    /// Number of bytes.
    pub(crate) length: u64,
    /// Bytes of a page, a power of two.
    pub(crate) page_size: u32,
    /// The address at which the device finds the addresses of the pages, each an `__le64`.
    pub(crate) table: u64,
    /// Number of pages.
    pub(crate) page_count: u32,
}

impl Registration {
    /// Returns the registration that `wr` asks for; `None` if its region is not one for fast
    /// registration.
    ///
    /// # Safety
    ///
    /// `wr` must be a valid request for a region that was made by [`Mr::allocate`].
    pub(in crate::rdma) unsafe fn from_raw(wr: &bindings::ib_reg_wr) -> Option<Self> {
        // SAFETY: the caller passes a request for a region that `Mr::allocate` has made, and every
        // `Mr` begins with a `Base`.
        let base = unsafe { &*wr.mr.cast::<Base>() };
        let pages = base.pages.as_ref()?;
        let core = base.core.get();
        // SAFETY: the region is alive, and its client does not change it while it posts this
        // request.
        let iova = unsafe { (*core).iova };
        // SAFETY: the region is alive, and its client does not change it while it posts this
        // request.
        let length = unsafe { (*core).length };
        // SAFETY: the region is alive, and its client does not change it while it posts this
        // request.
        let page_size = unsafe { (*core).page_size };
        Some(Self {
            key: wr.key,
            // CAST: a bit mask.
            access: wr.access as u32,
            iova,
            length,
            page_size,
            table: pages.dma_address(),
            page_count: pages.len(),
        })
    }
}

/// Returns the page list of a region for fast registration.
///
/// # Safety
///
/// `raw` must come from [`Mr::allocate`] and live for `'a`.
pub(in crate::rdma) unsafe fn page_list<'a>(raw: *mut bindings::ib_mr) -> Option<&'a PageList> {
    // SAFETY: the caller passes what `Mr::allocate` has made, and every `Mr` begins with a `Base`.
    unsafe { &(*raw.cast::<Base>()).pages }.as_ref()
}

impl<D> Mr<D> {
    /// Allocates a region for the core, made by `create`; [`Wrapper::destroy`] takes it back. When
    /// the device has made it, nothing can fail any more.
    pub(in crate::rdma) fn allocate(
        create: impl FnOnce() -> Result<NewMr<D>>,
    ) -> Result<*mut bindings::ib_mr> {
        const { assert!(offset_of!(Self, base) == 0, "the core's struct must come first") };
        let memory = KBox::<Self>::new_uninit(GFP_KERNEL)?;
        let new = create()?;
        // SAFETY: a plain C struct, for which zero is a valid value.
        let mut core: bindings::ib_mr = unsafe { core::mem::zeroed() };
        core.lkey = new.lkey;
        core.rkey = new.rkey;
        // INVARIANT: the struct is valid, as it is zeroed except for the keys.
        let base = Base { core: Opaque::new(core), pages: new.pages };
        // INVARIANT: it is in a box of its own, which the core gets to know by this call's result.
        let mr = KBox::write(memory, Self { base, driver: new.driver });
        Ok(KBox::into_raw(mr).cast())
    }
}

impl<D> Wrapper for Mr<D> {
    type Core = bindings::ib_mr;

    unsafe fn from_raw<'a>(raw: *mut bindings::ib_mr) -> &'a Self {
        // SAFETY: the caller passes what `allocate` has made: the first field of a `Self`.
        unsafe { &*raw.cast() }
    }

    unsafe fn destroy(raw: *mut bindings::ib_mr) {
        // SAFETY: the caller passes what `allocate` has made by `KBox::into_raw`, for the last
        // time.
        drop(unsafe { KBox::from_raw(raw.cast::<Self>()) });
    }
}

impl<D> Deref for Mr<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.driver
    }
}
