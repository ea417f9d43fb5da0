//! Scheduling of the calling thread, memory of the process, and the process at the other end of a
//! socket. The only unsafe code here is three calls that no crate wraps.

use std::fs::File;
use std::io;
use std::num::{NonZero, NonZeroI32};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::process::getpriority_process;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

/// The shortest time slice that the kernel grants (EEVDF, since Linux 6.12).
pub const SLICE_MIN: Duration = Duration::from_micros(100);

/// Bytes of free memory that the allocator keeps for each thread: more than a queue of frames.
const KEPT: libc::c_int = 16 << 20;
/// Bytes by which the allocator's memory grows.
const GROWTH: libc::c_int = 1 << 20;

/// Makes the allocator keep memory that is free. By default it gives all but 128 KiB back to the
/// kernel. Frames that wait are more than that, so the kernel would take and clear the same pages
/// again and again.
pub fn keep_memory() {
    for (what, value) in [(libc::M_TRIM_THRESHOLD, KEPT), (libc::M_TOP_PAD, GROWTH)] {
        // SAFETY: the call has no pointers, and changes only when memory is taken and given back.
        // Any thread may make it at any time.
        if unsafe { libc::mallopt(what, value) } == 0 {
            tracing::warn!(
                "the memory allocator refused a setting; packets may take more time at high rates"
            );
        }
    }
}

/// Asks for a short slice of processor time: the thread then preempts long-running ones soon after
/// it wakes (sched(7), `sched_attr.sched_runtime` of SCHED_OTHER).
///
/// # Errors
/// Returns the kernel's error. Kernels before 6.12 accept and ignore the request.
pub fn set_slice(slice: Duration) -> io::Result<()> {
    let attr = libc::sched_attr {
        size: u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(0),
        sched_policy: u32::try_from(libc::SCHED_OTHER).unwrap_or(0),
        sched_flags: 0,
        // The call sets the nice value, too, so this must be the present value.
        sched_nice: getpriority_process(None)?,
        sched_priority: 0,
        sched_runtime: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: `attr` is valid for reads of the length it states for the whole call; thread id 0 is
    // the caller, flags 0 are the only ones defined. The call changes nothing but scheduling.
    let rc = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes sleeps end on time, instead of up to 50 µs late.
///
/// # Errors
/// Returns the kernel's error.
pub fn set_precise_timers() -> io::Result<()> {
    Ok(set_current_timer_slack(NonZero::new(1))?)
}

/// Returns the process that has connected a Unix socket (unix(7), SO_PEERCRED), or none if this
/// process cannot see it, because it is in another PID namespace. The crate `rustix` has this call,
/// but with a type that cannot be 0, which is the kernel's answer in this case.
#[must_use]
pub fn peer(socket: BorrowedFd<'_>) -> Option<NonZeroI32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
    // SAFETY: `peer` and `len` are valid for writes for the whole call, and `len` is the size of
    // `peer`, of which the kernel writes no more. Any bytes are a valid `ucred`.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    NonZeroI32::new(peer.pid).filter(|_| rc == 0)
}

/// Binds the thread to one processor.
///
/// # Errors
/// Returns the kernel's error, for example if there is no such processor.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Counts the threads of the whole machine that run or are ready to run.
#[derive(Debug)]
pub struct LoadMeter {
    file: File,
}

impl LoadMeter {
    /// Opens /proc/loadavg.
    ///
    /// # Errors
    /// Returns an error if /proc is not mounted.
    pub fn new() -> io::Result<Self> {
        Ok(Self { file: File::open("/proc/loadavg")? })
    }

    /// Returns the number of threads that run or are ready to run, including the caller
    /// (proc_loadavg(5), fourth field).
    #[must_use]
    pub fn runnable(&self) -> Option<usize> {
        let mut text = [0; 64];
        let len = self.file.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..len)?).ok()?;
        text.split(' ').nth(3)?.split('/').next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_caller_is_runnable() {
        let meter = LoadMeter::new().expect("/proc/loadavg");
        assert!(meter.runnable().expect("a number") >= 1);
    }

    #[test]
    fn the_peer_of_a_socket_is_known() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let this = i32::try_from(std::process::id()).expect("a process");
        assert_eq!(peer(near.as_fd()), NonZeroI32::new(this));
        assert_eq!(peer(File::open("/").expect("a folder").as_fd()), None);
    }

    #[test]
    fn scheduling_requests_are_accepted() {
        set_slice(SLICE_MIN).expect("slice");
        set_precise_timers().expect("timer slack");
        assert!(pin(usize::MAX).is_err());
    }
}
