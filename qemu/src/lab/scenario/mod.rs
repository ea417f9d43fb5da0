//! Scenarios: phases of a run with faults, and what counters must have become after each
//! (docs/laboratory.md).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`text`] | scenarios as TOML |
//! | [`expectation`] | what a counter must have become |
//! | [`drive`] | the course of a scenario during a command |

pub mod drive;
pub mod expectation;
pub mod text;

use std::time::Duration;

use self::expectation::Expectation;

/// The phases of a run, with their faults and demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// A short description for users.
    pub title: String,
    /// True if the adapters exchange packets, and do not copy messages.
    pub packets: bool,
    /// True if the first phase begins when guest a has sent something.
    pub waits: bool,
    /// The phases, in order.
    pub phases: Vec<Phase>,
}

/// A phase of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The name of the phase.
    pub name: String,
    /// The duration of the phase; without one, the phase ends with the command.
    pub lasts: Option<Duration>,
    /// The fault rules of this phase. They replace the rules of the previous phase.
    pub faults: Vec<String>,
    /// True if a rule may have hit nothing.
    pub may_miss: bool,
    /// The conditions that counters must meet before the phase ends.
    pub expect: Vec<Expectation>,
}

impl Scenario {
    /// Returns a single phase, with these rules, that lasts as long as the command.
    #[must_use]
    pub fn of_rules(rules: &[String], must_hit: bool) -> Self {
        let (name, expect) = ("faults".to_owned(), Vec::new());
        let faults = rules.to_vec();
        let phase = Phase { name, lasts: None, faults, may_miss: !must_hit, expect };
        let title = "rules of --fault".to_owned();
        Self { title, packets: false, waits: false, phases: vec![phase] }
    }
}
