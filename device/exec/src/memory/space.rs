//! The memory of one process.
//!
//! `process_vm_readv(2)` and `process_vm_writev(2)` are fast and respect the rights of pages, but
//! they name a process by its number, and a process that executes another program keeps its number.
//! `/proc/PID/mem` belongs to the memory of the process at the time at which the file was opened
//! (`proc_mem_open` in the kernel's fs/proc/base.c), and reads as empty when that memory is gone.
//! Therefore the supervisor sees the system call execve before it happens, and uses the file from
//! then on. A number is used again only after its process has ended, which the process's descriptor
//! shows.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::process::PidfdFlags;

use crate::descriptors::check_room;

/// The end of the addresses of programs.
pub const END: u64 = 1 << 47;
/// Number of bytes at the end of a write that become visible after all others. Programs poll a part
/// of a word for the end of a message or of a completion.
const LAST: usize = 8;
/// Up to so many bytes, `/proc/PID/mem` is read faster than memory by the number of the process.
const SHORT: usize = 8 << 10;

/// Time for which a process is taken to exist after it was found to. The kernel gives the number of
/// a process that has ended to another one only after all other numbers, which takes longer. A
/// program can delay accesses to its memory for any time, and so those to the memory of others.
const BELIEVED: Duration = Duration::from_micros(200);

/// The memory of a process.
#[derive(Debug)]
pub struct Space {
    pid: Pid,
    file: File,
    /// Becomes readable when the process ends, before its number can be used again.
    process: OwnedFd,
    /// True when the process executes, or has executed, another program.
    executes: AtomicBool,
    /// The time at which the memory was opened.
    opened: Instant,
    /// The nanoseconds from then to the time at which the process was last found to exist.
    seen: AtomicU64,
    /// Number of ranges of this memory of which an adapter has the addresses.
    placements: AtomicU32,
}

impl Space {
    /// Opens the memory of a process, which must not end meanwhile: afterwards the caller checks
    /// that a thread of the process still waits for an answer.
    ///
    /// # Errors
    /// Returns the error of opening its file, such as `EACCES` for a process that cannot be traced.
    pub fn open(pid: Pid) -> Result<Self, Errno> {
        let number = rustix::process::Pid::from_raw(pid.as_raw()).ok_or(Errno::SRCH)?;
        let process = rustix::process::pidfd_open(number, PidfdFlags::empty())?;
        let path = format!("/proc/{pid}/mem");
        let file =
            OpenOptions::new().read(true).write(true).open(path).map_err(|error| errno(&error))?;
        check_room(&process).and_then(|()| check_room(&file))?;
        Ok(Self {
            pid,
            file,
            process,
            executes: AtomicBool::new(false),
            placements: AtomicU32::new(0),
            opened: Instant::now(),
            seen: AtomicU64::new(0),
        })
    }

    /// Returns the number of the process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Records that an adapter gets the addresses of a range of this memory.
    pub(super) fn place(&self) {
        self.placements.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that no adapter has the addresses of one such range any more.
    pub(super) fn unplace(&self) {
        self.placements.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of ranges of which an adapter has the addresses.
    #[must_use]
    pub fn placements(&self) -> u32 {
        self.placements.load(Ordering::Relaxed)
    }

    /// Records that the process is about to execute another program. After this, and after the end
    /// of all accesses that have begun before, no access reaches the memory of that program.
    pub fn set_executes(&self) {
        self.executes.store(true, Ordering::SeqCst);
    }

    /// Returns whether the process has ended, so that its number may soon be another one's.
    #[inline]
    fn has_ended(&self) -> bool {
        // CAST: it does not overflow for 500 years.
        let now = self.opened.elapsed().as_nanos() as u64;
        let age = now.saturating_sub(self.seen.load(Ordering::Relaxed));
        if Duration::from_nanos(age) < BELIEVED {
            return false;
        }
        let mut ended = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ended, PollTimeout::ZERO) != Ok(0) {
            return true;
        }
        self.seen.store(now, Ordering::Relaxed);
        false
    }

    /// Returns whether the memory still exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        // Any address will do: memory that is gone reads as empty, and unmapped memory fails.
        !matches!(self.file.read_at(&mut [0], 1 << 12), Ok(0))
    }

