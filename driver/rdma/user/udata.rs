// SPDX-License-Identifier: GPL-2.0
//! Private payloads between a driver and its user-space half.

use core::{marker::PhantomData, mem::size_of, ptr::NonNull};

use kernel::{error::to_result, prelude::*};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::bindings;

/// The driver's part of a uverbs command.
///
/// # Invariants
///
/// `raw` is the udata of the command under way, valid for `'a`.
pub(crate) struct Udata<'a> {
    raw: NonNull<bindings::ib_udata>,
    _call: PhantomData<&'a ()>,
}

impl<'a> Udata<'a> {
    /// Wraps the core's struct; `None` for a call by a kernel client.
    ///
    /// # Safety
    ///
    /// `raw` must be null or the udata of the uverbs command under way, for `'a`.
    pub(in crate::rdma) unsafe fn from_raw(raw: *mut bindings::ib_udata) -> Option<Self> {
        // INVARIANT: the caller passes the udata of the command under way, if it is not null.
        NonNull::new(raw).map(|raw| Self { raw, _call: PhantomData })
    }

    /// Returns the request, which must have at least `required` bytes. Bytes that an older provider
    /// does not send are zero, and bytes that a newer one sends after them must be zero.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is too short, `EOPNOTSUPP` if it has fields that this driver does not know,
    /// `EFAULT`.
    pub(crate) fn request<T: FromBytes + IntoBytes>(&self, required: usize) -> Result<T> {
        let mut value = T::new_zeroed();
        // SAFETY: the udata is valid by the type's invariants, and `value` is `size_of::<T>()`
        // bytes of plain data, all of whose bit patterns are valid.
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(
                self.raw.as_ptr(),
                (&raw mut value).cast(),
                size_of::<T>(),
                required,
            )
        })?;
        Ok(value)
    }

    /// Checks that a request has no private payload, for a command that has none.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the provider sent something, `EFAULT`.
    pub(crate) fn no_request(&self) -> Result {
        // SAFETY: the udata is valid by the type's invariants.
        to_result(unsafe { bindings::rdma_helper_is_udata_in_empty(self.raw.as_ptr()) })
    }

    /// Answers with `value`, cut or zero-padded to what the provider has room for.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(crate) fn respond<T: IntoBytes + Immutable>(&self, value: &T) -> Result {
        let bytes = value.as_bytes();
        // SAFETY: the udata is valid by the type's invariants; `bytes` is a valid slice.
        to_result(unsafe {
            bindings::_ib_respond_udata(self.raw.as_ptr(), bytes.as_ptr().cast(), bytes.len())
        })
    }

    /// Zeroes the room for an answer. A command with an answer may call this first, so that hardly
    /// anything can fail after the command has been executed.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(crate) fn clear(&self) -> Result {
        self.respond::<[u8; 0]>(&[])
    }

    /// Checks that a request has no private payload, and zeroes the answer, for a command without
    /// private payloads. Kernel clients have none.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the provider sent something, `EFAULT`.
    ///
    /// # Safety
    ///
    /// `raw` must be null or the udata of the uverbs command under way.
    pub(in crate::rdma) unsafe fn expect_none(raw: *mut bindings::ib_udata) -> Result {
        if raw.is_null() {
            return Ok(());
        }
        // SAFETY: the caller promises that the udata is valid.
        to_result(unsafe { bindings::rdma_helper_no_udata_io(raw) })
    }

    /// Returns the context of the caller; null for the command that makes it.
    pub(in crate::rdma) fn ucontext(&self) -> *mut bindings::ib_ucontext {
        // SAFETY: the udata is valid by the type's invariants, and always part of an attribute
        // bundle.
        unsafe { bindings::rdma_helper_udata_ucontext(self.raw.as_ptr()) }
    }
}
