// SPDX-License-Identifier: GPL-2.0
//! Entries of `rdma resource show`, to which drivers add their data about an object: as names and
//! values, or (`-r`) as bytes in a format of the driver.

use core::{marker::PhantomData, ptr::NonNull};

use kernel::{
    build_error,
    error::{VTABLE_DEFAULT_ERROR, to_result},
    prelude::*,
    str::CStr,
};

use super::driver::Driver;
use crate::bindings;

/// The operations by which the driver adds to the entry of an object, of which it sees an `O`.
#[vtable]
pub(crate) trait ResOperations<O>: Driver {
    /// Adds names and values to an entry.
    fn fill_res_entry(_data: &Self::Data<'_>, _object: &O, _entry: &mut ResEntry<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds the object in the driver's own bytes to an entry.
    fn fill_res_entry_raw(_data: &Self::Data<'_>, _object: &O, _entry: RawResEntry<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A netlink message that is being filled.
///
/// # Invariants
///
/// `message` is a message of the core that is being filled, only by this.
pub(crate) struct ResEntry<'a> {
    message: NonNull<bindings::sk_buff>,
    _message: PhantomData<&'a mut bindings::sk_buff>,
}

impl ResEntry<'_> {
    /// Lets `fill` add the driver's data to a message. If that fails, the message is unchanged.
    ///
    /// # Safety
    ///
    /// `message` must be a message of the core that is being filled, and the caller's alone.
    pub(super) unsafe fn fill(
        message: NonNull<bindings::sk_buff>,
        fill: impl FnOnce(&mut ResEntry<'_>) -> Result,
    ) -> Result {
        // SAFETY: the caller passes a message of the core that is being filled.
        let nest = unsafe { bindings::rdma_helper_driver_nest_start(message.as_ptr()) };
        if nest.is_null() {
            return Err(EMSGSIZE);
        }
        // INVARIANT: the caller passes a message that is being filled, and its alone.
        let result = fill(&mut ResEntry { message, _message: PhantomData });
        // SAFETY: the nest was started above, in this message.
        unsafe { bindings::rdma_helper_nest_finish(message.as_ptr(), nest, result.is_ok()) };
        result
    }

    /// Adds a number.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` when the message is full.
    pub(crate) fn number(&mut self, name: &'static CStr, value: impl Into<u64>) -> Result {
        let (message, name) = (self.message.as_ptr(), name.as_char_ptr());
        // SAFETY: by the type's invariants the message is being filled; the name is copied.
        to_result(unsafe { bindings::rdma_nl_put_driver_u64(message, name, value.into()) })
    }

    /// Adds a number that is shown in hexadecimal.
    ///
    /// # Errors
    ///
    /// As for [`Self::number`].
    pub(crate) fn bits(&mut self, name: &'static CStr, value: u32) -> Result {
        let (message, name) = (self.message.as_ptr(), name.as_char_ptr());
        // SAFETY: by the type's invariants the message is being filled; the name is copied.
        to_result(unsafe { bindings::rdma_nl_put_driver_u32_hex(message, name, value) })
    }

    /// Adds a word.
    ///
    /// # Errors
    ///
    /// As for [`Self::number`].
    pub(crate) fn word(&mut self, name: &'static CStr, value: &'static CStr) -> Result {
        let (message, name) = (self.message.as_ptr(), name.as_char_ptr());
        // SAFETY: by the type's invariants the message is being filled; name and word are copied.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_string(message, name, value.as_char_ptr())
        })
    }
}

/// A netlink message to which an object is added as bytes in a format of the driver.
///
/// # Invariants
///
/// `message` is a message of the core that is being filled, only by this.
pub(crate) struct RawResEntry<'a> {
    message: NonNull<bindings::sk_buff>,
    _message: PhantomData<&'a mut bindings::sk_buff>,
}

impl RawResEntry<'_> {
    /// Creates a message that is being filled.
    ///
    /// # Safety
    ///
    /// `message` must be a message of the core that is being filled, and the caller's alone.
    pub(super) unsafe fn new(message: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: the caller passes a message that is being filled, and its alone.
        Self { message, _message: PhantomData }
    }

    /// Adds the bytes.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` when the message is full.
    pub(crate) fn put(self, bytes: &[u8]) -> Result {
        let length = u32::try_from(bytes.len())?;
        let start = bytes.as_ptr().cast();
        // SAFETY: by the type's invariants the message is being filled; the bytes are copied.
        to_result(unsafe { bindings::rdma_helper_put_raw(self.message.as_ptr(), start, length) })
    }
}
