//! Signals to eventfds of others, which never wait.
//!
//! A plain write to an eventfd waits while its count is at the end, unless O_NONBLOCK is set; and a
//! process that shares the open file, as the VMM does, can clear that flag again and bring the
//! count there. RWF_NOWAIT is of no use: eventfds do not know it for writes. What the kernel itself
//! does to an eventfd stops at the last count instead and never waits, and it does it on request
//! when a piece of asynchronous I/O has ended (`aio_resfd`, io_submit(2)). So a signal is a read of
//! nothing from /dev/null, which ends within the system call that begins it.
//!
//! The unsafe code here is the system calls that no crate wraps.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

/// Signals that may wait to be reaped. The kernel makes room for twice as many, and for more on
/// large machines.
const ROOM: libc::c_long = 64;
/// Most results reaped at once.
const REAPED: usize = 256;
/// Tries of one signal. Each finds no room only if other threads have used all of it since the
/// last.
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
    /// The kernel writes here.
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

/// Signals eventfds; for any number of threads.
#[derive(Debug)]
pub struct Signaller {
    context: libc::c_ulong,
    null: File,
}

impl Signaller {
    /// Asks the kernel for what it takes.
    ///
    /// # Errors
    /// When the kernel has no asynchronous I/O, or no room for more users of it.
    pub fn new() -> io::Result<Self> {
        let null = File::open("/dev/null")?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the call writes one word to `context`, which is ours and holds zero, as it must.
        let rc = unsafe { libc::syscall(libc::SYS_io_setup, ROOM, &raw mut context) };
        if rc == 0 {
            return Ok(Self { context, null });
        }
        let error = io::Error::last_os_error();
        let why = "interrupts need the kernel's asynchronous I/O (CONFIG_AIO, fs.aio-max-nr)";
        Err(io::Error::new(error.kind(), format!("{why}: {error}")))
    }

    /// Adds one to the count of `eventfd`, as far as that goes. Never waits, whatever its owner
    /// does.
    ///
    /// # Errors
    /// When it is no eventfd, or the kernel has no memory.
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

    /// One request, which has ended on return; `WouldBlock` when the results of others fill the
    /// context.
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

    /// Takes results out of the context. They are not needed.
    #[cold]
    fn reap(&self) {
        let mut done = [Done::default(); REAPED];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let (into, until) = (done.as_mut_ptr(), ptr::from_ref(&now));
        let [least, most]: [libc::c_long; 2] = [0, REAPED as libc::c_long];
        // SAFETY: `context` as in `submit`; the kernel writes at most `most` results to `done`,
        // which has room for them, and reads `now`. With that time it does not wait. Whether it
        // found any shows at the next try.
        let _found = unsafe {
            libc::syscall(libc::SYS_io_getevents, self.context, least, most, into, until)
        };
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
