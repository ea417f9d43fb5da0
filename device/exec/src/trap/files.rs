//! Answers to system calls that name a file, except those that open a device file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::unistd::Pid;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use super::call::{Answer, Call};
use super::listener::{Id, Listener};
use super::stat::DeviceNumber;
use super::tree::Tree;
use super::{paths, stat, task};
use crate::memory::space::errno;

/// What a system call wants of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To open it with these flags of `open(2)`.
    Open(i32),
    /// To know whether it exists.
    Access,
    /// To store a `struct stat` at this address.
    Stat(u64),
    /// To store a `struct statx` at this address.
    Statx(u64),
    /// To store the target of a link at this address, in at most this many bytes.
    Readlink(u64, u64),
}

/// A system call about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The system call names the file by the path at this address.
    Path(u64),
    /// The system call names the file by a descriptor.
    Descriptor(i32),
}

/// Returns the file that a system call is about, and what it wants. `None` for other system calls.
#[must_use]
pub fn parse(call: &Call) -> Option<(Subject, Wish)> {
    // CAST: the kernel takes the lower half of flags, too.
    let flags = |argument| call.arg(argument) as i32;
    let path = |argument| Subject::Path(call.arg(argument));
    // With an empty path, some system calls are about the descriptor.
    let either = |flags: i32| {
        let by_descriptor = flags & libc::AT_EMPTY_PATH != 0
            && call.descriptor(0) >= 0
            && has_no_path(call.thread, call.arg(1));
        if by_descriptor { Subject::Descriptor(call.descriptor(0)) } else { path(1) }
    };
    Some(match call.number {
        libc::SYS_open => (path(0), Wish::Open(flags(1))),
        libc::SYS_openat => (path(1), Wish::Open(flags(2))),
        // The flags are the first field of `struct open_how`.
        libc::SYS_openat2 => {
            let mut how = [0; 8];
            task::read(call.thread, call.arg(2), &mut how).ok()?;
            // CAST: as the flags of the others.
            (path(1), Wish::Open(u64::from_le_bytes(how) as i32))
        }
        libc::SYS_access => (path(0), Wish::Access),
        libc::SYS_faccessat | libc::SYS_faccessat2 => (path(1), Wish::Access),
        libc::SYS_stat | libc::SYS_lstat => (path(0), Wish::Stat(call.arg(1))),
        libc::SYS_fstat => (Subject::Descriptor(call.descriptor(0)), Wish::Stat(call.arg(1))),
        libc::SYS_newfstatat => (either(flags(3)), Wish::Stat(call.arg(2))),
        libc::SYS_statx => (either(flags(2)), Wish::Statx(call.arg(4))),
        libc::SYS_readlink => (path(0), Wish::Readlink(call.arg(1), call.arg(2))),
        libc::SYS_readlinkat => (path(1), Wish::Readlink(call.arg(2), call.arg(3))),
        _ => return None,
    })
}

/// Returns whether a path is missing or empty.
fn has_no_path(thread: Pid, addr: u64) -> bool {
    let mut first = [1];
    addr == 0 || (task::read(thread, addr, &mut first).is_ok() && first == [0])
}

/// Stores bytes at an address of the process that waits for an answer.
///
/// # Errors
/// `EFAULT` if not all of them can be written, `EINTR` if the process does not wait any more.
pub fn store(
    listener: &Listener,
    id: Id,
    call: &Call,
    addr: u64,
    bytes: &[u8],
) -> Result<(), Errno> {
    if !listener.is_waiting(id) {
        return Err(Errno::INTR);
    }
    task::write(call.thread, addr, bytes)
}

