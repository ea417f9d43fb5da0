//! Two ends of a connection over a simulated link.
//!
//! | module | contents |
//! | --- | --- |
//! | [`host`] | one end: memory, receives, both halves of a QP, as an adapter would run them |
//! | [`execute`] | execution of requests on its memory and receives |
//! | [`pair`] | two ends, the link between them, virtual time |
//! | [`model`] | random work, and the results that it must have |
//! | [`reliable`] | random work over links with faults |
//! | [`unreliable`] | the same over unreliable connections |
//! | [`faults`] | single faults, each with its consequences |
//! | [`rxe`] | random work to and from Linux' software RoCE |
//! | [`rxe_requester`] | a requester with its peculiarities |
//! | [`rxe_responder`] | a responder with its peculiarities |
//! | [`recovery`] | retransmission after losses; probes; congestion |
//! | [`refusals`] | requests that break the rules, and responders that are not ready |

mod execute;
mod faults;
mod host;
mod model;
mod pair;
mod recovery;
mod refusals;
mod reliable;
mod rxe;
mod rxe_requester;
mod rxe_responder;
mod unreliable;
