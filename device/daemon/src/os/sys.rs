//! Scheduling of the calling thread, and memory of the process. The only unsafe code here is two
//! calls that no crate wraps.

use std::fs::File;
use std::io;
use std::num::NonZero;
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
    use super::*;

    #[test]
    fn the_caller_is_runnable() {
        let meter = LoadMeter::new().expect("/proc/loadavg");
        assert!(meter.runnable().expect("a number") >= 1);
    }

    #[test]
    fn scheduling_requests_are_accepted() {
        set_slice(SLICE_MIN).expect("slice");
        set_precise_timers().expect("timer slack");
        assert!(pin(usize::MAX).is_err());
    }
}
