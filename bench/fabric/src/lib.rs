//! A network in virtual time: hosts with RoCE connections, and one switch.
//!
//! The connections are those of `vrnic-roce` and the ports those of `vrnic-lanes`, and all frames
//! are built and parsed. Only wires, time and the work of programs are models. A run follows from
//! its [`Scenario`], so the same one has the same [`Outcome`] each time.
//!
//! | module | contents |
//! | --- | --- |
//! | [`scenario`] | what is run: hosts, links, flow control |
//! | [`network`] | the wires, the switch, the run |
//! | `host` | a host: its port, its connections |
//! | `flow` | the two halves of a connection |
//! | `load` | a frame in a queue |
//! | [`outcome`] | what is measured |
//! | [`charts`] | pictures of outcomes |
#![forbid(unsafe_code)]

pub mod charts;
mod flow;
mod host;
mod load;
pub mod network;
pub mod outcome;
pub mod scenario;

pub use network::run;
pub use outcome::{Outcome, Sample};
pub use scenario::Scenario;
