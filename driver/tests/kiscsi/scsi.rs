// SPDX-License-Identifier: GPL-2.0
//! The SCSI layer: a host, and the commands that it gets.

use core::ptr::NonNull;

use kernel::{
    error::to_result,
    ffi::{c_int, c_void},
    prelude::*,
    sync::Arc,
};

use crate::{
    bindings,
    kclient::{attached::Attached, pd::Device},
    link::COMMANDS,
};

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End<'a> {
    /// The target has responded.
    Response {
        /// The status of SCSI.
        status: u8,
        /// Bytes that were not moved.
        residual: u32,
        /// Sense data.
        sense: &'a [u8],
    },
    /// The target cannot be reached.
    NoConnection,
    /// The command is to be tried again.
    Again,
    /// An error of the transport.
    Error,
}

/// A command of the SCSI layer that has not ended. Its data is mapped until it is dropped.
///
/// # Invariants
///
/// The pointer refers to a command that the host has got and has not ended, and that was mapped.
pub(crate) struct Command(NonNull<bindings::kiscsi_cmnd>);

// SAFETY: commands may be ended by any thread.
unsafe impl Send for Command {}

impl Command {
    /// Maps the data of a command, and fills the list of its pages.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a command that is not possible, `ENOMEM`.
    ///
    /// # Safety
    ///
    /// The host must have got the command just now, and the list must have room for `max` words
    /// that only the caller uses.
    pub(crate) unsafe fn map(
        raw: NonNull<bindings::kiscsi_cmnd>,
        (list, max): (*mut u64, u32),
    ) -> Result<(Self, bindings::kiscsi_io)> {
        let mut io = bindings::kiscsi_io::default();
        // SAFETY: the caller passes a live command and a list.
        to_result(unsafe { bindings::kiscsi_map(raw.as_ptr(), list, max, &mut io) })?;
        // INVARIANT: it was mapped just now.
        Ok((Self(raw), io))
    }

    /// Returns whether this is the command with this pointer.
    pub(crate) fn is(&self, raw: NonNull<bindings::kiscsi_cmnd>) -> bool {
        self.0 == raw
    }

    /// Ends the command.
    pub(crate) fn end(self, end: End<'_>) {
        let raw = self.0.as_ptr();
        drop(self);
        let (host, status, residual, sense) = match end {
            End::Response { status, residual, sense } => {
                (bindings::KISCSI_OK, status, residual, sense)
            }
            End::NoConnection => (bindings::KISCSI_NO_CONNECT, 0, 0, &[][..]),
            End::Again => (bindings::KISCSI_REQUEUE, 0, 0, &[][..]),
            End::Error => (bindings::KISCSI_ERROR, 0, 0, &[][..]),
        };
        // CAST: a small enum, and at most the length of a receive.
        let (host, len) = (host as u8, sense.len() as u32);
        // SAFETY: by the type's invariants it has not ended; the sense data has this many bytes.
        unsafe {
            bindings::kiscsi_done(raw, host, status, residual, sense.as_ptr().cast(), len);
        }
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants it has not ended, and was mapped.
        unsafe { bindings::kiscsi_unmap(self.0.as_ptr()) };
    }
}

/// The owner of the commands of a host.
pub(crate) trait Commands: Send + Sync {
    /// Sends a command. Can be called in any context.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there will be no connection, `EINVAL` for a command that is not possible, and
    /// others for one that is to be tried again.
    ///
    /// # Safety
    ///
    /// The host must have got the command just now.
    unsafe fn queue(&self, raw: NonNull<bindings::kiscsi_cmnd>, index: usize) -> Result;

    /// Ends a command that takes too long: on success nothing uses it any more.
    fn abort(&self, raw: NonNull<bindings::kiscsi_cmnd>, index: usize) -> Result;

    /// Ends all commands, and waits for another connection.
    fn reset(&self) -> Result;
}

/// A host of the SCSI layer. It is removed on drop: on return there are no commands.
///
/// # Invariants
///
/// `raw` refers to a host that this type owns, and that was added. Its functions get the address of
/// what is in `commands`.
pub(crate) struct Host {
    raw: NonNull<bindings::kiscsi_host>,
    #[expect(dead_code, reason = "kept")]
    commands: KBox<Arc<dyn Commands>>,
}

// SAFETY: hosts may be removed by any thread.
unsafe impl Send for Host {}

impl Host {
    /// Adds a host with these commands, and looks for its disks.
    pub(crate) fn add(device: &Attached, commands: Arc<dyn Commands>) -> Result<Self> {
        let device = device.as_raw().as_ptr();
        let mut commands = KBox::new(commands, GFP_KERNEL)?;
        let session: *mut Arc<dyn Commands> = &mut *commands;
        // SAFETY: the device is registered, as the caller has it.
        let raw = unsafe { bindings::kiscsi_host_new(device, session.cast(), COMMANDS as u32) };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: it was created just now, and the device is registered. `commands` stays where it
        // is.
        let added = to_result(unsafe { bindings::kiscsi_host_add(raw.as_ptr(), device) });
        added.inspect_err(|_| {
            // SAFETY: it is this function's own, and was not added.
            unsafe { bindings::kiscsi_host_put(raw.as_ptr()) };
        })?;
        // INVARIANT: it was added just now.
        Ok(Self { raw, commands })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants the host is this type's own. When it was removed, its
        // functions are not called any more.
        unsafe { bindings::kiscsi_host_remove(self.raw.as_ptr()) };
        // SAFETY: as above.
        unsafe { bindings::kiscsi_host_put(self.raw.as_ptr()) };
    }
}

/// Returns the commands of a host.
///
/// # Safety
///
/// `session` must be what a host's functions get, for `'a`.
unsafe fn commands<'a>(session: *mut c_void) -> &'a dyn Commands {
    // SAFETY: the caller promises so, and by its invariants the host has these commands.
    &**unsafe { &*session.cast::<Arc<dyn Commands>>() }
}

fn result(result: Result) -> c_int {
    result.map_or_else(Error::to_errno, |()| 0)
}

/// See `helpers.h`.
///
/// # Safety
///
/// To be called by the functions of a [`Host`], with a command that it has got just now.
#[no_mangle]
unsafe extern "C" fn kiscsi_queue(
    session: *mut c_void,
    cmnd: *mut bindings::kiscsi_cmnd,
    tag: u32,
) -> c_int {
    let Some(cmnd) = NonNull::new(cmnd) else { return EINVAL.to_errno() };
    // SAFETY: the host's functions call this, and the host has got the command just now.
    result(unsafe { commands(session).queue(cmnd, tag as usize) })
}

/// See `helpers.h`.
///
/// # Safety
///
/// To be called by the functions of a [`Host`].
#[no_mangle]
unsafe extern "C" fn kiscsi_abort(
    session: *mut c_void,
    cmnd: *mut bindings::kiscsi_cmnd,
    tag: u32,
) -> c_int {
    let Some(cmnd) = NonNull::new(cmnd) else { return EINVAL.to_errno() };
    // SAFETY: the host's functions call this.
    result(unsafe { commands(session) }.abort(cmnd, tag as usize))
}

/// See `helpers.h`.
///
/// # Safety
///
/// To be called by the functions of a [`Host`].
#[no_mangle]
unsafe extern "C" fn kiscsi_reset(session: *mut c_void) -> c_int {
    // SAFETY: the host's functions call this.
    result(unsafe { commands(session) }.reset())
}
