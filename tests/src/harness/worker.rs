//! The thread on which the cases of suites run, with a limit in time for each of them.
//!
//! A case that does not end in time loses its guests and all other processes that it has started,
//! so that whatever waits for them goes on. If the case does not end even then, its thread is given
//! up, and later cases get a new one.

use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time after which processes are looked for again, which others have started in the meantime.
const PAUSE: Duration = Duration::from_millis(200);

/// How a job has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended<T> {
    /// The job has returned this.
    InTime(T),
    /// The job has returned this after its processes were killed.
    Late(T),
    /// The job has not returned.
    Never,
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that does one job after the other.
pub(crate) struct Worker {
    jobs: Sender<Job>,
    /// Time in which a job ends after its processes were killed.
    grace: Duration,
}

impl Worker {
    /// Starts a thread. Its jobs have so much time to end after their processes were killed.
    pub(crate) fn start(grace: Duration) -> Self {
        let (jobs, inbox) = channel::<Job>();
        std::thread::spawn(move || inbox.into_iter().for_each(|job| job()));
        Self { jobs, grace }
    }

    /// Does a job, which must not panic. Kills all processes that this process has started if the
    /// job takes longer than `limit`.
    pub(crate) fn run<T: Send + 'static>(
        &mut self,
        limit: Duration,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Ended<T> {
        let (reply, result) = channel();
        // Nobody waits for what comes too late. It is dropped, and its guests with it.
        let sent = self.jobs.send(Box::new(move || drop(reply.send(job()))));
        if sent.is_ok()
            && let Ok(value) = result.recv_timeout(limit)
        {
            return Ended::InTime(value);
        }
        let end = Instant::now() + self.grace;
        while Instant::now() < end {
            kill_children();
            match result.recv_timeout(PAUSE) {
                Ok(value) => return Ended::Late(value),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        *self = Self::start(self.grace);
        Ended::Never
    }
}

/// Kills all processes that this process has started, and those that they have started.
fn kill_children() {
    for process in below(std::process::id()).into_iter().filter_map(|it| i32::try_from(it).ok()) {
        // The process may have ended already.
        let _ended = kill(Pid::from_raw(process), Signal::SIGKILL);
    }
}

/// A process that runs, and its parent.
struct Process {
    number: u32,
    parent: u32,
}

/// Returns the processes below a process.
fn below(top: u32) -> Vec<u32> {
    let all = running();
    let mut found = vec![top];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(all.iter().filter(|it| it.parent == parent).map(|it| it.number));
        next += 1;
    }
    found.split_off(1)
}

/// Returns all processes of this machine that have not ended.
fn running() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let process = |number| {
        let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        Some(Process { number, parent: parent(&text)? })
    };
    numbers.filter_map(process).collect()
}

/// Returns the parent in the text of /proc/N/stat, if the process runs.
fn parent(stat: &str) -> Option<u32> {
    // The name of the program, which is in parentheses, can contain any character.
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
    let state = rest.next()?;
    rest.next()?.parse().ok().filter(|_| !matches!(state, "Z" | "X"))
}

/// Ends the process, and the guests with it, if a suite hangs outside of its cases.
pub(crate) struct Watchdog(Arc<Mutex<(String, Instant)>>);

impl Watchdog {
    /// Begins the time in which the suites are made.
    pub(crate) fn start(limit: Duration) -> Self {
        let watched = Arc::new(Mutex::new((String::new(), Instant::now() + limit)));
        let seen = Arc::clone(&watched);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let (suite, end) = &*seen.lock().unwrap_or_else(PoisonError::into_inner);
                if Instant::now() > *end {
                    eprintln!("the suite {suite} did not end in time: giving up");
                    std::process::abort();
                }
            }
        });
        Self(watched)
    }

    /// Begins the time of a suite.
    pub(crate) fn limit(&self, suite: &str, limit: Duration) {
        let watched = (suite.to_owned(), Instant::now() + limit);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = watched;
    }
}

/// A lock for tests: each of them kills the processes of all.
#[cfg(test)]
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const SHORT: Duration = Duration::from_millis(300);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_job_that_waits_for_a_process_ends_with_it() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut worker = Worker::start(LONG);
        // The process that is waited for is started by another one.
        let wait = || Command::new("sh").args(["-c", "sleep 1000; exit 3"]).status().is_ok();
        let start = Instant::now();
        assert_eq!(worker.run(SHORT, wait), Ended::Late(true));
        assert!(start.elapsed() < LONG);
        assert_eq!(worker.run(LONG, || 5), Ended::InTime(5));
    }

    #[test]
    fn a_job_that_never_ends_is_given_up() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut worker = Worker::start(SHORT);
        assert_eq!(worker.run(SHORT, || std::thread::sleep(LONG * 1000)), Ended::Never);
        assert_eq!(worker.run(LONG, || 5), Ended::InTime(5));
    }

    #[test]
    fn the_parent_of_a_process_is_found() {
        assert_eq!(parent("12 (a) b) S 7 12 0"), Some(7));
        assert_eq!(parent("12 (sh) Z 7 12 0"), None);
        assert_eq!(parent("12 (sh"), None);
        assert!(!running().is_empty());
    }
}
