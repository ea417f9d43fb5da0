//! iWARP without input and output: MPA, DDP and RDMAP above a byte stream.
//!
//! Octets of the stream and work requests are parameters, and plain data is returned, so a run can
//! be repeated exactly from its seed. The crate uses no sockets and no clock, and does not depend
//! on the adapter; it accesses memory through a trait. It does not store the octets that it sends:
//! lost ones are built again from the work requests. All input is untrusted: it is checked before
//! it has an effect. If it is not valid, the stream ends with a Terminate that names the cause.
//!
//! | module | contents |
//! | --- | --- |
//! | [`tcp`] | the interface to the TCP engine |
//! | [`crc`] | CRC-32C |
//! | [`wire`] | formats: start frames, DDP segments, messages of RDMAP |
//! | [`mpa`] | the negotiation at the start, FPDUs, markers |
//! | [`rdmap`] | messages: the send log, requester and responder, placement |
//! | [`stream`] | a connection, which combines these, and its end |
#![forbid(unsafe_code)]

pub mod crc;
pub mod mpa;
pub mod rdmap;
pub mod stream;
pub mod tcp;
pub mod wire;

pub use rdmap::memory::Memory;
pub use stream::Stream;
