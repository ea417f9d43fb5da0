//! What `/proc` tells of a thread that waits for the answer to a system call.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::io::Errno;

use crate::memory::PAGE;

/// Maximum length of a path, with the zero at its end (`PATH_MAX` in linux/limits.h).
const PATH_MAX: usize = 4096;
/// Number of bytes of a path that are read first. Most paths are shorter.
const FIRST: usize = 128;
/// Maximum number of device files that a process has open.
pub const DEVICES_MAX: u32 = 256;

/// A file that a process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    dev: u64,
    ino: u64,
}

impl FileId {
    /// Returns the identity of a file of this process.
    ///
    /// # Errors
    /// The error of fstat.
    pub fn of(file: impl std::os::fd::AsFd) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(file)?;
        Ok(Self { dev: stat.st_dev, ino: stat.st_ino })
    }
}

/// Returns the process of a thread.
///
/// # Errors
/// `ESRCH` if there is no such thread.
pub fn process(thread: Pid) -> Result<Pid, Errno> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).map_err(|_| Errno::SRCH)?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:")).ok_or(Errno::SRCH)?;
    line.trim().parse().map(Pid::from_raw).map_err(|_| Errno::SRCH)
}

/// Returns the file that a descriptor of a thread's process refers to.
///
/// # Errors
/// `EBADF` if there is none.
pub fn file(thread: Pid, descriptor: i32) -> Result<FileId, Errno> {
    let path = format!("/proc/{thread}/fd/{descriptor}");
    // Without asking a file system of the program, which may wait for this supervisor.
    let stat =
        statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).map_err(|_| Errno::BADF)?;
    Ok(FileId { dev: makedev(stat.stx_dev_major, stat.stx_dev_minor), ino: stat.stx_ino })
}

/// The signals that a thread would handle now, if it did not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signaled {
    /// None.
    None,
    /// One that only this thread can handle.
    Thread,
    /// One that another thread of the process may handle, too.
    Process,
}

/// Returns the signals that a thread would handle now.
#[must_use]
pub fn pending(thread: Pid) -> Signaled {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    signals(&status)
}

/// Returns the signals in the text of `/proc/PID/status`.
fn signals(status: &str) -> Signaled {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let set = |name| field(name).and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0);
    let (own, shared, blocked) = (set("SigPnd:"), set("ShdPnd:"), set("SigBlk:"));
    let is_alone = field("Threads:") == Some("1");
    if own & !blocked != 0 || is_alone && shared & !blocked != 0 {
        Signaled::Thread
    } else if shared & !blocked != 0 {
        Signaled::Process
    } else {
        Signaled::None
    }
}

/// Returns whether a descriptor of a thread's process must not wait (`O_NONBLOCK`).
#[must_use]
pub fn is_nonblocking(thread: Pid, descriptor: i32) -> bool {
    let path = format!("/proc/{thread}/fdinfo/{descriptor}");
    let text = fs::read_to_string(path).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_NONBLOCK != 0)
}

/// Returns the lowest number from `first` on that the process of a thread has not used for a
/// descriptor.
///
/// # Errors
/// `EMFILE` if it has too many.
pub fn free_descriptor(thread: Pid, first: u32) -> Result<u32, Errno> {
    let is_free =
        |number: &u32| fs::symlink_metadata(format!("/proc/{thread}/fd/{number}")).is_err();
    (first..first + DEVICES_MAX).find(is_free).ok_or(Errno::MFILE)
}

