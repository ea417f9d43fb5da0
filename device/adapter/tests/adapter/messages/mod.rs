//! Operations of all kinds, and their errors.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `transfer` | every operation, segments, sizes, send queues in guest memory and in the device |
//! | `reads` | READs that take longer than a turn |
//! | `unreliable` | unreliable connections |
//! | `datagrams` | datagram QPs, and the GSI QP |
//! | `multicast` | multicast groups |
//! | `retries` | requests that are tried again |
//! | `atomic_writes` | ATOMIC WRITE and FLUSH |
//! | `errors` | errors, and how they are reported to each side |
//! | `alone` | a single adapter |

pub(crate) mod alone;
pub(crate) mod atomic_writes;
pub(crate) mod datagrams;
pub(crate) mod errors;
pub(crate) mod multicast;
pub(crate) mod reads;
pub(crate) mod retries;
pub(crate) mod transfer;
pub(crate) mod unreliable;
