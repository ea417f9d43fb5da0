//! Signals that end this process: Ctrl-C (SIGINT), SIGTERM and SIGHUP. The process then says so,
//! and has the exit status 128 + signal.
//!
//! Usually the process ends at once, after what [`before_the_end`] was given. While a
//! [`Deferral`] exists, the first signal is only noted, so that the results are saved; the
//! second one ends it at once.

use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::machine::progress;

/// What must be done before a signal ends the process.
static LAST: Mutex<Option<Last>> = Mutex::new(None);
/// True while a [`Deferral`] exists.
static DEFERRED: AtomicBool = AtomicBool::new(false);
/// The signal that was noted, or 0.
static NOTED: AtomicI32 = AtomicI32::new(0);

type Last = Box<dyn FnOnce(&str) + Send>;

/// Time in which the results are saved. No other may exist.
#[derive(Debug)]
pub struct Deferral(());

impl Deferral {
    /// Lets the first signal be noted, from now on. Forgets what [`before_the_end`] was given.
    #[must_use]
    pub fn start() -> Self {
        LAST.lock().take();
        DEFERRED.store(true, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        DEFERRED.store(false, Ordering::SeqCst);
    }
}

/// Returns the signal that was noted, if there was one.
#[must_use]
pub fn noted() -> Option<i32> {
    Some(NOTED.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}

/// Lets `work` run before a signal ends the process. The parameter of `work` is a sentence that
/// names the signal.
pub fn before_the_end(work: impl FnOnce(&str) + Send + 'static) {
    *LAST.lock() = Some(Box::new(work));
}

/// Returns the sentence about a signal.
#[must_use]
pub fn sentence(signal: i32) -> String {
    let name = signal_name(signal).unwrap_or("a signal");
    let key = if signal == SIGINT { " (Ctrl-C)" } else { "" };
    format!("the run was ended by {name}{key}")
}

/// Ends the process in order when it gets a signal to end, with `cleanup`. The kernel then kills
/// the children. Only the first call counts.
pub(crate) fn watch(cleanup: fn()) {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let Ok(signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
        std::thread::spawn(move || take(signals, cleanup));
    });
}

/// Waits for signals. The terminal of a process that gets SIGHUP is gone, so nothing is deferred.
fn take(mut signals: Signals, cleanup: fn()) {
    for signal in signals.forever() {
        let sentence = sentence(signal);
        if signal != SIGHUP && DEFERRED.load(Ordering::SeqCst) && noted().is_none() {
            say(&format!("{sentence}; its results are saved, unless a second signal comes"));
            NOTED.store(signal, Ordering::SeqCst);
            continue;
        }
        say(&sentence);
        if let Some(work) = LAST.lock().take() {
            work(&sentence);
        }
        cleanup();
        std::process::exit(128 + signal);
    }
}

/// Prints a line of progress, if there is still somebody to read it.
fn say(text: &str) {
    let _unread = io::stderr().write_all(progress::line(text).as_bytes());
}
