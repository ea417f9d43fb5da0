//! RoCE v2 without input and output: formats of packets, and the two halves of a connection.
//!
//! Frames, time and random numbers come in as parameters, and plain data goes out; so a run is
//! repeated exactly from its seed. The crate knows no sockets, no clock, no guest memory and
//! nothing of the adapter. Everything that arrives is hostile: it is checked before it has an
//! effect, and dropped with a reason that is counted ([`Discard`]) or answered with a NAK.
//!
//! | module | contents |
//! | --- | --- |
//! | [`wire`] | formats: frames, packets, headers, opcodes |
//! | [`icrc`] | the invariant CRC |
//! | [`psn`] | sequence numbers |
//! | [`time`] | moments, time-outs |
//! | [`requester`] | the half of a connection that sends |
//! | [`responder`] | the half of a connection that receives |
//! | [`congestion`] | windows and notifications of congestion |
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
pub mod requester;
pub mod responder;
pub mod time;
pub mod wire;

pub use discard::{Discard, Discards};
pub use psn::{Msn, Psn};
