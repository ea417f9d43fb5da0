//! Writes of the checker, which bring the program no signal, and work of it, in which a thread of
//! the program is not cancelled.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::ptr;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// The state in which a thread is not cancelled (`PTHREAD_CANCEL_DISABLE`).
const DISABLED: c_int = 1;

/// Sets the state from before when it is dropped.
struct Cancellation(c_int);

impl Drop for Cancellation {
    fn drop(&mut self) {
        // SAFETY: the state is one that the thread had; the old one is not wanted.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}

/// Calls a function in which the thread is not cancelled: neither locks nor panics of the checker
/// could bear that.
pub(crate) fn uncancelled<R>(call: impl FnOnce() -> R) -> R {
    let mut old = 0;
    // SAFETY: the state is known, and the variable lives until the call returns.
    unsafe { pthread_setcancelstate(DISABLED, &raw mut old) };
    let _until_the_end = Cancellation(old);
    call()
}

/// Calls a function that writes to a file. If that is a pipe that nobody reads, the program gets no
/// `SIGPIPE`.
pub(crate) fn write(call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: a set of signals is plain numbers.
    let (mut pipe, mut pending, mut old) =
        unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed::<libc::sigset_t>()) };
    // SAFETY: the sets live until the calls return.
    let is_pending = unsafe {
        libc::sigemptyset(&raw mut pipe);
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::sigpending(&raw mut pending);
        libc::sigismember(&raw const pending, libc::SIGPIPE) == 1
    };
    // SAFETY: as above.
    if unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut old) } != 0 {
        return uncancelled(call);
    }
    let result = uncancelled(call);
    let is_raised = result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EPIPE));
    if is_raised && !is_pending {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time live until the call returns, and no details are wanted.
        let take =
            || unsafe { libc::sigtimedwait(&raw const pipe, ptr::null_mut(), &raw const now) };
        while take() < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {}
    }
    // SAFETY: the set is the one from before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, ptr::null_mut()) };
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_broken_pipe_is_an_error_and_no_signal() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        drop(reader);
        // SAFETY: the program that runs the tests counts on no signal of broken pipes.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let error = write(|| writer.write_all(b"text")).expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    }
}
