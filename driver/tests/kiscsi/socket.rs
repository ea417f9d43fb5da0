// SPDX-License-Identifier: GPL-2.0
//! TCP sockets of the kernel, for the login.

use core::ptr::NonNull;

use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    str::CStr,
};

use crate::{bindings, kclient};

/// Milliseconds that connecting, sending and receiving may take.
const TIMEOUT_MS: u32 = 10_000;

/// A connected socket, closed on drop.
///
/// # Invariants
///
/// The pointer refers to a socket that this type owns.
pub(crate) struct Socket(NonNull<kclient::bindings::socket>);

// SAFETY: sockets may be used and released by any thread.
unsafe impl Send for Socket {}

impl Socket {
    /// Connects to "ADDRESS:PORT".
    ///
    /// # Errors
    ///
    /// `EINVAL` for another form, and those of `connect`.
    pub(crate) fn connect(portal: &CStr) -> Result<Self> {
        // SAFETY: the string ends with a zero.
        let socket = unsafe { bindings::kiscsi_connect(portal.as_char_ptr(), TIMEOUT_MS) };
        // INVARIANT: it was created just now, for this caller.
        Ok(Self(NonNull::new(from_err_ptr(socket)?).ok_or(ENOMEM)?))
    }

    /// Sends all bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result {
        let socket = self.0.as_ptr();
        // SAFETY: by the type's invariants the socket is alive; these are the bytes of a slice.
        to_result(unsafe { bindings::kiscsi_send(socket, bytes.as_ptr().cast(), bytes.len()) })
    }

    /// Receives as many bytes as there is room for.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> Result {
        let (socket, start, len) = (self.0.as_ptr(), into.as_mut_ptr().cast(), into.len());
        // SAFETY: by the type's invariants the socket is alive; this is the place of a slice.
        to_result(unsafe { bindings::kiscsi_receive(socket, start, len) })
    }

    /// Calls `give` with the socket, which gives it away if it succeeds.
    ///
    /// # Safety
    ///
    /// If `give` succeeds, the socket must belong to another owner, and if it fails not.
    pub(crate) unsafe fn give(
        self,
        mut give: impl FnMut(*mut kclient::bindings::socket) -> Result,
    ) -> Result<(), (Self, Error)> {
        match give(self.0.as_ptr()) {
            Ok(()) => {
                core::mem::forget(self);
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants the socket is this type's own.
        unsafe { bindings::kiscsi_close(self.0.as_ptr()) };
    }
}
