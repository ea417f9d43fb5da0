//! The results of a run.

use std::time::Duration;

use crate::machine::signals;

/// How a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this status.
    Status(i32),
    /// The command took longer than its time limit, and was killed.
    TimedOut,
    /// The command was a server, and was killed when the command of guest a had ended.
    Stopped,
    /// The guest of the command has ended.
    Lost,
    /// The command was killed because this signal ended the run.
    Interrupted(i32),
}

/// A command that ran.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The guest's name.
    pub guest: String,
    /// The command as the user wrote it.
    pub command: String,
    /// The way in which it has ended.
    pub end: End,
    /// The time that it took.
    pub took: Duration,
    /// The end of its output.
    pub tail: String,
}

impl Ran {
    /// Returns why it has failed, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        match self.end {
            End::Status(0) | End::Stopped => None,
            End::Status(status) => Some(format!("the command ended with {status}")),
            End::TimedOut => {
                Some(format!("the command did not end within {} s", self.took.as_secs()))
            }
            End::Lost => Some(format!("guest {} has ended", self.guest)),
            End::Interrupted(signal) => Some(signals::sentence(signal)),
        }
    }
}

/// The lines of a guest's kernel that report faults.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The guest's name.
    pub guest: String,
    /// These lines.
    pub faults: Vec<String>,
}

/// A phase of a scenario.
#[derive(Clone, Debug)]
pub struct Check {
    /// The name of the check.
    pub name: String,
    /// The time that it took.
    pub took: Duration,
    /// Why it has failed, if it has.
    pub failure: Option<String>,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The commands in the order of their ends.
    pub commands: Vec<Ran>,
    /// The phases of its scenario.
    pub checks: Vec<Check>,
    /// The kernels of all guests.
    pub kernels: Vec<Kernel>,
    /// True if faults of a kernel fail the run.
    pub strict: bool,
    /// The time from the start to the first command, by steps.
    pub start: Vec<(&'static str, Duration)>,
    /// Counters that have changed, as a table for people.
    pub counters: Vec<crate::lab::counters::Change>,
    /// A failure of the guests or of the daemon.
    pub broken: Option<String>,
}

impl Results {
    /// Returns whether the run fails although the command has passed.
    #[must_use]
    pub fn failed(&self) -> bool {
        let missed = self.checks.iter().any(|check| check.failure.is_some());
        self.broken.is_some() || missed || self.faulty()
    }

    /// Returns whether a kernel has reported a fault that fails the run.
    #[must_use]
    pub fn faulty(&self) -> bool {
        self.strict && self.kernels.iter().any(|kernel| !kernel.faults.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_guest_and_a_kernel_s_fault_fail_the_run() {
        let kernels = vec![Kernel { guest: "a".into(), faults: vec!["WARNING: 1".into()] }];
        let mut results = Results { kernels, ..Results::default() };
        assert!(!results.failed());
        results.strict = true;
        assert!(results.failed());
        let check = Check { name: "p".into(), took: Duration::ZERO, failure: Some("f".into()) };
        results = Results { checks: vec![check], ..Results::default() };
        assert!(results.failed(), "a phase that has failed");
        results = Results { broken: Some("the daemon has ended".into()), ..Results::default() };
        assert!(results.failed());
    }
}
