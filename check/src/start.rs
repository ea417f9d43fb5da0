//! The begin and the end of the process, and processes that it forks.

use std::ffi::{c_int, c_void};
use std::process;
use std::ptr;
use std::sync::atomic::Ordering;

use crate::model::ends;
use crate::options::{Options, VARIABLE};
use crate::report::{self, Totals};
use crate::{bytes, calls, checker, stack};

/// The exit status of a process with mistakes that would have succeeded.
const MISTAKES: c_int = 66;
/// The exit status if an option is unknown.
const USAGE: c_int = 2;

/// Called by the loader before the program starts.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

unsafe extern "C" {
    fn on_exit(call: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn start() {
    // The library is for programs that load it, and not for its own tests.
    if cfg!(test) {
        return;
    }
    let _started = std::panic::catch_unwind(|| {
        calls::handlers::prepare();
        let text = std::env::var(VARIABLE).unwrap_or_default();
        if let Err(error) = Options::parse(&text).and_then(report::start) {
            report::say(&error);
            // SAFETY: the process ends at once; nothing of it has run.
            unsafe { libc::_exit(USAGE) };
        }
        // SAFETY: the functions have the right types, and the library stays loaded.
        unsafe {
            on_exit(finish, ptr::null_mut());
            libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(forked));
        }
    });
}

extern "C" fn before_fork() {
    calls::hold();
    stack::hold();
}

extern "C" fn after_fork() {
    stack::let_go();
    calls::let_go();
}

/// A forked process has none of the objects of its parent.
extern "C" fn forked() {
    stack::let_go();
    calls::let_go();
    report::forget();
    checker::forget();
}

/// Called when the process exits, after the program and the destructors of its libraries.
extern "C" fn finish(status: c_int, _argument: *mut c_void) {
    let mistakes = checker::watch(|tables| {
        if tables.opened.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        if report::options().hints {
            ends::exit(tables);
        }
        let totals = report::totals();
        summary(&totals, tables.requests.load(Ordering::Relaxed));
        totals.mistakes
    });
    if mistakes.unwrap_or(0) > 0 && report::options().fail && status == 0 {
        // SAFETY: what the program has printed is written, and the process ends.
        unsafe {
            libc::fflush(ptr::null_mut());
            libc::_exit(MISTAKES);
        }
    }
}

fn summary(totals: &Totals, requests: u64) {
    let Totals { mistakes, hints, repeated, suppressed } = *totals;
    let count = report::count;
    let mut text = format!("[{}]: {}", process::id(), count(mistakes, "mistake"));
    if report::options().hints {
        text += &format!(", {}", count(hints, "hint"));
    }
    text += &format!(" in {}", count(requests, "request"));
    if repeated > 0 {
        text += &format!("; {} more like these", count(repeated, "report"));
    }
    if suppressed > 0 {
        text += &format!("; {} suppressed", count(suppressed, "report"));
    }
    if bytes::is_refused() {
        text += "; buffers were not compared, because the system refuses to read memory of the \
                 process (process_vm_readv)";
    }
    report::say_about(&text);
}
