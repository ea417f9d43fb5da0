//! Signals eventfds of other processes, and never waits.
//!
//! A plain write to an eventfd waits while its count is at the maximum, unless O_NONBLOCK is set. A
//! process that shares the open file, such as the VMM, can clear that flag and set the count to the
//! maximum. RWF_NOWAIT does not help, because eventfds do not support it for writes. When the
//! kernel itself signals an eventfd, the count stops at the maximum and nothing waits. The kernel
//! does this on request at the end of an asynchronous I/O request (`aio_resfd`, io_submit(2)). So a
//! signal is an asynchronous read of no bytes from /dev/null, which ends within the system call
//! that submits it.
//!
//! The unsafe code here is the system calls that no crate wraps.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

/// Number of results that can wait to be reaped. The kernel reserves twice as many, and more on
/// large machines.
const RESULTS: libc::c_long = 64;
/// Maximum number of results that are reaped at once.
const REAPED: usize = 256;
/// Number of attempts for one signal. An attempt finds no room only if other threads have used all
/// room since the last one.
const TRIES: usize = 1000;
/// `IOCB_CMD_PREAD` (linux/aio_abi.h).
const PREAD: u16 = 0;
/// `IOCB_FLAG_RESFD`.
const SIGNAL_RESFD: u32 = 1;

/// `struct iocb` of a little-endian machine.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    /// The kernel writes to this field.
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Done {
    data: u64,
    object: u64,
    result: i64,
    more: i64,
}

const _: () = assert!(size_of::<Request>() == 64 && size_of::<Done>() == 32);

/// Signals eventfds. Any number of threads can use it.
#[derive(Debug)]
pub struct Signaller {
    context: libc::c_ulong,
    null: File,
}

impl Signaller {
    /// Creates a context for asynchronous I/O.
    ///
    /// # Errors
    /// Returns an error if the kernel has no asynchronous I/O, or no room for another context.
    pub fn new() -> io::Result<Self> {
        let null = File::open("/dev/null")?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the call writes one word to `context`, which is ours and holds zero, as it must.
        let rc = unsafe { libc::syscall(libc::SYS_io_setup, RESULTS, &raw mut context) };
        if rc == 0 {
            return Ok(Self { context, null });
        }
        let error = io::Error::last_os_error();
        let why = "interrupts need the kernel's asynchronous I/O (CONFIG_AIO, fs.aio-max-nr)";
        Err(io::Error::new(error.kind(), format!("{why}: {error}")))
    }

    /// Adds one to the count of `eventfd`, up to the maximum. Never waits, whatever other processes
    /// do with the eventfd.
    ///
    /// # Errors
    /// Returns an error if it is not an eventfd, or if the kernel has no memory.
    pub fn signal(&self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        for _ in 0..TRIES {
            let Err(error) = self.submit(eventfd) else { return Ok(()) };
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            self.reap();
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Submits one request, which has ended on return. Returns `WouldBlock` if the results of other
    /// threads fill the context.
    fn submit(&self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        const { assert!(cfg!(target_endian = "little")) };
        let number = |fd: BorrowedFd<'_>| fd.as_raw_fd().cast_unsigned();
        let mut request = Request {
            opcode: PREAD,
            fd: number(self.null.as_fd()),
            flags: SIGNAL_RESFD,
            resfd: number(eventfd),
            ..Request::default()
        };
        let mut requests = [&raw mut request];
        let requests = requests.as_mut_ptr();
        // SAFETY: `context` is one that io_setup returned and that lives as long as `self`. The
        // kernel reads one pointer from `requests`, and reads and writes the request behind it,
        // both of them alive and ours, before the call returns. The read that it asks for is of
        // zero bytes, so the null buffer is never touched.
        let rc = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, requests) };
        if rc == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Removes results from the context. They are not needed.
    #[cold]
    fn reap(&self) {
        let mut done = [Done::default(); REAPED];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let (into, until) = (done.as_mut_ptr(), ptr::from_ref(&now));
        let [min, max]: [libc::c_long; 2] = [0, REAPED as libc::c_long];
        // SAFETY: `context` as in `submit`; the kernel writes at most `max` results to `done`,
        // which has room for them, and reads `now`. With that time it does not wait. The result is
        // not used: the next attempt shows whether there is room.
        let _found =
            unsafe { libc::syscall(libc::SYS_io_getevents, self.context, min, max, into, until) };
    }
}

impl Drop for Signaller {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and no other code can use it any more. All requests have
        // ended.
        let rc = unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
        debug_assert_eq!(rc, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn count(event: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).expect("read");
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn signals_are_counted() {
        let signaller = Signaller::new().expect("signaller");
        let event = eventfd(0, EventfdFlags::empty()).expect("eventfd");
        (0..5000).for_each(|_| signaller.signal(event.as_fd()).expect("signal"));
        assert_eq!(count(&event), 5000);
        let null = File::open("/dev/null").expect("/dev/null");
        signaller.signal(null.as_fd()).expect_err("no eventfd");
    }

    #[test]
    fn a_full_count_stays_full_and_nobody_waits() {
        let signaller = Signaller::new().expect("signaller");
        let event = eventfd(0, EventfdFlags::empty()).expect("eventfd");
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).expect("write");
        (0..3).for_each(|_| signaller.signal(event.as_fd()).expect("signal"));
        assert_eq!(count(&event), u64::MAX);
    }

    #[test]
    fn threads_may_share_it() {
        let signaller = Signaller::new().expect("signaller");
        let event = eventfd(0, EventfdFlags::empty()).expect("eventfd");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    (0..2000).for_each(|_| signaller.signal(event.as_fd()).expect("signal"));
                });
            }
        });
        assert_eq!(count(&event), 16_000);
    }
}
