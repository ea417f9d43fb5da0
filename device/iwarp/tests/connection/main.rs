//! Two streams joined, with memory as vectors.
//!
//! | module | contents |
//! | --- | --- |
//! | `closing` | the ends of connections |
//! | `host` | an end: a stream and its memory |
//! | `pipe` | two ends, joined by an ordered pipe |
//! | `transfers` | messages of all kinds |

mod closing;
mod host;
mod pipe;
mod transfers;
