//! The file by which the kernel passes system calls on (unsafe code): `seccomp_unotify(2)`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use libc::{
    SECCOMP_ADDFD_FLAG_SEND, SECCOMP_ADDFD_FLAG_SETFD, SECCOMP_IOCTL_NOTIF_ADDFD,
    SECCOMP_IOCTL_NOTIF_ID_VALID, SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND,
    SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FLAG_CONTINUE, c_int, c_ulong, seccomp_notif,
    seccomp_notif_addfd, seccomp_notif_resp,
};
use nix::unistd::Pid;
use rustix::io::Errno;

use super::call::{Answer, Call};

/// In the flags of a listener, from Linux 6.6 on: the thread that answers hands its processor over
/// (`SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` in linux/seccomp.h).
const SYNC_WAKE_UP: u64 = 1;

/// The number of a system call that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(u64);

/// The file.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Listener {
    /// Takes the file over.
    #[must_use]
    pub fn new(file: OwnedFd) -> Self {
        let this = Self(file);
        let flags = SYNC_WAKE_UP;
        // SAFETY: the kernel takes the flags by value.
        let _older = unsafe { ioctl_value(&this.0, SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags) };
        this
    }

    /// Waits for the next system call.
    ///
    /// # Errors
    /// `EINTR` or `ENOENT` if the one that was there has ended; others if there will be none.
    pub fn receive(&self) -> Result<(Id, Call), Errno> {
        let mut raw = seccomp_notif {
            id: 0,
            pid: 0,
            flags: 0,
            data: libc::seccomp_data { nr: 0, arch: 0, instruction_pointer: 0, args: [0; 6] },
        };
        // SAFETY: the kernel fills a struct of this type, which is zeroed as it demands.
        unsafe { ioctl(&self.0, SECCOMP_IOCTL_NOTIF_RECV, &raw mut raw) }?;
        // CAST: process numbers are positive 32-bit numbers.
        let thread = Pid::from_raw(raw.pid as i32);
        Ok((Id(raw.id), Call { thread, number: raw.data.nr.into(), args: raw.data.args }))
    }

    /// Answers a system call.
    ///
    /// # Errors
    /// `ENOENT` if the thread does not wait any more.
    pub fn answer(&self, id: Id, answer: Answer) -> Result<(), Errno> {
        let mut raw = seccomp_notif_resp { id: id.0, val: 0, error: 0, flags: 0 };
        match answer {
            // CAST: a flag.
            Answer::Continue => raw.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
            Answer::Value(value) => raw.val = value,
            Answer::Failed(error) => raw.error = -error.raw_os_error(),
            Answer::Given => return Ok(()),
        }
        // SAFETY: the kernel reads a struct of this type.
        unsafe { ioctl(&self.0, SECCOMP_IOCTL_NOTIF_SEND, &raw mut raw) }.map(drop)
    }

    /// Returns whether the thread still waits. If so, its number was that of this thread at all
    /// times since the system call was received.
    #[must_use]
    pub fn is_waiting(&self, id: Id) -> bool {
        let mut raw = id.0;
        // SAFETY: the kernel reads a number of this type.
        unsafe { ioctl(&self.0, SECCOMP_IOCTL_NOTIF_ID_VALID, &raw mut raw) }.is_ok()
    }

    /// Gives the process of the thread a copy of a descriptor, at the lowest free number. The
    /// system call goes on waiting.
    ///
    /// # Errors
    /// `EMFILE` if the process has no room for it.
    pub fn give(&self, id: Id, file: BorrowedFd<'_>) -> Result<RawFd, Errno> {
        self.add(id, file, 0, 0, libc::O_CLOEXEC)
    }

    /// Gives the process of the thread a copy of a descriptor, at the lowest free number, and
    /// returns that number from the system call, which had these flags of `open(2)`.
    ///
    /// # Errors
    /// `EMFILE` if the process has no room for it.
    pub fn answer_with(&self, id: Id, file: BorrowedFd<'_>, flags: i32) -> Result<RawFd, Errno> {
        self.add(id, file, SECCOMP_ADDFD_FLAG_SEND, 0, flags)
    }

    /// Does the same as [`Self::answer_with`] with this number, which is free.
    ///
    /// # Errors
    /// `EBADF` if the process may not have a descriptor with this number.
    pub fn answer_at(
        &self,
        id: Id,
        file: BorrowedFd<'_>,
        number: u32,
        flags: i32,
    ) -> Result<RawFd, Errno> {
        self.add(id, file, SECCOMP_ADDFD_FLAG_SEND | SECCOMP_ADDFD_FLAG_SETFD, number, flags)
    }

    fn add(
        &self,
        id: Id,
        file: BorrowedFd<'_>,
        flags: c_ulong,
        at: u32,
        opened: i32,
    ) -> Result<RawFd, Errno> {
        let mut raw = seccomp_notif_addfd {
            id: id.0,
            // CAST: small flags, and a descriptor, which is not negative.
            flags: flags as u32,
            srcfd: file.as_raw_fd() as u32,
            newfd: at,
            newfd_flags: (opened & libc::O_CLOEXEC) as u32,
        };
        // SAFETY: the kernel reads a struct of this type.
        unsafe { ioctl(&self.0, SECCOMP_IOCTL_NOTIF_ADDFD, &raw mut raw) }
    }
}

/// Calls ioctl.
///
/// # Safety
/// The request must read and write one `T`.
unsafe fn ioctl<T>(file: &OwnedFd, request: libc::Ioctl, data: *mut T) -> Result<c_int, Errno> {
    // SAFETY: the caller passes the type of the request, and the reference makes it live.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, data) };
    if result < 0 { Err(last()) } else { Ok(result) }
}

/// # Safety
/// The request must take a number.
unsafe fn ioctl_value(file: &OwnedFd, request: libc::Ioctl, value: u64) -> Result<c_int, Errno> {
    // SAFETY: the caller passes a request that takes a number.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, value) };
    if result < 0 { Err(last()) } else { Ok(result) }
}

fn last() -> Errno {
    crate::memory::space::errno(&std::io::Error::last_os_error())
}
