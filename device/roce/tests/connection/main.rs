//! Two ends of a connection over a simulated link.
//!
//! | module | contents |
//! | --- | --- |
//! | [`host`] | one end: memory, receives, both halves of a QP, as an adapter would run them |
//! | [`pair`] | two ends, the link between them, virtual time |
//! | [`model`] | random work, and the results that it must have |
//! | [`reliable`] | random work over links with faults |
//! | [`unreliable`] | the same over unreliable connections |
//! | [`faults`] | single faults, each with its consequences |
//! | [`rxe`] | a responder with the peculiarities of Linux' software RoCE |
//! | [`recovery`] | retransmission after losses; probes; congestion |
//! | [`hostile`] | any packet in any state |
//! | [`refusals`] | requests that break the rules, and responders that are not ready |

mod faults;
mod host;
mod hostile;
mod model;
mod pair;
mod recovery;
mod refusals;
mod reliable;
mod rxe;
mod unreliable;
