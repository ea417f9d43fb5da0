//! Two streams joined, with memory as vectors.
//!
//! | module | contents |
//! | --- | --- |
//! | `closing` | the ends of connections |
//! | `hostile` | any octets in any state |
//! | `host` | an end: a stream and its memory |
//! | `pipe` | two ends, joined by an ordered pipe |
//! | `lossy` | two ends over the TCP engine and a link with faults |
//! | `refusals` | messages that are refused |
//! | `transfers` | messages of all kinds |

mod closing;
mod host;
mod hostile;
mod lossy;
mod pipe;
mod refusals;
mod transfers;
