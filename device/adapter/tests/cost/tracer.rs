//! Counts instructions of another process, by single steps.

use std::process::{Command, Stdio};

use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Maximum number of instructions of a part.
const LIMIT: u64 = 10_000_000;

/// Lets the parent process trace this thread.
pub(super) fn allow() {
    ptrace::traceme().expect("a tracer");
}

/// Runs a part whose instructions the tracer counts, with those of two signals.
pub(super) fn counted(part: impl FnOnce()) {
    raise(Signal::SIGSTOP).expect("the beginning");
    part();
    raise(Signal::SIGSTOP).expect("the end");
}

/// Runs the test `name` of this program in another process, where the variable `traced` is set.
/// Returns the number of instructions of each part that is counted.
#[expect(clippy::zombie_processes, reason = "waitpid takes the end of the process")]
pub(super) fn count(name: &str, traced: &str) -> Vec<u64> {
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program)
        .args([name, "--exact", "--test-threads=1"])
        .env(traced, "1")
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let child = Pid::from_raw(child.id().cast_signed());
    let mut counts = Vec::new();
    let mut steps = None;
    loop {
        // The traced thread is not the first one of its process.
        match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::__WALL)).expect("a child") {
            WaitStatus::Stopped(thread, Signal::SIGSTOP) => match steps.take() {
                None => {
                    steps = Some(0);
                    ptrace::step(thread, None).expect("a step");
                }
                Some(steps) => {
                    counts.push(steps);
                    ptrace::cont(thread, None).expect("go on");
                }
            },
            WaitStatus::Stopped(thread, Signal::SIGTRAP) => {
                let steps = steps.as_mut().expect("a part");
                *steps += 1;
                assert!(*steps < LIMIT, "a part does not end");
                ptrace::step(thread, None).expect("a step");
            }
            WaitStatus::Stopped(thread, signal) => {
                ptrace::cont(thread, signal).expect("go on");
            }
            WaitStatus::Exited(process, status) if process == child => {
                assert_eq!(status, 0, "the traced process failed");
                return counts;
            }
            WaitStatus::Signaled(process, signal, _) if process == child => {
                panic!("the traced process ended by {signal}");
            }
            _ => {}
        }
    }
}
