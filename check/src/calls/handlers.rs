//! Handlers and masks of signals that the program sets, of which the checker only takes note.

use std::ffi::c_int;
use std::ptr;

use libc::{sigaction as Action, sighandler_t, sigset_t};

use crate::calls::real::interpose;
use crate::handler;

/// Calls of the program for handlers of signals, from any of its libraries.
const fn is_never() -> bool {
    false
}

fn plainly<R>(call: impl FnOnce() -> R) -> R {
    call()
}

interpose! {
    within plainly, is_never;

    /// Sets what a signal does.
    fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int, or -1; |real| {
        // SAFETY: the program passes null, or what it wants to set.
        if let Some(new) = unsafe { new.as_ref() } {
            handler::replaced(signal, new.sa_sigaction);
        }
        real()
    }

    /// Sets what a signal does, in a simpler way.
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t, or libc::SIG_ERR; |real| {
        handler::replaced(signal, handler);
        real()
    }

    /// Sets which signals the thread blocks.
    fn pthread_sigmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int,
        or libc::ENOSYS; |real| {
        if !new.is_null() {
            handler::masked();
        }
        real()
    }

    /// Sets which signals the thread blocks.
    fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int, or -1; |real| {
        if !new.is_null() {
            handler::masked();
        }
        real()
    }
}

/// Finds the functions of the C library. A handler of a signal, which may be the first to call
/// them, could not.
pub(crate) fn prepare() {
    const NONE: c_int = -1;
    // SAFETY: nothing is set: there is no new value, or no such signal.
    unsafe {
        sigaction(libc::SIGSEGV, ptr::null(), ptr::null_mut());
        signal(NONE, libc::SIG_DFL);
        pthread_sigmask(libc::SIG_BLOCK, ptr::null(), ptr::null_mut());
        sigprocmask(libc::SIG_BLOCK, ptr::null(), ptr::null_mut());
    }
}
