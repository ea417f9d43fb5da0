//! Services of the host's operating system.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`journal`] | log lines for the journal of systemd |
//! | [`sys`] | scheduling of threads, memory of the process |

pub mod journal;
pub mod sys;
