// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Objects whose first part libibverbs knows, followed by the plugin's own part.

use std::ffi::c_int;
use std::mem::ManuallyDrop;

use rustix::io::Errno;
use vrnic_queues::heap::boxed;

use super::{check, status};

/// A struct of libibverbs followed by the plugin's own part.
#[repr(C)]
pub(super) struct Object<B, T> {
    base: B,
    /// Set before C learns of the object and constant from then on, so that it may be shared
    /// while libibverbs writes to `base`.
    own: Option<T>,
}

impl<B: Default, T> Object<B, T> {
    /// Begins an object, with a zeroed base and no part of the plugin.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn begin() -> Result<NewObject<B, T>, Errno> {
        Ok(NewObject(Box::into_raw(boxed(Self { base: B::default(), own: None })?)))
    }
}

impl<B, T> Object<B, T> {
    /// Returns the plugin's part of the object at `base`; `None` if `base` is null or not complete.
    ///
    /// # Safety
    /// `base` must be null or the start of a live object of just these types.
    #[inline]
    pub(super) unsafe fn own<'a>(base: *mut B) -> Option<&'a T> {
        let object = base.cast::<Self>();
        if object.is_null() {
            return None;
        }
        // SAFETY: the caller passes a live object. Only the field is borrowed, and no code changes
        // it any more.
        unsafe { (*object).own.as_ref() }
    }

    /// Sets the plugin's part of an object that was not made by [`NewObject`].
    ///
    /// # Safety
    /// `base` must be the start of an allocation of this type, zeroed or complete, that no
    /// one else uses yet.
    pub(super) unsafe fn set_own(base: *mut B, own: Option<T>) {
        // SAFETY: the caller passes an object that no other code uses.
        unsafe { (*base.cast::<Self>()).own = own };
    }

    /// Frees an object.
    ///
    /// # Safety
    /// `base` must come from [`NewObject::complete`] or [`NewObject::complete_bare`], and never be
    /// used again.
    pub(super) unsafe fn free(base: *mut B) {
        // SAFETY: made by `Box::into_raw` and given up by the caller.
        drop(unsafe { Box::from_raw(base.cast::<Self>()) });
    }

    /// Destroys an object by a command, and frees it if that succeeds. Returns 0 or an errno.
    ///
    /// # Safety
    /// `object` must be the start of a live object that [`Self::free`] can free, and that is not
    /// used again if this succeeds; `command` must be the one that destroys such objects.
    pub(super) unsafe fn destroy<C>(
        object: *mut C,
        command: unsafe extern "C" fn(*mut C) -> c_int,
    ) -> c_int {
        // SAFETY: the caller passes a live object, and the command that destroys such objects.
        let result = check(unsafe { command(object) });
        if result.is_ok() {
            // SAFETY: given up by the caller, and made as `free` demands.
            unsafe { Self::free(object.cast()) };
        }
        status(result)
    }
}

/// An object that libibverbs does not know yet, or only during a call.
pub(super) struct NewObject<B, T>(*mut Object<B, T>);

impl<B, T> NewObject<B, T> {
    /// Returns the base, for libibverbs to fill in.
    pub(super) fn base(&self) -> *mut B {
        self.0.cast()
    }

    /// Releases an object that needs no part of the plugin; [`Object::free`] frees it.
    pub(super) fn complete_bare(self) -> *mut B {
        ManuallyDrop::new(self).base()
    }

    /// Adds the plugin's part and releases the object; [`Object::free`] frees it.
    pub(super) fn complete(self, own: T) -> *mut B {
        let base = ManuallyDrop::new(self).base();
        // SAFETY: allocated in `begin`, and no one else uses it yet.
        unsafe { Object::<B, T>::set_own(base, Some(own)) };
        base
    }
}

impl<B, T> Drop for NewObject<B, T> {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `begin` and not given away.
        drop(unsafe { Box::from_raw(self.0) });
    }
}
