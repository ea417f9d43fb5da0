//! Runs a command in guest a, and optionally a server in every other guest, for programs from
//! outside of this project.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`job`] | the commands: starts them, follows their output, waits for servers |
//! | [`script`] | a command with its environment, as text for a guest's shell |
//! | [`lines`] | the lines and the end of a command's output |
//! | [`artifacts`] | files and logs that are copied to this machine |
//! | [`bundled`] | copies of libibverbs that programs bring with them |
//! | [`captures`] | captures of the traffic |
//! | [`counters`] | the adapters' counters before and after |
//! | [`scenario`] | phases with faults, and what counters must become |
//! | [`results`] | what a run has shown |
//! | [`junit`] | the results for programs that show tests |
//! | [`summary`] | the results as a table for a page |

pub mod artifacts;
pub mod bundled;
pub mod captures;
pub mod counters;
pub mod job;
pub mod junit;
pub mod lines;
pub mod results;
pub mod scenario;
pub mod script;
pub mod summary;
