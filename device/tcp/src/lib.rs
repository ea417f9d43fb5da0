//! TCP without input and output: an engine for connections that the adapter owns.
//!
//! A connection is taken over from a kernel after its handshake. Segments, time and the bytes of
//! the stream come in as parameters, and plain data goes out; so a run is repeated exactly from its
//! seed. The crate knows no sockets, no clock, no guest memory and nothing of the adapter. It
//! stores no bytes that it sends: a [`Source`] rebuilds them for each transmission. Bytes that
//! arrive go to a [`Sink`]. Everything that arrives is hostile: it is checked before it has an
//! effect, and dropped with a reason that is counted ([`Discard`]) or answered as the RFCs say.
//!
//! | module | contents |
//! | --- | --- |
//! | [`connection`] | a connection: segments that arrive, segments to send, the end |
//! | `receive` | the receiving direction |
//! | `send` | the sending direction |
//! | `congestion` | congestion control |
//! | `clock` | timestamps |
//! | [`wire`] | formats: frames, segments, their options |
//! | [`seq`] | sequence numbers, positions in a stream |
//! | [`time`] | moments |
//! | [`stream`] | the bytes of a connection: where they come from, where they go |
//! | [`context`] | the state in which a connection is taken over; its parameters |
//! | [`discard`] | reasons for which segments are dropped, with counters |
#![forbid(unsafe_code)]

mod clock;
mod congestion;
pub mod connection;
pub mod context;
pub mod discard;
mod receive;
mod send;
pub mod seq;
pub mod stream;
pub mod time;
pub mod wire;

pub use connection::{Connection, Counters, End, Event, State, Transmit};
pub use context::{Context, Params};
pub use discard::{Discard, Discards};
pub use seq::{SeqNum, StreamPos};
pub use stream::{Delivered, Delivery, Gone, Offered, Sink, Source, Then};
pub use time::Nanos;
