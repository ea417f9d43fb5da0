//! Rules for fault injection: packets are dropped, delayed, duplicated, reordered or corrupted,
//! work requests and commands fail or wait, events and interrupts are lost, ports go down.
//!
//! Packets are RoCE packets, and TCP segments of iWARP. A rule selects packets by function, QP,
//! opcode and sequence number, and hits some of them: by chance, or the n-th. Each decision is a
//! function of the seed, the number of the rule, the function, the QP and the count of that QP's
//! packets. So the same rules do the same to the same packets of a QP in each run, however the
//! packets of different QPs are mixed. The same holds for work requests, events and all else that
//! rules count.
//!
//! The crate has no sockets, no clock and no threads. Time is a parameter.
//!
//! | module | contents |
//! | --- | --- |
//! | [`action`] | the actions of rules, and their places |
//! | [`rule`] | rules: filters, limits |
//! | [`text`], `values` | rules as text; the values of their fields |
//! | [`names`] | names of the interface's numbers in texts |
//! | [`opcode`] | opcodes of packets, work requests, events and commands |
//! | [`decision`] | the function that decides |
//! | [`subject`] | the things on which rules decide |
//! | [`entry`] | a rule in force, with its counters |
//! | [`set`] | the rules in force |
//! | [`state`] | rules for the state of a port or a device |
//! | [`rules`] | the rules in force, shared by threads |
//! | [`concern`] | what a function knows of them |
//! | [`corrupt`] | changes of frames |
//! | [`delay`] | frames that wait |
#![forbid(unsafe_code)]

pub mod action;
pub mod concern;
pub mod corrupt;
pub mod decision;
pub mod delay;
pub mod entry;
pub mod names;
pub mod opcode;
pub mod rule;
pub mod rules;
pub mod set;
pub mod state;
pub mod subject;
pub mod text;
mod values;

pub use action::{Action, Crc, Pattern, Site};
pub use concern::Concern;
pub use corrupt::corrupt;
pub use delay::Delayed;
pub use opcode::Opcode;
pub use rule::{Chance, Filter, Rule, RuleId};
pub use rules::{Observer, Rules};
pub use set::{Fate, Faults, Listed, Refused};
pub use state::State;
pub use subject::{Hit, Subject};
