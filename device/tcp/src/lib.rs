//! TCP without input and output: an engine for connections that the adapter owns.
//!
//! A connection is taken over from a kernel after its handshake. Segments, time and the bytes of
//! the stream are parameters, and segments are results, so a run can be repeated exactly from its
//! seed. The crate uses no sockets, no clock and no guest memory, and does not depend on the
//! adapter. It does not store the bytes that it sends: a [`Source`] provides them again for each
//! transmission. Received bytes go to a [`Sink`]. All input is untrusted: it is checked before it
//! has an effect, and is then dropped with a counted reason ([`Discard`]) or answered as the RFCs
//! demand.
//!
//! | module | contents |
//! | --- | --- |
//! | [`connection`] | a connection: received segments, segments to send, the end |
//! | `receive` | the receiving direction |
//! | `send` | the sending direction |
//! | `congestion` | congestion control |
//! | `clock` | timestamps |
//! | [`wire`] | formats: frames, segments, their options |
//! | [`seq`] | sequence numbers, positions in a stream |
//! | [`stream`] | source and sink of the bytes of a connection |
//! | [`shift`] | a source or sink that takes a connection over from another one |
//! | [`context`] | the state in which a connection is taken over; its parameters |
//! | [`budget`] | memory for the buffers of several connections |
//! | [`discard`] | reasons for which segments are dropped, with counters |
#![forbid(unsafe_code)]

pub mod budget;
mod clock;
mod congestion;
pub mod connection;
pub mod context;
pub mod discard;
mod receive;
mod send;
pub mod seq;
pub mod shift;
pub mod stream;
pub mod wire;

pub use budget::{Budget, Rest, Share};
pub use connection::{Connection, Counters, End, Event, State, Transmit};
pub use context::{Context, Params};
pub use discard::{Discard, Discards};
pub use seq::{SeqNum, StreamPos};
pub use shift::{Shift, Shifted};
pub use stream::{Delivered, Delivery, Gone, Offered, Sink, Source, Then, Undone};