    /// Copies memory out.
    ///
    /// # Errors
    /// `EFAULT` if not all of it is there.
    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), Errno> {
        check(addr, into.len())?;
        if into.is_empty() {
            return Ok(());
        }
        if into.len() <= SHORT || self.executes.load(Ordering::Relaxed) {
            return self.file.read_exact_at(into, addr).map_err(|_| Errno::FAULT);
        }
        if self.has_ended() {
            return Err(Errno::FAULT);
        }
        let (base, len) = (to_usize(addr)?, into.len());
        let moved =
            process_vm_readv(self.pid, &mut [IoSliceMut::new(into)], &[RemoteIoVec { base, len }]);
        whole(moved, len)
    }

    /// Copies to memory. The last bytes become visible last.
    ///
    /// # Errors
    /// `EFAULT` if not all of it can be written.
    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), Errno> {
        check(addr, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        let split = from.len().saturating_sub(LAST);
        if self.executes.load(Ordering::Relaxed) {
            let (first, last) = from.split_at(split);
            return self
                .file
                .write_all_at(first, addr)
                .and_then(|()| self.file.write_all_at(last, addr + split as u64))
                .map_err(|_| Errno::FAULT);
        }
        if self.has_ended() {
            return Err(Errno::FAULT);
        }
        // The kernel copies one range after the other.
        let base = to_usize(addr)?;
        let ranges = [
            RemoteIoVec { base, len: split },
            RemoteIoVec { base: base + split, len: from.len() - split },
        ];
        let used = if split == 0 { &ranges[1..] } else { &ranges[..] };
        whole(process_vm_writev(self.pid, &[IoSlice::new(from)], used), from.len())
    }
}

/// Checks that a range is one of a program.
fn check(addr: u64, len: usize) -> Result<(), Errno> {
    let end = addr.checked_add(len as u64).ok_or(Errno::FAULT)?;
    if end <= END { Ok(()) } else { Err(Errno::FAULT) }
}

fn to_usize(addr: u64) -> Result<usize, Errno> {
    usize::try_from(addr).map_err(|_| Errno::FAULT)
}

fn whole(moved: nix::Result<usize>, len: usize) -> Result<(), Errno> {
    if moved == Ok(len) { Ok(()) } else { Err(Errno::FAULT) }
}

/// Returns the number of an error of the standard library.
#[must_use]
pub fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Space {
        Space::open(Pid::this()).expect("own memory")
    }

    #[test]
    fn both_ways_reach_the_memory_of_a_process() {
        let mut memory = [7u8; 100];
        let addr = memory.as_mut_ptr() as u64;
        let space = own();
        for way in 0..2 {
            let mut read = [0; 100];
            space.read(addr, &mut read).expect("memory");
            assert_eq!(read, [7; 100], "way {way}");
            space.write(addr, &read).expect("memory");
            space.set_executes();
        }
    }

    #[test]
    fn accesses_outside_of_memory_fail() {
        let space = own();
        for addr in [0, 1 << 12, END - 4, u64::MAX - 3] {
            assert_eq!(space.read(addr, &mut [0; 8]), Err(Errno::FAULT), "{addr:#x}");
            assert_eq!(space.write(addr, &[0; 8]), Err(Errno::FAULT), "{addr:#x}");
        }
    }

    #[test]
    fn memory_of_a_program_that_another_has_replaced_is_not_reached() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process number"));
        let space = Space::open(pid).expect("its memory");
        assert!(space.exists() && !space.has_ended());
        child.kill().expect("a running process");
        child.wait().expect("a child");
        assert!(!space.exists());
        // By the number of the process, which another one may have now, and by the file.
        std::thread::sleep(BELIEVED);
        assert!(space.has_ended());
        assert_eq!(space.read(1 << 16, &mut [0; 8]), Err(Errno::FAULT));
        assert_eq!(space.write(1 << 16, &[0; 8]), Err(Errno::FAULT));
        space.set_executes();
        assert_eq!(space.read(1 << 16, &mut [0; 8]), Err(Errno::FAULT));
    }
}
