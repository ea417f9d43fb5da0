//! Two streams joined, with memory as vectors.
//!
//! | module | contents |
//! | --- | --- |
//! | `ahead` | octets ahead of their turn, offered by hand |
//! | `closing` | the ends of connections |
//! | `hostile` | any octets in any state |
//! | `host` | an end: a stream and its memory |
//! | `net` | two ends over the TCP engine and a link |
//! | `model` | the contents of a stream, decoded as a whole |
//! | `pipe` | two ends, joined by an ordered pipe |
//! | `holes` | segments that are lost, doubled, late: one by one, and at random |
//! | `lossy` | two ends over a link with faults |
//! | `raw` | a responder that takes FPDUs made by hand |
//! | `refusals` | messages that are refused |
//! | `transfers` | messages of all kinds |

mod ahead;
mod closing;
mod holes;
mod host;
mod hostile;
mod lossy;
mod model;
mod net;
mod pipe;
mod raw;
mod refusals;
mod transfers;
