//! Rules for fault injection: packets are dropped, delayed, duplicated, reordered or corrupted.
//!
//! Packets are RoCE packets, and TCP segments of iWARP. A rule selects packets by function, QP,
//! opcode and sequence number, and hits some of them: by chance, or the n-th. Each decision is a
//! function of the seed, the number of the rule, the function, the QP and the count of that QP's
//! packets. So the same rules do the same to the same packets of a QP in each run, however the
//! packets of different QPs are mixed.
//!
//! The crate has no sockets, no clock and no threads. Time is a parameter.
//!
//! | module | contents |
//! | --- | --- |
//! | [`rule`] | rules: actions, filters, limits |
//! | [`text`] | rules as text |
//! | [`opcode`] | opcodes of RoCE, of iWARP and of TCP |
//! | [`decision`] | the function that decides |
//! | [`set`] | the rules in force, with counters |
//! | [`corrupt`] | changes of frames |
//! | [`delay`] | frames that wait |
#![forbid(unsafe_code)]

pub mod corrupt;
pub mod decision;
pub mod delay;
pub mod opcode;
pub mod rule;
pub mod set;
pub mod text;

pub use corrupt::corrupt;
pub use delay::Delayed;
pub use opcode::Opcode;
pub use rule::{Action, Chance, Crc, Filter, Rule, RuleId};
pub use set::{Fate, Faults, Listed, Subject};
