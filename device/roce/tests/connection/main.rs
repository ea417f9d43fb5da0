//! Two ends of a connection over a simulated link.
//!
//! | module | contents |
//! | --- | --- |
//! | [`host`] | one end: memory, receives, both halves of a QP, as an adapter uses them |
//! | [`execute`] | execution of requests on its memory and receives |
//! | [`pair`] | two ends, the link between them, virtual time |
//! | [`model`] | random work, and the expected results |
//! | [`reliable`] | random work over links with faults |
//! | [`unreliable`] | random work over unreliable connections |
//! | [`faults`] | single faults, each with its consequences |
//! | [`rxe`] | random work to and from Linux' software RoCE |
//! | [`rxe_requester`] | a requester with the peculiarities of rxe |
//! | [`rxe_responder`] | a responder with the peculiarities of rxe |
//! | [`recovery`] | retransmission after losses; probes; congestion |
//! | [`rates`] | rates of requesters that are notified of congestion |
//! | [`refusals`] | requests that violate the protocol, and responders that are not ready |

mod execute;
mod faults;
mod host;
mod model;
mod pair;
mod rates;
mod recovery;
mod refusals;
mod reliable;
mod rxe;
mod rxe_requester;
mod rxe_responder;
mod unreliable;
