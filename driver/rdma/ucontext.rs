// SPDX-License-Identifier: GPL-2.0
//! User contexts: one for each process that opened the device.

use core::{ops::Deref, ptr::NonNull};

use kernel::prelude::*;

use super::{
    bindings,
    driver::Driver,
    mmap::{IoArea, Keeps, MmapKeys},
    object::Object,
};

/// The driver's part of a context and its mmap keys, behind `struct ib_ucontext`.
///
/// # Invariants
///
/// `keys` are keys of this context alone, and are removed before the context goes.
pub(super) struct Parts<T: Driver> {
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
    pub(super) const SIZE: usize = Object::<bindings::ib_ucontext, Parts<T>>::SIZE;

    /// # Safety
    ///
    /// `raw` must be a context of driver `T` that [`NewUcontext::finish`] has set up, and stay so
    /// for `'a`.
    pub(super) unsafe fn from_raw<'a>(raw: *mut bindings::ib_ucontext) -> &'a Self {
        // SAFETY: the caller passes a context that is initialised: the first field of an `Object`,
        // of which this is a transparent wrapper.
        // INVARIANT: the core opens a context before it lets the driver set it up.
        unsafe { &*raw.cast() }
    }

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
    pub(super) fn remove_all_mappings(&self) {
        self.0.keys.remove_all();
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
    pub(super) unsafe fn new(raw: NonNull<bindings::ib_ucontext>) -> Result<Self> {
        let keys = KBox::pin_init(MmapKeys::new(), GFP_KERNEL)?;
        // INVARIANT: the caller passes the context that the core is opening, which the core has
        // allocated with `Ucontext::SIZE`.
        Ok(Self { raw, keys, _driver: core::marker::PhantomData })
    }

    /// As [`Ucontext::add_mapping`].
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
    pub(super) unsafe fn finish(self, driver: Result<T::Ucontext>) -> Result {
        match driver {
            Ok(driver) => {
                // INVARIANT: keys were added for `raw` alone, and `dealloc_ucontext` removes them.
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

    /// Drops the driver's part of a context that goes.
    ///
    /// # Safety
    ///
    /// `raw` must be a context of driver `T` that [`Self::finish`] has set up, and no code may use
    /// it afterwards.
    pub(super) unsafe fn destroy(raw: *mut bindings::ib_ucontext) {
        // SAFETY: the caller passes a context that is initialised, and does not use it afterwards.
        unsafe { Object::<_, Parts<T>>::destroy(raw) };
    }
}
