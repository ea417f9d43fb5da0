//! RoCE v2 without input and output: formats of packets, and the two halves of a connection.
//!
//! Frames, time and random numbers are parameters, and plain data is returned, so a seed repeats a
//! run exactly. The crate uses no sockets, no clock and no guest memory, and does not depend on the
//! adapter. All input is untrusted: it is checked before it has an effect, and is then dropped with
//! a counted reason ([`Discard`]) or answered with a NAK.
//!
//! | module | contents |
//! | --- | --- |
//! | [`wire`] | formats: frames, packets, headers, opcodes |
//! | [`icrc`] | the invariant CRC |
//! | [`psn`] | sequence numbers |
//! | [`queue`] | queues that grow when needed |
//! | [`time`] | time-outs |
//! | [`requester`] | the sending half of a connection |
//! | [`responder`] | the receiving half of a connection |
//! | [`congestion`] | windows, rates and notifications of congestion |
//! | [`datagram`] | messages of datagram QPs |
//! | [`admission`] | admission of packets to a QP |
//! | [`discard`] | reasons for which packets are dropped, with counters |
#![forbid(unsafe_code)]

pub mod admission;
pub mod congestion;
pub mod datagram;
pub mod discard;
pub mod icrc;
pub mod psn;
pub mod queue;
pub mod requester;
pub mod responder;
pub mod time;
pub mod wire;

pub use discard::{Discard, Discards};
pub use psn::{Msn, Psn};
