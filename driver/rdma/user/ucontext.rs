// SPDX-License-Identifier: GPL-2.0
//! User contexts: one for each process that opened the device.

use core::{ops::Deref, ptr::NonNull};

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

use crate::bindings;
use crate::rdma::{
    driver::Driver,
    object::{Object, Wrapper},
    user::mmap::{IoArea, Keeps, MmapKeys},
    user::udata::Udata,
};

/// The operations of user contexts.
#[vtable]
pub(crate) trait UcontextOperations: Driver {
    /// Opens the device for a process.
    fn alloc_ucontext(
        _data: &Self::Data<'_>,
        _context: &NewUcontext<'_, Self>,
        _udata: &Udata<'_>,
    ) -> Result<Self::Ucontext> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Closes the device for a process, whose mmap keys are gone already.
    fn dealloc_ucontext(_data: &Self::Data<'_>, _context: &Ucontext<Self>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Answers a process that imports a context of another one.
    fn query_ucontext(
        _data: &Self::Data<'_>,
        _context: &Ucontext<Self>,
        _udata: &Udata<'_>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// The driver's part of a context and its mmap keys, after `struct ib_ucontext`.
///
/// # Invariants
///
/// `keys` are keys only of this context, and are removed before the context goes.
pub(in crate::rdma) struct Parts<T: Driver> {
    keys: Pin<KBox<MmapKeys>>,
    driver: T::Ucontext,
}

/// An open context; derefs to the driver's part.
///
/// # Invariants
///
/// The core has opened the context: its table of mappings is set up.
#[repr(transparent)]
pub(crate) struct Ucontext<T: Driver>(Object<bindings::ib_ucontext, Parts<T>>);

impl<T: Driver> Ucontext<T> {
    pub(in crate::rdma) const SIZE: usize = Object::<bindings::ib_ucontext, Parts<T>>::SIZE;

    /// Lets the process map `area`; returns the offset to give to mmap.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` for an area of another device.
    pub(crate) fn add_mapping(&self, area: IoArea<'_>) -> Result<u64> {
        // SAFETY: the context is alive, as it is borrowed, and open. By the invariants of `Parts`
        // its keys are removed before it goes.
        unsafe { self.0.keys.add(self.0.as_raw(), area) }
    }

    /// Lets the process map `area` by this offset for mmap. `owner` is dropped when the permission
    /// and all mappings have gone.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if the offset is taken; `EINVAL` for an area of another device.
    pub(crate) fn add_mapping_at(
        &self,
        offset: u64,
        area: IoArea<'_>,
        owner: KBox<dyn Keeps>,
    ) -> Result {
        // SAFETY: the context is alive, as it is borrowed, and open. By the invariants of `Parts`
        // its keys are removed before it goes.
        unsafe { self.0.keys.add_at(self.0.as_raw(), offset, area, owner) }
    }

    /// Takes back what [`Self::add_mapping`] or [`Self::add_mapping_at`] allowed; existing mappings
    /// stay until they are unmapped.
    pub(crate) fn remove_mapping(&self, offset: u64) {
        self.0.keys.remove(offset);
    }

    /// Ends all permissions to map.
    pub(in crate::rdma) fn remove_all_mappings(&self) {
        self.0.keys.remove_all();
    }
}

impl<T: Driver> Wrapper for Ucontext<T> {
    type Core = bindings::ib_ucontext;

    unsafe fn from_raw<'a>(raw: *mut bindings::ib_ucontext) -> &'a Self {
        // SAFETY: the caller passes a context that is initialised: the first field of an `Object`,
        // of which this is a transparent wrapper.
        // INVARIANT: the core opens a context before it lets the driver set it up.
        unsafe { &*raw.cast() }
    }

    unsafe fn destroy(raw: *mut bindings::ib_ucontext) {
        // SAFETY: the caller passes a context that is initialised, and does not use it afterwards.
        unsafe { Object::<_, Parts<T>>::destroy(raw) };
    }
}

impl<T: Driver> Deref for Ucontext<T> {
    type Target = T::Ucontext;

    fn deref(&self) -> &T::Ucontext {
        &self.0.driver
    }
}

/// A context that is being opened: it can already have mappings.
///
/// # Invariants
///
/// `raw` is the context that the core is opening, with room for a [`Ucontext`].
pub(crate) struct NewUcontext<'a, T: Driver> {
    raw: NonNull<bindings::ib_ucontext>,
    keys: Pin<KBox<MmapKeys>>,
    _driver: core::marker::PhantomData<&'a T>,
}

impl<T: Driver> NewUcontext<'_, T> {
    /// # Safety
    ///
    /// `raw` must be the context that the core is opening, for the lifetime of the result.
    pub(in crate::rdma) unsafe fn new(raw: NonNull<bindings::ib_ucontext>) -> Result<Self> {
        let keys = KBox::pin_init(MmapKeys::new(), GFP_KERNEL)?;
        // INVARIANT: the caller passes the context that the core is opening, which the core has
        // allocated with `Ucontext::SIZE`.
        Ok(Self { raw, keys, _driver: core::marker::PhantomData })
    }

    /// Adds a mapping, as [`Ucontext::add_mapping`] does.
    pub(crate) fn add_mapping(&self, area: IoArea<'_>) -> Result<u64> {
        // SAFETY: by the type's invariants the core is opening the context, and has set up its
        // table of mappings. The keys are removed by `finish` on failure, or else before the
        // context goes.
        unsafe { self.keys.add(self.raw.as_ptr(), area) }
    }

    /// Stores the driver's part, or undoes the mappings.
    ///
    /// # Safety
    ///
    /// To be called once, by the trampoline that made `self`.
    pub(in crate::rdma) unsafe fn finish(self, driver: Result<T::Ucontext>) -> Result {
        match driver {
            Ok(driver) => {
                // INVARIANT: keys were added only for `raw`, and `dealloc_ucontext` removes them.
                let parts = Parts::<T> { keys: self.keys, driver };
                // SAFETY: by the type's invariants the core has allocated the context with
                // `Ucontext::SIZE`, and only this call knows it yet.
                unsafe { Object::init(self.raw.as_ptr(), parts) };
                Ok(())
            }
            Err(error) => {
                self.keys.remove_all();
                Err(error)
            }
        }
    }
}

/// A command of a user-space process; kernel clients have none.
pub(crate) struct User<'a, T: Driver> {
    /// The private payload of the command.
    pub(crate) data: Udata<'a>,
    /// The context of the process.
    pub(crate) context: &'a Ucontext<T>,
}

impl<'a, T: Driver> User<'a, T> {
    /// Returns the user of a method of the driver's own; `None` without a payload.
    ///
    /// # Safety
    ///
    /// `raw` must be null or the payload of the method under way, of an open context of driver `T`.
    pub(crate) unsafe fn of_method(raw: *mut bindings::ib_udata) -> Option<Self> {
        // SAFETY: the caller passes null, or the payload of the method under way, which is one of
        // an open context of driver `T`.
        unsafe { Self::from_raw(raw) }
    }

    /// Returns the user that a udata pointer names; `None` for a kernel client.
    ///
    /// # Safety
    ///
    /// `raw` must be null or the udata of the uverbs command under way, for `'a`. The command must
    /// be one of an open context of driver `T`.
    pub(in crate::rdma) unsafe fn from_raw(raw: *mut bindings::ib_udata) -> Option<Self> {
        // SAFETY: the caller passes null or the udata of the command under way.
        let data = unsafe { Udata::from_raw(raw) }?;
        // SAFETY: the caller promises that the command is one of a context of driver `T`, which is
        // open during the command.
        let context = unsafe { Ucontext::from_raw(data.ucontext()) };
        Some(Self { data, context })
    }
}