/// Reads the path at an address of a thread's process.
///
/// # Errors
/// `EFAULT` if it is not there, `ENAMETOOLONG` if it has no end.
pub fn path(thread: Pid, addr: u64) -> Result<Vec<u8>, Errno> {
    let mut path = Vec::new();
    let mut at = addr;
    while path.len() < PATH_MAX {
        // The next page may not be readable.
        let in_page = usize::try_from(PAGE - at % PAGE).map_err(|_| Errno::FAULT)?;
        let most = if path.is_empty() { FIRST } else { PATH_MAX - path.len() };
        let mut piece = vec![0; in_page.min(most)];
        let base = usize::try_from(at).map_err(|_| Errno::FAULT)?;
        let remote = [RemoteIoVec { base, len: piece.len() }];
        let mut local = [std::io::IoSliceMut::new(&mut piece)];
        let got = process_vm_readv(thread, &mut local, &remote).map_err(|_| Errno::FAULT)?;
        let read = piece.get(..got).ok_or(Errno::FAULT)?;
        if let Some(end) = read.iter().position(|byte| *byte == 0) {
            path.extend_from_slice(read.get(..end).unwrap_or_default());
            return Ok(path);
        }
        if read.is_empty() {
            return Err(Errno::FAULT);
        }
        path.extend_from_slice(read);
        at = at.checked_add(read.len() as u64).ok_or(Errno::FAULT)?;
    }
    Err(Errno::NAMETOOLONG)
}

/// Copies bytes to an address of a thread's process.
///
/// # Errors
/// `EFAULT` if not all of them can be written.
pub fn write(thread: Pid, addr: u64, bytes: &[u8]) -> Result<(), Errno> {
    let base = usize::try_from(addr).map_err(|_| Errno::FAULT)?;
    let remote = [RemoteIoVec { base, len: bytes.len() }];
    let local = [std::io::IoSlice::new(bytes)];
    let written = nix::sys::uio::process_vm_writev(thread, &local, &remote);
    if written == Ok(bytes.len()) { Ok(()) } else { Err(Errno::FAULT) }
}

/// Reads bytes at an address of a thread's process.
///
/// # Errors
/// `EFAULT` if not all of them are there.
pub fn read(thread: Pid, addr: u64, into: &mut [u8]) -> Result<(), Errno> {
    let base = usize::try_from(addr).map_err(|_| Errno::FAULT)?;
    let len = into.len();
    let remote = [RemoteIoVec { base, len }];
    let read = process_vm_readv(thread, &mut [std::io::IoSliceMut::new(into)], &remote);
    if read == Ok(len) { Ok(()) } else { Err(Errno::FAULT) }
}

/// Checks that a process has memory at a range of addresses, and may read it, or also write to it.
///
/// # Errors
/// `EFAULT` if that is not so.
pub fn check_memory(process: Pid, addr: u64, len: u64, written: bool) -> Result<(), Errno> {
    let end = addr.checked_add(len).ok_or(Errno::FAULT)?;
    let maps = File::open(format!("/proc/{process}/maps")).map_err(|_| Errno::FAULT)?;
    let mut next = addr;
    // Names of files need not be UTF-8.
    for line in BufReader::new(maps).split(b'\n') {
        let line = line.map_err(|_| Errno::FAULT)?;
        let line = String::from_utf8_lossy(&line);
        let Some((start, stop, rights)) = area(&line) else { continue };
        if stop <= next {
            continue;
        }
        let allowed = rights.starts_with('r') && (!written || rights.get(1..2) == Some("w"));
        if start > next || !allowed {
            break;
        }
        next = stop;
        if next >= end {
            return Ok(());
        }
    }
    if next >= end { Ok(()) } else { Err(Errno::FAULT) }
}

/// Returns the file of which a range of a process's memory is a shared mapping that can be written,
/// and the place of the range in the file. `None` if that is not so.
#[must_use]
pub fn mapped(process: Pid, addr: u64, len: u64) -> Option<(FileId, u64)> {
    let end = addr.checked_add(len)?;
    let maps = File::open(format!("/proc/{process}/maps")).ok()?;
    for line in BufReader::new(maps).split(b'\n') {
        let line = line.ok()?;
        let line = String::from_utf8_lossy(&line);
        let Some((start, stop, rest)) = area(&line) else { continue };
        if (start..stop).contains(&addr) {
            return if end <= stop { file_of(rest, addr - start) } else { None };
        }
    }
    None
}

