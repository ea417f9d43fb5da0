//! Protects guest memory after this process was stopped for long: by SIGSTOP, a debugger, or a
//! freezer.
//!
//! Guests take an adapter whose heartbeat has stopped for many seconds as dead. Their VMM closes
//! the connection, and they use the adapter's memory for something else. When the daemon goes on,
//! its threads are still in the middle of copies to this memory, and would complete them.
//!
//! So each thread that accesses guest memory has a timer that sends a signal to this thread, unless
//! another thread postpones all timers before ([`postpone`]), as it does every second. If the
//! process is stopped for longer than [`LIMIT`], a signal waits for each thread when the process
//! goes on. The kernel delivers the signal before the thread executes any further instruction of
//! the copy. The handler replaces the memory of each VMM that has closed its connection by zero
//! pages, and the copy then ends in these. In normal operation this costs accesses nothing.
//!
//! The handler does only what is allowed at any point of any thread: it loads and stores atomics of
//! a static table, and makes system calls. It takes no lock and allocates nothing.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use vrnic_sigbus::revoke_if;

/// Time without [`postpone`] after which the process counts as stopped. Drivers wait for longer
/// before they take an adapter as dead.
pub const LIMIT: Duration = Duration::from_secs(4);

/// The timers of all watched threads.
static TIMERS: Mutex<Vec<Timer>> = Mutex::new(Vec::new());
/// Number of mappings that were replaced and not yet reported.
static REVOKED: AtomicUsize = AtomicUsize::new(0);

/// A timer of the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Timer(libc::timer_t);

// SAFETY: the identifier of a timer is a number that all threads of the process may use.
unsafe impl Send for Timer {}

/// Watches the calling thread until it is dropped.
pub struct Watched(Timer);

impl Watched {
    /// Begins to watch the calling thread, which must also drop this. Logs an error, after which
    /// the thread is not protected, but works.
    #[must_use]
    pub fn begin() -> Option<Self> {
        Self::try_begin()
            .inspect_err(|error| {
                tracing::warn!(%error, "a thread has no timer; if the daemon is stopped for long, it may write to memory of guests that have ended");
            })
            .ok()
    }

    fn try_begin() -> io::Result<Self> {
        install()?;
        // SAFETY: all bytes of a `sigevent` may be zero.
        let mut event = unsafe { MaybeUninit::<libc::sigevent>::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        // SAFETY: the call has no preconditions.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer = ptr::null_mut();
        // SAFETY: the kernel reads `event` and writes `timer`, both of which are alive.
        if unsafe { libc::timer_create(libc::CLOCK_BOOTTIME, &raw mut event, &raw mut timer) } != 0
        {
            return Err(io::Error::last_os_error());
        }
        let this = Self(Timer(timer));
        let mut timers = TIMERS.lock();
        timers.push(this.0);
        this.0.start();
        Ok(this)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut timers = TIMERS.lock();
        timers.retain(|timer| *timer != self.0);
        // SAFETY: this owns the timer, and no other thread uses it, as it is not in the list.
        unsafe { libc::timer_delete(self.0.0) };
    }
}

impl Timer {
    /// Restarts the timer.
    fn start(self) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // CAST: the limit is a few seconds.
        let limit = libc::timespec { tv_sec: LIMIT.as_secs() as libc::time_t, tv_nsec: 0 };
        let times = libc::itimerspec { it_interval: zero, it_value: limit };
        // SAFETY: the timer exists while it is in the list, whose lock the caller holds; the kernel
        // reads `times`, which is alive.
        if unsafe { libc::timer_settime(self.0, 0, &raw const times, ptr::null_mut()) } != 0 {
            tracing::error!(error = %io::Error::last_os_error(), "a timer cannot be started");
        }
    }
}

/// Shows that the process is not stopped. Is called about once a second. Returns the number of
/// mappings that were replaced since the last call, because the process was stopped and their VMMs
/// are gone.
pub fn postpone() -> usize {
    TIMERS.lock().iter().for_each(|timer| timer.start());
    REVOKED.swap(0, Ordering::Relaxed)
}

/// Returns the number of the signal.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 4
}

/// Installs the handler, once for the process.
fn install() -> io::Result<()> {
    static ONCE: Mutex<bool> = Mutex::new(false);
    let mut installed = ONCE.lock();
    if *installed {
        return Ok(());
    }
    // SAFETY: all bytes of a `sigaction` may be zero.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    let handler: extern "C" fn(libc::c_int) = handle;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: `action` is valid and names a handler of the form that is expected without
    // SA_SIGINFO, which keeps to what a signal handler may do (see the head of this file).
    if unsafe { libc::sigaction(signal(), &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *installed = true;
    Ok(())
}

/// Handles the signal. Preserves the thread's errno.
extern "C" fn handle(_signal: libc::c_int) {
    // SAFETY: errno is the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    // The mappings of a VMM are usually next to each other.
    let (mut last, mut gone) = (None, false);
    let revoked = revoke_if(|connection| {
        if last != Some(connection) {
            (last, gone) = (Some(connection), has_hung_up(connection));
        }
        gone
    });
    REVOKED.fetch_add(revoked, Ordering::Relaxed);
    // SAFETY: errno is the thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns whether the peer of a socket has closed it.
fn has_hung_up(socket: libc::c_int) -> bool {
    let mut poll = libc::pollfd { fd: socket, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: the kernel reads and writes one `pollfd`, which is alive.
    let count = unsafe { libc::poll(&raw mut poll, 1, 0) };
    count == 1 && poll.revents & (libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR) != 0
}
