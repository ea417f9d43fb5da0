//! The interface to the TCP engine: positions in a stream, and the traits for source and sink.

pub use vrnic_tcp::{Delivered, Delivery, Gone, Offered, Sink, Source, StreamPos, Then};
