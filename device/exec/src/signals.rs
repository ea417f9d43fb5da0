//! The signals of the supervisor's threads.

use nix::sys::signal::{SigSet, Signal};

/// Leaves signals to the main thread, except those of faults: the kernel ends a process for a fault
/// whose signal is blocked, and the handler for lost pages would not run.
pub fn mask_signals() {
    let mut signals = SigSet::all();
    for fault in [Signal::SIGBUS, Signal::SIGSEGV, Signal::SIGILL, Signal::SIGFPE] {
        signals.remove(fault);
    }
    // No set is refused.
    let _blocked = signals.thread_block();
}
