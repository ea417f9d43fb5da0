// SPDX-License-Identifier: GPL-2.0
//! The layout of objects that the core allocates: its struct first, the driver's part after.

use core::{
    alloc::Layout,
    mem::{MaybeUninit, offset_of},
    ops::Deref,
};

use kernel::{prelude::*, types::Opaque};

use super::revocable::Link;

/// A wrapper of a struct of the core's.
pub(super) trait Wrapper {
    /// The core's struct.
    type Core;

    /// Returns the wrapper of an object.
    ///
    /// # Safety
    ///
    /// `raw` must be an object that the driver's creating operation has set up as one of this type,
    /// and stay so for `'a`.
    unsafe fn from_raw<'a>(raw: *mut Self::Core) -> &'a Self;

    /// Drops the driver's part of an object that is going.
    ///
    /// # Safety
    ///
    /// As for [`Self::from_raw`]. The link of the object must have been revoked, if it has one, and
    /// no code may use the object afterwards.
    unsafe fn destroy(raw: *mut Self::Core);
}

/// A core struct `C` at offset 0 and the driver's `D` after it.
///
/// # Invariants
///
/// A reference to an `Object` is only made by the trampolines, for a pointer that the core
/// passed to them: `core` is then a valid `C`. `driver` is initialised from the return of the
/// creating operation until the destroying one has returned `Ok`.
#[repr(C)]
pub(crate) struct Object<C, D> {
    core: Opaque<C>,
    driver: MaybeUninit<D>,
}

// SAFETY: the core's part is only reached through pointers, by functions that do their own
// locking or are documented to be called by the object's owner; the driver's part is `Send`.
unsafe impl<C, D: Send> Send for Object<C, D> {}

// SAFETY: the core's part is only reached through pointers, by functions that do their own locking;
// the driver's part is shared as `&D`, which is `Sync`.
unsafe impl<C, D: Sync> Sync for Object<C, D> {}

impl<C, D> Object<C, D> {
    /// The size that the core allocates (`size_ib_*`), a multiple of the alignment as kmalloc
    /// wants it.
    pub(super) const SIZE: usize = {
        assert!(offset_of!(Self, core) == 0, "the core's struct must come first");
        Layout::new::<Self>().pad_to_align().size()
    };

    /// Allocates an object in place of the core, with a zeroed struct of the core's; `create` makes
    /// the driver's part. [`Self::free`] frees it.
    pub(super) fn allocate(create: impl FnOnce() -> Result<D>) -> Result<*mut C>
    where
        Opaque<C>: Zeroable,
    {
        let memory = KBox::<Self>::new_uninit(GFP_KERNEL)?;
        let driver = MaybeUninit::new(create()?);
        // INVARIANT: the driver's part is initialised. The core gets to know the object, whose
        // struct it fills in, by this call's result.
        let this = KBox::write(memory, Self { core: Opaque::zeroed(), driver });
        Ok(KBox::into_raw(this).cast())
    }

    /// Frees an object.
    ///
    /// # Safety
    ///
    /// `ptr` must come from [`Self::allocate`], and not be used again. The driver's part must have
    /// been dropped.
    pub(super) unsafe fn free(ptr: *mut C) {
        // SAFETY: the caller passes what `allocate` has made by `KBox::into_raw`. The box drops
        // neither of the two parts.
        drop(unsafe { KBox::from_raw(ptr.cast::<Self>()) });
    }

    /// Stores the driver's part of a new object.
    ///
    /// # Safety
    ///
    /// `ptr` must point to a core object that was allocated with [`Self::SIZE`] and that only
    /// the caller knows.
    pub(super) unsafe fn init(ptr: *mut C, driver: D) {
        let this = ptr.cast::<Self>();
        // SAFETY: the caller passes an object of `SIZE` bytes, so the field is in bounds; only its
        // address is made.
        let field = unsafe { &raw mut (*this).driver };
        // SAFETY: the field is in bounds and aligned, and only the caller knows the object. The
        // old content is uninitialised, so nothing is to be dropped.
        unsafe { field.write(MaybeUninit::new(driver)) };
    }

    /// Returns the core's struct.
    pub(super) fn as_raw(&self) -> *mut C {
        self.core.get()
    }
}

impl<C, D> Wrapper for Object<C, D> {
    type Core = C;

    unsafe fn from_raw<'a>(raw: *mut C) -> &'a Self {
        // SAFETY: the caller passes the `C` of an object that is initialised; it is the first field
        // (see `SIZE`).
        unsafe { &*raw.cast() }
    }

    unsafe fn destroy(raw: *mut C) {
        let this = raw.cast::<Self>();
        // SAFETY: the caller passes the first field of an object that no other code uses.
        let driver = unsafe { &mut (*this).driver };
        // SAFETY: the caller promises that the driver's part is initialised and no longer used.
        unsafe { driver.assume_init_drop() };
    }
}

impl<C, D> Deref for Object<C, D> {
    type Target = D;

    fn deref(&self) -> &D {
        // SAFETY: by the type's invariants the driver's part is initialised as long as there are
        // references to the object.
        unsafe { self.driver.assume_init_ref() }
    }
}

/// An object whose events the driver reports: the driver's part of it stands next to the link that
/// they are reported through. Derefs to the driver's part.
///
/// # Invariants
///
/// The link is one to this very object. It is revoked before the driver's part is dropped.
#[repr(transparent)]
pub(crate) struct Linked<C, D>(Object<C, Parts<C, D>>);

/// A link and the driver's part of an object.
struct Parts<C, D> {
    link: Link<C>,
    driver: D,
}

impl<C, D> Linked<C, D> {
    /// The size that the core allocates; see [`Object::SIZE`].
    pub(super) const SIZE: usize = Object::<C, Parts<C, D>>::SIZE;

    /// Stores the link and the driver's part of a new object.
    ///
    /// # Safety
    ///
    /// `ptr` must point to a core object that was allocated with [`Self::SIZE`] and that only the
    /// caller knows, and `link` must be one to it.
    pub(super) unsafe fn init(ptr: *mut C, link: Link<C>, driver: D) {
        // SAFETY: the caller passes an object of `SIZE` bytes that only it knows.
        // INVARIANT: the caller passes a link to this object.
        unsafe { Object::init(ptr, Parts { link, driver }) };
    }

    /// Returns the core's struct.
    pub(super) fn as_raw(&self) -> *mut C {
        self.0.as_raw()
    }

    /// Returns the link that its events are reported through.
    pub(crate) fn link(&self) -> &Link<C> {
        &self.0.link
    }
}

impl<C, D> Wrapper for Linked<C, D> {
    type Core = C;

    unsafe fn from_raw<'a>(raw: *mut C) -> &'a Self {
        // SAFETY: the caller passes the `C` of an object that is initialised: its first field (see
        // `Object::SIZE`). The wrapper is transparent.
        unsafe { &*raw.cast() }
    }

    unsafe fn destroy(raw: *mut C) {
        // SAFETY: the caller passes an object that is initialised, and does not use it afterwards.
        unsafe { Object::<C, Parts<C, D>>::destroy(raw) };
    }
}

impl<C, D> Deref for Linked<C, D> {
    type Target = D;

    fn deref(&self) -> &D {
        &(*self.0).driver
    }
}
