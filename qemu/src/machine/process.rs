//! Child processes that end when this process does.
//!
//! Each child asks the kernel for SIGKILL when its parent ends. The kernel means the parent
//! *thread*, so one thread, which runs as long as the process, starts all children.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

type Job = (Command, Sender<io::Result<Child>>);

/// Starts `command`. It is killed when this process ends, however that happens.
///
/// # Errors
/// The error of [`Command::spawn`].
pub fn spawn(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<parking_lot::Mutex<Sender<Job>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, inbox) = channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, reply) in inbox {
                // The receiver waits for this, so a failed send means that it has panicked.
                let _gone = reply.send(command.spawn());
            }
        });
        parking_lot::Mutex::new(jobs)
    });
    // Only this process gets ^C from a terminal. It then ends its children in order.
    command.process_group(0);
    // SAFETY: the closure runs between fork and exec and makes one system call, which is
    // async-signal-safe; it touches no lock and allocates nothing.
    unsafe {
        command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
    }
    let (reply, result) = channel();
    let lost = || io::Error::other("the thread that starts processes is gone");
    spawner.lock().send((command, reply)).map_err(|_| lost())?;
    result.recv().map_err(|_| lost())?
}

/// A child that is killed and reaped on drop.
#[derive(Debug)]
pub struct Killed(Child);

impl Killed {
    /// Starts `command`.
    ///
    /// # Errors
    /// The error of [`spawn`].
    pub fn start(command: Command) -> io::Result<Self> {
        spawn(command).map(Self)
    }

    /// Returns the process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Returns the number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Returns whether it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Returns whether it has ended. Does not reap it, so it keeps its number.
    #[must_use]
    pub fn ended(&self) -> bool {
        let Ok(pid) = i32::try_from(self.pid()) else { return true };
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        // An error means that it was reaped before.
        !matches!(waitid(Id::Pid(Pid::from_raw(pid)), flags), Ok(WaitStatus::StillAlive))
    }

    /// Kills it at once and reaps it.
    pub fn kill(&mut self) {
        // Both calls fail only if it has ended already.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }

    /// Kills it and its children, and reaps it.
    pub fn kill_group(&mut self) {
        if let Ok(pid) = i32::try_from(self.pid())
            && self.alive()
        {
            // The process is the leader of its own group since its start.
            let _ended = nix::sys::signal::killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        self.kill();
    }

    /// Sends it a signal, if it still runs.
    ///
    /// # Errors
    /// If it has ended, or an error of kill(2).
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        // A process that was not reaped keeps its number, so no other process gets the signal.
        let pid = i32::try_from(self.pid()).map_err(io::Error::other)?;
        if !self.alive() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(nix::sys::signal::kill(Pid::from_raw(pid), signal)?)
    }

    /// Sends it `signal` so that it ends, waits for at most `seconds`, and then kills it.
    pub fn stop(&mut self, signal: Signal, seconds: u64) {
        let _ended = self.signal(signal);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
        while self.alive() && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        self.kill();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> io::Result<Killed> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Killed::start(command)
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() -> io::Result<()> {
        let asker = std::thread::spawn(|| shell("sleep 0.2; exit 3"));
        let mut child = asker.join().map_err(|_| io::Error::other("panic"))??;
        assert_eq!(child.child().wait()?.code(), Some(3));
        Ok(())
    }

    #[test]
    fn a_child_is_killed_on_drop() -> io::Result<()> {
        let mut child = shell("exec sleep 60")?;
        let entry = format!("/proc/{}", child.pid());
        assert!(child.alive() && std::path::Path::new(&entry).exists());
        drop(child);
        assert!(!std::path::Path::new(&entry).exists());
        Ok(())
    }

    #[test]
    fn the_end_of_a_child_is_seen_before_it_is_reaped() -> io::Result<()> {
        let mut child = shell("exec sleep 60")?;
        assert!(!child.ended() && child.alive());
        child.signal(Signal::SIGKILL)?;
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !child.ended() && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        assert!(child.ended() && child.ended());
        assert!(!child.child().wait()?.success());
        assert!(child.ended(), "also when it is reaped");
        Ok(())
    }

    #[test]
    fn a_child_that_heeds_the_signal_is_not_killed() -> io::Result<()> {
        let mut child = shell("trap 'exit 5' TERM; while :; do sleep 0.02; done")?;
        std::thread::sleep(std::time::Duration::from_millis(100));
        child.stop(Signal::SIGTERM, 10);
        assert_eq!(child.child().wait()?.code(), Some(5));
        Ok(())
    }
}
