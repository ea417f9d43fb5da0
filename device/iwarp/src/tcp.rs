//! The border to the TCP engine: positions in a stream, and the traits through which it takes and
//! gives octets.

pub use vrnic_tcp::{Delivered, Delivery, Gone, Offered, Sink, Source, StreamPos, Then};
