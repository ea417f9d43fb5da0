// SPDX-License-Identifier: GPL-2.0
//! Device memory that processes allocate. The driver allocates these objects, not the core.

use core::{mem::offset_of, ops::Deref};

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*, types::Opaque};

use crate::bindings;
use crate::rdma::{
    driver::Driver, memory::mr::NewMr, object::Wrapper, pd::Pd, user::ucontext::Ucontext,
};

/// The operations of device memory.
#[vtable]
pub(crate) trait DmOperations: Driver {
    /// Allocates device memory for a process, which may map it at once.
    fn alloc_dm(
        _data: &Self::Data<'_>,
        _context: &Ucontext<Self>,
        _request: &DmRequest,
    ) -> Result<Self::Dm> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Frees device memory, of which no region is registered any more.
    fn dealloc_dm(_data: &Self::Data<'_>, _context: &Ucontext<Self>, _dm: &Self::Dm) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Registers a part of device memory.
    fn reg_dm_mr(
        _data: &Self::Data<'_>,
        _pd: &Pd<Self>,
        _dm: &Self::Dm,
        _region: &DmRegion,
    ) -> Result<NewMr<Self::Mr>> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// The device memory that a process asks for (`ibv_alloc_dm(3)`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct DmRequest {
    /// Number of bytes.
    pub(crate) length: u64,
    /// log2 of the alignment of its address.
    pub(crate) log_alignment: u32,
    /// The number by which the process will know it.
    pub(crate) handle: u32,
}

/// The part of device memory that a process wants to register (`ibv_reg_dm_mr(3)`). Work requests
/// name its bytes from zero on. The core has checked that it lies inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DmRegion {
    /// Offset of the first byte.
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) length: u64,
    /// Rights (`enum ib_access_flags`).
    pub(crate) access: u32,
}

/// Device memory as [`Dm::allocate`] makes it: the core's struct first, the driver's part after.
///
/// # Invariants
///
/// This memory is in a box of its own, and known to the core by `core`, a valid `ib_dm`, from
/// [`Dm::allocate`] to [`Wrapper::destroy`].
#[repr(C)]
pub(in crate::rdma) struct Dm<D> {
    core: Opaque<bindings::ib_dm>,
    driver: D,
}

impl<D> Dm<D> {
    /// Allocates an object for the core, made by `create`; [`Wrapper::destroy`] takes it back.
    pub(in crate::rdma) fn allocate(
        create: impl FnOnce() -> Result<D>,
    ) -> Result<*mut bindings::ib_dm> {
        const { assert!(offset_of!(Self, core) == 0, "the core's struct must come first") };
        let memory = KBox::<Self>::new_uninit(GFP_KERNEL)?;
        let driver = create()?;
        // SAFETY: a plain C struct, for which zero is a valid value; the core fills it in.
        let core = Opaque::new(unsafe { core::mem::zeroed() });
        // INVARIANT: it is in a box of its own, which the core gets to know by this call's result.
        Ok(KBox::into_raw(KBox::write(memory, Self { core, driver })).cast())
    }
}

impl<D> Wrapper for Dm<D> {
    type Core = bindings::ib_dm;

    unsafe fn from_raw<'a>(raw: *mut bindings::ib_dm) -> &'a Self {
        // SAFETY: the caller passes what `allocate` has made: the first field of a `Self`.
        unsafe { &*raw.cast() }
    }

    unsafe fn destroy(raw: *mut bindings::ib_dm) {
        // SAFETY: the caller passes what `allocate` has made by `KBox::into_raw`, for the last
        // time.
        drop(unsafe { KBox::from_raw(raw.cast::<Self>()) });
    }
}

impl<D> Deref for Dm<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.driver
    }
}

/// Returns the driver's part of device memory that a method of the driver's own names; `None` for
/// null.
///
/// # Safety
///
/// `raw` must be null or device memory of driver `T` that lives for `'a`.
pub(crate) unsafe fn lend<'a, T: Driver>(raw: *mut bindings::ib_dm) -> Option<&'a T::Dm> {
    // SAFETY: the caller promises that it comes from `Dm::<T::Dm>::allocate`.
    (!raw.is_null()).then(|| unsafe { Dm::<T::Dm>::from_raw(raw) }).map(|dm| &**dm)
}
