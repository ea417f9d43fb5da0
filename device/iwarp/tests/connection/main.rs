//! Two streams that are connected. Their memory consists of vectors.
//!
//! | module | contents |
//! | --- | --- |
//! | `context` | a TCP connection that has just been made |
//! | `early_segments` | early octets, which the test offers itself |
//! | `closing` | the ends of connections |
//! | `hostile` | random octets in each state |
//! | `host` | an end: a stream and its memory |
//! | `net` | two ends over the TCP engine and a link |
//! | `model` | the contents of a stream, decoded as a whole |
//! | `pipe` | two ends, joined by an ordered pipe |
//! | `holes` | segments that are lost, duplicated or late: single ones, and at random |
//! | `lossy` | two ends over a link with faults |
//! | `raw` | a responder that receives FPDUs which the test builds |
//! | `refusals` | messages that are refused |
//! | `transfers` | messages of all kinds |

mod closing;
mod context;
mod early_segments;
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
