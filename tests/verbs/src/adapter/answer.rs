//! Commands to the kernel whose response cannot be written. They are made without libibverbs, as a
//! hostile program may make them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::thread;
use std::time::Duration;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::mm::{UserfaultfdFlags, userfaultfd};

use crate::cq::Cq;
use crate::memory::Pd;
use crate::readable;

/// Page size of the machines on which this runs.
const PAGE: usize = 4096;
/// Time limit for the kernel to access the response.
const TIMEOUT: Duration = Duration::from_secs(20);

/// `IB_USER_VERBS_CMD_REG_MR` and `IB_USER_VERBS_CMD_RESIZE_CQ` of rdma/ib_user_verbs.h.
const REG_MR: u32 = 9;
const RESIZE_CQ: u32 = 19;
/// Bytes of the kernel's own responses to these commands. The driver's response follows.
const REG_MR_ANSWER: usize = 12;
const RESIZE_CQ_ANSWER: usize = 8;

/// Constants of linux/userfaultfd.h: version, ioctls, and the mode for missing pages.
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_WAKE: libc::c_ulong = 0x8010_aa02;
const MODE_MISSING: u64 = 1;

/// Two pages. The first access to the second page waits until that page is made inaccessible, and
/// then fails.
struct Trap {
    pages: NonNull<u8>,
    faults: OwnedFd,
}

impl Trap {
    fn new() -> io::Result<Self> {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that
        // exists.
        let pages = unsafe { mmap_anonymous(ptr::null_mut(), 2 * PAGE, rights, flags)? };
        let pages = NonNull::new(pages.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the call makes a descriptor and touches no memory.
        let faults =
            unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK)? };
        let this = Self { pages, faults };
        this.control(UFFDIO_API, [UFFD_API, 0, 0, 0])?;
        this.control(UFFDIO_REGISTER, [this.second(), PAGE as u64, MODE_MISSING, 0])?;
        Ok(this)
    }

    /// Returns the start of a response. The kernel's part of it has `own` bytes and ends in the
    /// first page. The driver's part crosses into the second page.
    fn answer(&self, own: usize) -> u64 {
        self.second() - own.next_multiple_of(8) as u64
    }

    fn second(&self) -> u64 {
        (self.pages.as_ptr().addr() + PAGE) as u64
    }

    /// Waits until the second page is accessed.
    fn wait(&self) -> io::Result<()> {
        match readable(self.faults.as_raw_fd(), TIMEOUT)? {
            true => Ok(()),
            false => Err(io::Error::other("the kernel does not touch its answer")),
        }
    }

    /// Makes the second page inaccessible, so that the waiting access fails.
    fn close(&self) -> io::Result<()> {
        let second = self.pages.as_ptr().wrapping_add(PAGE);
        // SAFETY: a page of this mapping, in which no Rust value lives.
        unsafe { mprotect(second.cast(), PAGE, MprotectFlags::empty())? };
        self.control(UFFDIO_WAKE, [self.second(), PAGE as u64, 0, 0])
    }

    fn control(&self, request: libc::c_ulong, mut words: [u64; 4]) -> io::Result<()> {
        // SAFETY: the descriptor is live; no struct of these requests is longer than the array.
        // They concern only the pages of this mapping, which contain no Rust value.
        match unsafe { libc::ioctl(self.faults.as_raw_fd(), request, words.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        // SAFETY: this is our own mapping; no command that could write to it is in progress.
        let _ = unsafe { munmap(self.pages.as_ptr().cast(), 2 * PAGE) };
    }
}

/// Parameters of a region.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub addr: u64,
    pub length: u64,
    pub access: u32,
}

/// Registers a region, and calls `meanwhile` when the kernel begins to write the driver's part of
/// the response, for which there is no room. Returns the error of the command.
pub fn reg_mr(
    pd: &Pd,
    wanted: Wanted,
    meanwhile: impl FnOnce() -> io::Result<()>,
) -> io::Result<io::Error> {
    let trap = Trap::new()?;
    // SAFETY: the handle is live and its context open; these fields are constant.
    let (fd, handle) = unsafe { ((*(*pd.raw()).context).cmd_fd, (*pd.raw()).handle) };
    let body = [
        trap.answer(REG_MR_ANSWER),
        wanted.addr,
        wanted.length,
        wanted.addr,
        u64::from(handle) | u64::from(wanted.access) << 32,
        // The driver's part of the command.
        0,
    ];
    thread::scope(|scope| {
        let command = scope.spawn(|| give(fd, REG_MR, &body, REG_MR_ANSWER));
        let done = trap.wait().and_then(|()| meanwhile());
        trap.close()?;
        let result = command.join().map_err(|_| io::Error::other("the command panicked"))?;
        done?;
        refused(result)
    })
}

/// Resizes a queue to `cqe` entries, in a ring at `ring` with 2 to the power of `log_size` entries,
/// without room for the driver's part of the response. Returns the error of the command.
pub fn resize_cq(cq: &Cq, cqe: u32, ring: u64, log_size: u8) -> io::Result<io::Error> {
    let trap = Trap::new()?;
    trap.close()?;
    // SAFETY: the handle is live and its context open; these fields are constant.
    let (fd, handle) = unsafe { ((*(*cq.raw()).context).cmd_fd, (*cq.raw()).handle) };
    let answer = trap.answer(RESIZE_CQ_ANSWER);
    let body = [answer, u64::from(handle) | u64::from(cqe) << 32, ring, u64::from(log_size)];
    refused(give(fd, RESIZE_CQ, &body, RESIZE_CQ_ANSWER))
}

fn refused(result: io::Result<()>) -> io::Result<io::Error> {
    match result {
        Ok(()) => Err(io::Error::other("the kernel wrote its answer")),
        Err(error) => Ok(error),
    }
}

/// Sends a command to the kernel, with room for its own part of the response and a page more.
fn give(fd: i32, command: u32, body: &[u64], own: usize) -> io::Result<()> {
    let room = own + PAGE;
    // Lengths are in units of 4 bytes.
    let (words, answer) = (2 * (1 + body.len()), room / 4);
    let head = u64::from(command) | (words as u64) << 32 | (answer as u64) << 48;
    let message: Vec<u64> = [head].into_iter().chain(body.iter().copied()).collect();
    // SAFETY: `message` is live and has this length. The response goes to pages that contain no
    // Rust value.
    let written = unsafe { libc::write(fd, message.as_ptr().cast(), 8 * message.len()) };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