/// Answers a system call about the file that programs see at this path of the tree.
///
/// # Errors
/// The error that the system call returns.
pub fn answer(
    listener: &Listener,
    id: Id,
    call: &Call,
    tree: &Tree,
    path: &str,
    wish: Wish,
) -> Result<Answer, Errno> {
    let place = tree.place(path);
    match wish {
        Wish::Open(flags) => {
            let file = open(&place, flags).map_err(|error| errno(&error))?;
            listener.answer_with(id, file.as_fd(), flags).map(|_| Answer::Given)
        }
        Wish::Access => metadata(&place).map(|_| Answer::Value(0)),
        Wish::Stat(addr) => {
            let bytes = stat::stat(&metadata(&place)?, number(path));
            store(listener, id, call, addr, &bytes).map(|()| Answer::Value(0))
        }
        Wish::Statx(addr) => {
            let bytes = stat::statx(&metadata(&place)?, number(path));
            store(listener, id, call, addr, &bytes).map(|()| Answer::Value(0))
        }
        Wish::Readlink(addr, len) => {
            let target = readlink(&place, len)?;
            store(listener, id, call, addr, &target)?;
            i64::try_from(target.len()).map(Answer::Value).map_err(|_| Errno::INVAL)
        }
    }
}

/// Opens a file that has this text, which only the opener sees.
///
/// # Errors
/// `EACCES` if it is not opened for reading, and the error of creating it.
pub fn text(listener: &Listener, id: Id, flags: i32, text: &str) -> Result<Answer, Errno> {
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        return Err(Errno::ACCESS);
    }
    let mut file = fs::File::from(memfd_create("counter", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes()).map_err(|error| errno(&error))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let theirs = fs::File::open(path).map_err(|error| errno(&error))?;
    listener.answer_with(id, theirs.as_fd(), flags).map(|_| Answer::Given)
}

/// Opens a file of the tree. Nobody can write there. Programs of the same user can replace its
/// files, by a pipe for example, for which the supervisor must not wait.
fn open(place: &Path, flags: i32) -> io::Result<fs::File> {
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        return Err(Errno::ACCESS.into());
    }
    let kept = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_PATH;
    OpenOptions::new().read(true).custom_flags(flags & kept | libc::O_NONBLOCK).open(place)
}

fn metadata(place: &Path) -> Result<fs::Metadata, Errno> {
    fs::symlink_metadata(place).map_err(|error| errno(&error))
}

/// Returns the number of the device whose device file is at a path.
fn number(path: &str) -> Option<DeviceNumber> {
    if path == paths::RDMA_CM {
        return Some(DeviceNumber::RDMA_CM);
    }
    let number = paths::device(path).and_then(|number| u32::try_from(number).ok())?;
    Some(DeviceNumber::adapter(number))
}

/// Returns the target of a link, or as much of it as fits into `len` bytes.
fn readlink(place: &Path, len: u64) -> Result<Vec<u8>, Errno> {
    let target = fs::read_link(place).map_err(|error| errno(&error))?;
    let mut target = target.into_os_string().into_vec();
    target.truncate(usize::try_from(len).unwrap_or(usize::MAX));
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: i64, args: [u64; 6]) -> Call {
        Call { thread: Pid::this(), number, args }
    }

    #[test]
    fn arguments_are_at_their_places() {
        let args = [3, 0x1000, 0x2000, 0, 0x3000, 0];
        let parsed = |number| parse(&call(number, args));
        assert_eq!(parsed(libc::SYS_openat), Some((Subject::Path(0x1000), Wish::Open(0x2000))));
        assert_eq!(parsed(libc::SYS_fstat), Some((Subject::Descriptor(3), Wish::Stat(0x1000))));
        assert_eq!(parsed(libc::SYS_newfstatat), Some((Subject::Path(0x1000), Wish::Stat(0x2000))));
        let by_descriptor = [3, 0, 0x1000, 0, 0x3000, 0];
        let parsed = parse(&call(libc::SYS_statx, by_descriptor));
        assert_eq!(parsed, Some((Subject::Descriptor(3), Wish::Statx(0x3000))));
        assert_eq!(parse(&call(libc::SYS_ioctl, args)), None);
    }

    #[test]
    fn files_of_the_tree_cannot_be_written() {
        let tree = Tree::new(&[]).expect("a folder");
        let place = tree.place("/sys/class/infiniband_verbs/abi_version");
        assert!(open(&place, libc::O_RDONLY).is_ok());
        let refused = open(&place, libc::O_RDWR | libc::O_TRUNC).expect_err("no right");
        assert_eq!(errno(&refused), Errno::ACCESS);
    }
}