/// Returns the file in the rest of a line of `/proc/PID/maps`, and the place there of what is
/// `skip` bytes inside.
fn file_of(rest: &str, skip: u64) -> Option<(FileId, u64)> {
    let mut words = rest.split_ascii_whitespace();
    let (rights, offset, device, ino) =
        (words.next()?, words.next()?, words.next()?, words.next()?);
    let (major, minor) = device.split_once(':')?;
    let [major, minor] = [major, minor].map(|text| u32::from_str_radix(text, 16).ok());
    let id = FileId { dev: makedev(major?, minor?), ino: ino.parse().ok()? };
    let place = u64::from_str_radix(offset, 16).ok()?.checked_add(skip)?;
    (rights == "rw-s").then_some((id, place))
}

/// Returns the addresses and the rest in a line of `/proc/PID/maps`.
fn area(line: &str) -> Option<(u64, u64, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, stop) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(stop)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_of_a_thread_is_found() {
        let find = || process(nix::unistd::gettid()).expect("a thread");
        assert_eq!(std::thread::spawn(find).join().expect("a thread"), Pid::this());
        assert_eq!(process(Pid::from_raw(i32::MAX)), Err(Errno::SRCH));
    }

    #[test]
    fn paths_end_at_their_zero() {
        for len in [0, 1, FIRST - 1, FIRST, 2000] {
            let text = [vec![b'x'; len], vec![0]].concat();
            let read = path(Pid::this(), text.as_ptr() as u64).expect("a path");
            assert_eq!(read, vec![b'x'; len]);
        }
        assert_eq!(path(Pid::this(), 16), Err(Errno::FAULT));
        let endless = vec![b'x'; 2 * PATH_MAX];
        assert_eq!(path(Pid::this(), endless.as_ptr() as u64), Err(Errno::NAMETOOLONG));
    }

    #[test]
    fn a_descriptor_that_is_open_is_not_free() {
        let first = free_descriptor(Pid::this(), 0).expect("a number");
        assert!(first > 2);
        assert!(file(Pid::this(), 0).is_ok() && file(Pid::this(), 5000) == Err(Errno::BADF));
    }

    #[test]
    fn signals_of_a_thread_are_told_from_those_of_the_process() {
        let status = |threads, own, shared, blocked| {
            let [own, shared, blocked] =
                [own, shared, blocked].map(|set: u64| format!("{set:016x}"));
            signals(&format!(
                "Threads:\t{threads}\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\n"
            ))
        };
        assert_eq!(status(2, 0, 0, 0), Signaled::None);
        assert_eq!(status(2, 4, 0, 4), Signaled::None);
        assert_eq!(status(2, 4, 0, 0), Signaled::Thread);
        assert_eq!(status(2, 0, 4, 0), Signaled::Process);
        assert_eq!(status(1, 0, 4, 0), Signaled::Thread);
    }

    #[test]
    fn files_that_must_not_wait_are_known() {
        let (file, _peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert!(!is_nonblocking(Pid::this(), descriptor));
        file.set_nonblocking(true).expect("a flag");
        assert!(is_nonblocking(Pid::this(), descriptor));
    }

    #[test]
    fn memory_without_the_right_is_not_there() {
        let memory = vec![0u8; 100_000];
        let check = |addr, len, written| check_memory(Pid::this(), addr, len, written);
        let addr = memory.as_ptr() as u64;
        assert_eq!(check(addr, 100_000, true), Ok(()));
        let text = check_memory as *const () as u64;
        assert_eq!((check(text, 1, false), check(text, 1, true)), (Ok(()), Err(Errno::FAULT)));
        assert_eq!(check(0, 1, false), Err(Errno::FAULT));
        assert_eq!(check(addr, 1 << 46, false), Err(Errno::FAULT));
        assert_eq!(check(u64::MAX, 2, false), Err(Errno::FAULT));
    }
}
